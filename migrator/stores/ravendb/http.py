"""Sends requests to a RavenDB server, bounds what comes back, and says what failures mean.

Rules of this file: nothing of a document, and no part of the URL but host and port, is in a
message. What may pass (no answer, 408, 429, 5xx) is ``StoreUnavailable``: it may have happened.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx

from migrator.errors import ConfigError, SourceGone, StoreError, StoreUnavailable
from migrator.stores.ravendb.families import Request, parsed
from migrator.tls import tls_context, unused_tls_context

ANSWER_BYTES: Final = 64 * 2**20
"""The most of an answer that is held, unpacked; a longer one is asked for in smaller parts."""
ONE_DOCUMENT_BYTES: Final = 256 * 2**20
"""The same for a single document, which has no smaller parts."""
_PASSING: Final = frozenset({408, 425, 429})
_ERROR_BYTES: Final = 64 * 1024
_CONFLICT: Final = 409
_ERROR: Final = "Error"
"""What every version has in what it says of an error; a proxy's page has not."""
_NO_DATABASE: Final = ", DatabaseDoesNotExistException"
"""4.1, 5.4, 6.2 and 7.0 answer 500 with it."""


class Conflict(StoreError):
    """A condition of a batch did not hold, and nothing of it was done; or nodes disagree."""


class UnreadableAnswer(StoreError):
    """The answer tells nothing; what was asked for may have been done."""


class AnswerTooLarge(UnreadableAnswer):
    """The answer has more bytes than are held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Where the server is, and how it is talked to."""

    url: str
    database: str
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    request_timeout_s: float = 30.0
    """For connecting, and for each wait for a part of an answer."""


class RavenHttp:
    """A client of one database; safe to use from several threads.

    Raises:
        ConfigError: The address or a certificate cannot be used.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._base, self.host = _base_of(settings.url)
        self._database = settings.database
        self._client = httpx.Client(
            timeout=settings.request_timeout_s,
            verify=_tls_context(settings)
            if self._base.startswith("https:")
            else unused_tls_context(),
            headers={"User-Agent": "migrator", "Accept": "application/json"},
            trust_env=False,  # a proxy from the environment would see every message
        )

    @property
    def where(self) -> str:
        return f"RavenDB database {self._database!r} at {self.host}"

    def close(self) -> None:
        self._client.close()

    def build(self) -> Any:
        return self._got("/build/version")

    def names(self) -> Any:
        """Return what the server calls the database: its shards, where it has some."""
        return self._got(f"/databases?name={quote(self._database, safe='')}&namesOnly=true")

    def _got(self, path: str) -> Any:
        return self._sent(self._client.build_request("GET", f"{self._base}{path}"), ANSWER_BYTES)

    def send(self, request: Request, *, at_most_bytes: int = ANSWER_BYTES) -> Any:
        """Return the server's answer to *request*, as JSON tells it.

        Raises:
            Conflict: 409.
            UnreadableAnswer: It is no JSON; a change may have been made or not.
            AnswerTooLarge: It has more than *at_most_bytes*; the same.
            StoreUnavailable: No answer, or a passing one; a change may have been made or not.
            StoreError: Refused for good.
        """
        url = f"{self._base}/databases/{quote(self._database, safe='')}{request.path}"
        if request.query:
            url += "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in request.query)
        built = self._client.build_request(
            request.method,
            url,
            content=None if request.body is None else _encoded(request.body),
            headers={} if request.body is None else {"Content-Type": "application/json"},
        )
        return self._sent(built, at_most_bytes)

    def _sent(self, request: httpx.Request, at_most_bytes: int) -> Any:
        try:
            answer = self._client.send(request, stream=True)
            try:
                self._check(answer)
                return parsed(_read(answer, at_most_bytes))
            finally:
                answer.close()
        except httpx.HTTPError as exc:
            raise StoreUnavailable(f"{self.where} cannot be reached: {_why(exc)}") from exc
        except (ValueError, RecursionError) as exc:
            raise UnreadableAnswer(
                f"{self.where}: the answer is not JSON; is this RavenDB?"
            ) from exc

    def _check(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if status in (200, 201):
            return
        told = _told_error(answer)
        said = _kind_of_error(told)
        if status == _CONFLICT:
            raise Conflict(
                f"{self.where}: a document is in conflict (409{said}); it was changed meanwhile, "
                "or the nodes disagree about it, and the conflict has to be resolved in RavenDB"
            )
        if said == _NO_DATABASE or (status == 404 and _ERROR in told):
            raise SourceGone(f"{self.where} was not found{said}; check store.ravendb.database")
        if status == 404:
            raise StoreError(
                f"{self.where} was not found, but the answer is not RavenDB's (404{said}); check "
                "store.url, and any proxy in between"
            )
        if status in _PASSING or status >= 500:
            raise StoreUnavailable(f"{self.where} answered {status}{said}")
        if status in (401, 403):
            raise StoreError(
                f"{self.where} refused this client ({status}{said}); it needs the certificate of "
                "store.ravendb.cert_file, with the right to read and write this database"
            )
        raise StoreError(f"{self.where} refused the request ({status}{said})")


def _encoded(body: Any) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a character, which only an escape can carry
        return json.dumps(body, separators=(",", ":")).encode("ascii")


def _why(exc: BaseException) -> str:
    """Return what is known of a request without an answer, and what to look at."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted ({cause.verify_message}); check store.url and "
                "store.ravendb.ca_file"
            )
        cause = cause.__cause__ or cause.__context__
    return f"{type(exc).__name__}; check store.url, the network and the server"


def _read(answer: httpx.Response, at_most_bytes: int) -> bytes:
    read = bytearray()
    for chunk in answer.iter_bytes():
        read += chunk
        if len(read) > at_most_bytes:
            raise AnswerTooLarge(f"the answer has more than {at_most_bytes} bytes")
    return bytes(read)


def _told_error(answer: httpx.Response) -> dict[str, Any]:
    """Return what the server says of an error; empty: it says nothing in its own form."""
    try:
        told = json.loads(_read(answer, _ERROR_BYTES))
    except (ValueError, RecursionError, AnswerTooLarge, httpx.HTTPError):
        return {}
    return told if isinstance(told, dict) else {}


def _kind_of_error(told: dict[str, Any]) -> str:
    """Return the name of the server's exception: its text may quote documents."""
    kind = told.get("Type")
    name = kind.rpartition(".")[2] if isinstance(kind, str) else ""
    return f", {name}" if name.isidentifier() and len(name) < 80 else ""


def _base_of(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        raise ConfigError("store.url has no valid host and port") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError("store.url must be http://host:port or https://host:port of RavenDB")
    if parts.username or parts.password:
        raise ConfigError(
            "store.url must not contain a user: RavenDB uses certificates (store.ravendb.cert_file)"
        )
    if parts.query or parts.fragment:
        raise ConfigError("store.url must be RavenDB's address alone, without a query")
    shown = f"[{host}]" if ":" in host else host
    shown += f":{port}" if port else ""
    return f"{parts.scheme}://{shown}{parts.path.rstrip('/')}", shown


def _tls_context(settings: ServerSettings) -> ssl.SSLContext:
    return tls_context(
        "store.ravendb",
        ca_file=settings.ca_file,
        cert_file=settings.cert_file,
        key_file=settings.key_file,
    )
