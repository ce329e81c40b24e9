"""Requests to the tables and the blobs of an account: signed, kept alive, at the account's pace.

Azure's client libraries take 3 ms of a processor for a request, this a tenth, and a timeout takes
several. What they are still used for is in ``account``; errors are theirs.

Rules of this file: only requests that may be repeated are sent, and each is, with a new signature,
while the account is busy; an error has Azure's own code and nothing of the answer besides.
Sources: Azure Storage REST API, "Authorize with Shared Key", "Performing entity group
transactions", "Blob Batch".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import quote, urlsplit
from uuid import uuid4

import requests
import urllib3
from azure.core.exceptions import (
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from requests.adapters import HTTPAdapter
from tenacity import RetryCallState, retry, wait_exponential, wait_random

from migrator.errors import StoreError

_TIMEOUT: Final = urllib3.Timeout(connect=10, read=30)
_RETRIES: Final = 2
"""Of one request that is not answered."""
_RETRIES_WHEN_BUSY: Final = 4
"""Of one request that is refused for now: a busy account refuses some of many."""
_BACKOFF_S: Final = 0.2
"""Before the first repetition, with up to as much jitter; each next one waits twice as long."""
PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
GONE: Final = 404
_CODE: Final = re.compile(rb'(?:"code"\s*:\s*"|<Code>|x-ms-error-code:\s*)([A-Za-z]+)')
_PART: Final = re.compile(rb"^HTTP/1\.1 (\d{3})", re.MULTILINE)
_PARAMETER: Final = re.compile(r"@(\w+)")
_JSON: Final = {
    "Accept": "application/json;odata=minimalmetadata",
    "DataServiceVersion": "3.0",
    "MaxDataServiceVersion": "3.0;NetFx",
}
_NO_ECHO: Final = {"Content-Type": "application/json", "Prefer": "return-no-content"}
_NEXT: Final = ("NextPartitionKey", "NextRowKey")
_NEXT_HEADER: Final = "x-ms-continuation-"
Entity = Mapping[str, Any]
"""As the service writes it: values, their types as ``<name>@odata.type``, and ``odata.etag``."""
Operation = tuple[str, str, Mapping[str, str], Entity | None]
"""One of a transaction: method, path within the service, headers, and what is written."""
Continuation = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An account's name and its key, as the connection string has it."""

    account: str
    text: str

    def sign(self, what: str) -> str:
        """Return the signature of *what*; ``StoreError``: the key is invalid."""
        try:
            key = base64.b64decode(self.text, validate=True)
        except ValueError as exc:
            raise StoreError(
                "the account key in store.url cannot be used; is it complete?"
            ) from exc
        return base64.b64encode(hmac.digest(key, what.encode(), hashlib.sha256)).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By any case."""
    body: bytes | None
    """None: it was too large, and was not read."""


def _worth_another_try(state: RetryCallState) -> bool:
    match state.outcome and state.outcome.exception():
        case ServiceRequestError():
            return state.attempt_number <= _RETRIES
        case HttpResponseError(status_code=status) if status in PASSING:
            return state.attempt_number <= _RETRIES_WHEN_BUSY
    return False


class _Service(ABC):
    """One of an account's services; safe to use from several threads.

    Args:
        url: Of the service, or of a part of it, with the shared access signature if it has one.
        key: Signs requests; None: the URL does.
        connections: Kept open.
        wait: Returns when a request may go.
        learn: Called with each answer's status and ``Retry-After``.
    """

    version: str

    def __init__(
        self,
        url: str,
        key: Key | None,
        *,
        connections: int,
        wait: Callable[[], None],
        learn: Callable[[int, str | None], None],
    ) -> None:
        parts = urlsplit(url)
        self.root = parts.path.rstrip("/")
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._sas = parts.query
        self._key = key
        self._wait, self._learn = wait, learn
        self._pool = _pool(self._base, connections)

    def close(self) -> None:
        self._pool.clear()

    @retry(
        retry=_worth_another_try,
        wait=wait_exponential(multiplier=_BACKOFF_S) + wait_random(0, _BACKOFF_S),
    )
    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        most: int | None = None,
    ) -> Answer:
        """Return the answer to a request; one of more than *most* bytes without its body.

        *path* is quoted, as it is in the URL, and *query* is not.

        Raises:
            HttpResponseError: It was refused.
            ServiceRequestError: There was no answer; it may have been done.
        """
        query = query or {}
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        url = f"{self._base}{path}?" + "&".join(filter(None, (asked, self._sas)))
        self._wait()
        now = {**headers, "x-ms-date": formatdate(usegmt=True), "x-ms-version": self.version}
        if body is not None:
            now["Content-Length"] = str(len(body))
        if self._key is not None:
            now["Authorization"] = self.authorization(self._key, method, path, query, now)
        try:
            answer = self._sent(method, url.rstrip("?"), now, body, most)
        except urllib3.exceptions.HTTPError as exc:
            raise ServiceRequestError(type(exc).__name__) from exc
        self._learn(answer.status, answer.headers.get("Retry-After"))
        if answer.status >= 300:
            raise refused(answer.status, _code_of(answer))
        return answer

    @abstractmethod
    def authorization(
        self,
        key: Key,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> str:
        """Return the header that signs a request."""

    def _sent(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        most: int | None,
    ) -> Answer:
        answer = self._pool.urlopen(
            method,
            url,
            body=body,
            headers=dict(headers),
            timeout=_TIMEOUT,
            retries=False,
            redirect=False,
            preload_content=most is None,
            decode_content=False,
        )
        if most is None:
            return Answer(status=answer.status, headers=answer.headers, body=answer.data)
        if int(answer.headers.get("Content-Length", "0")) > most:
            answer.close()
            return Answer(status=answer.status, headers=answer.headers, body=None)
        found = answer.read(decode_content=False)
        answer.release_conn()
        return Answer(status=answer.status, headers=answer.headers, body=found)


class Tables(_Service):
    version = "2019-02-02"

    def authorization(
        self,
        key: Key,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> str:
        del method, query
        what = f"{headers['x-ms-date']}\n/{key.account}{path}"
        return f"SharedKeyLite {key.account}:{key.sign(what)}"

    def page(
        self,
        table: str,
        where: str,
        parameters: Mapping[str, str],
        columns: Sequence[str] | None,
        size: int | None,
        begin: Continuation,
    ) -> tuple[Sequence[Entity], Continuation | None]:
        """Return a page of entities, and where the next one begins; None: there is none.

        Args:
            table: Its name.
            where: A condition, with ``@name`` for each of *parameters*.
            parameters: Text, not quoted.
            columns: None: all.
            size: The most entities; None: as many as the service gives.
            begin: As returned; empty: at the first.
        """
        filled = _PARAMETER.sub(lambda found: _literal(parameters[found[1]]), where)
        query = {"$filter": filled, **begin}
        if columns is not None:
            query["$select"] = ",".join(columns)
        if size is not None:
            query["$top"] = str(size)
        answer = self.send("GET", f"{self.root}/{table}()", _JSON, query=query)
        headers = answer.headers
        following = {
            name: headers[f"{_NEXT_HEADER}{name}"]
            for name in _NEXT
            if f"{_NEXT_HEADER}{name}" in headers
        }
        return _read(answer)["value"], following or None

    def entity(self, table: str, partition: str, row: str) -> Entity:
        found: Entity = _read(self.send("GET", self._place(table, partition, row), _JSON))
        return found

    def create(self, table: str, entity: Entity) -> str:
        path = f"{self.root}/{table}"
        return self.send("POST", path, _JSON | _NO_ECHO, body=_written(entity)).headers["ETag"]

    def upsert(self, table: str, entity: Entity) -> None:
        """Write an entity, over one that may be there."""
        path = self._place(table, entity["PartitionKey"], entity["RowKey"])
        self.send("PUT", path, _JSON | _NO_ECHO, body=_written(entity))

    def delete(self, table: str, partition: str, row: str, version: str = "*") -> None:
        path = self._place(table, partition, row)
        self.send("DELETE", path, _JSON | {"If-Match": version})

    def create_table(self, table: str) -> None:
        body = _written({"TableName": table})
        self.send("POST", f"{self.root}/Tables", _JSON | _NO_ECHO, body=body)

    # ── transactions ────────────────────────────────────────────────────────────────────────

    def deleting(self, table: str, partition: str, row: str, version: str) -> Operation:
        return "DELETE", self._place(table, partition, row), {"If-Match": version}, None

    def creating(self, table: str, entity: Entity) -> Operation:
        return "POST", f"{self.root}/{table}", _NO_ECHO, entity

    def replacing(self, table: str, entity: Entity, version: str) -> Operation:
        path = self._place(table, entity["PartitionKey"], entity["RowKey"])
        return "PUT", path, _NO_ECHO | {"If-Match": version}, entity

    def transact(self, operations: Sequence[Operation]) -> None:
        """Do all *operations*, of one partition, or nothing.

        Raises:
            HttpResponseError: Nothing was done, because of the first one.
            ServiceResponseError: The outcome is unknown.
        """
        outer, inner = f"batch_{uuid4()}", f"changeset_{uuid4()}"
        lines = [f"--{outer}", f"Content-Type: multipart/mixed; boundary={inner}", ""]
        for number, (method, path, headers, entity) in enumerate(operations):
            lines += _head(inner, number)
            lines += [f"{method} {self._base}{path} HTTP/1.1"]
            lines += [f"{name}: {value}" for name, value in {**_JSON, **headers}.items()]
            lines += ["", "" if entity is None else json.dumps(entity), ""]
        lines += [f"--{inner}--", f"--{outer}--", ""]
        kind = {"Content-Type": f"multipart/mixed; boundary={outer}"}
        body = "\r\n".join(lines).encode()
        answer = self.send("POST", f"{self.root}/$batch", _JSON | kind, body=body).body or b""
        statuses = [int(each) for each in _PART.findall(answer)]
        for status in statuses:
            if status >= 300:
                raise refused(status, _code_in(answer))
        if len(statuses) != len(operations):
            raise ServiceResponseError("an answer that does not cover every request")

    def _place(self, table: str, partition: str, row: str) -> str:
        keys = f"PartitionKey={_quoted(partition)},RowKey={_quoted(row)}"
        return f"{self.root}/{table}({keys})"


class Blobs(_Service):
    """Blobs of a container: what is asked of each of many timeouts."""

    version = "2020-10-02"

    def authorization(
        self,
        key: Key,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> str:
        size = headers.get("Content-Length", "0")
        told = [method, "", "", "" if size == "0" else size, "", headers.get("Content-Type", "")]
        told += ["", "", headers.get("If-Match", ""), "", "", ""]
        theirs = sorted((name.lower(), name) for name in headers if name.startswith("x-ms-"))
        told += [f"{lower}:{headers[name]}" for lower, name in theirs]
        told += [f"/{key.account}{path}", *(f"{name}:{query[name]}" for name in sorted(query))]
        return f"SharedKey {key.account}:{key.sign(chr(10).join(told))}"

    def read(self, name: str, *, most: int) -> Answer:
        """Return a blob, whole; one of more than *most* bytes without its body."""
        return self.send("GET", self._place(name), {}, most=most)

    def delete(self, named: Sequence[tuple[str, str]]) -> Sequence[tuple[int, str | None]]:
        boundary = f"batch_{uuid4()}"
        lines = list[str]()
        for number, (name, version) in enumerate(named):
            path = self._place(name)
            headers = {
                "x-ms-date": formatdate(usegmt=True),
                "x-ms-delete-snapshots": "include",
                "If-Match": version,
                "Content-Length": "0",
            }
            if self._key is not None:
                headers["Authorization"] = self.authorization(
                    self._key, "DELETE", path, {}, headers
                )
            lines += _head(boundary, number)
            lines += [f"DELETE {path}{f'?{self._sas}' if self._sas else ''} HTTP/1.1"]
            lines += [*(f"{key}: {value}" for key, value in headers.items()), "", ""]
        lines += [f"--{boundary}--", ""]
        answer = self.send(
            "POST",
            self.root,
            {"Content-Type": f"multipart/mixed; boundary={boundary}"},
            query={"restype": "container", "comp": "batch"},
            body="\r\n".join(lines).encode(),
        )
        found = _PART.split(answer.body or b"")[1:]
        parts = zip(found[::2], found[1::2], strict=True)
        return [(int(status), _code_in(part)) for status, part in parts]

    def _place(self, name: str) -> str:
        return f"{self.root}/{quote(name, safe='/~')}"


def refused(status: int, code: str | None) -> HttpResponseError:
    kind = ResourceNotFoundError if status == GONE else HttpResponseError
    error: HttpResponseError = kind(code or f"HTTP {status}")
    error.status_code = status
    error.error_code = code  # type: ignore[attr-defined]  # as Azure's clients have it
    return error


def _pool(base: str, connections: int) -> urllib3.PoolManager:
    """Return a pool that knows proxies and certificates as ``requests`` does."""
    given = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    trusted = {
        "cert_reqs": "CERT_REQUIRED",
        "ca_certs": given or requests.utils.DEFAULT_CA_BUNDLE_PATH,
    }
    options: dict[str, Any] = {"maxsize": connections}
    if base.startswith("https:"):
        options |= trusted
    proxy = requests.utils.select_proxy(base, requests.utils.get_environ_proxies(base))
    if proxy is None:
        return urllib3.PoolManager(**options)
    found: urllib3.PoolManager = HTTPAdapter(pool_maxsize=connections).proxy_manager_for(
        proxy, **(trusted if base.startswith("https:") else {})
    )
    return found


def _read(answer: Answer) -> Any:
    try:
        return json.loads(answer.body or b"")
    except ValueError as exc:
        raise ServiceResponseError("an answer that is not JSON; is this Azure Storage?") from exc


def _written(entity: Entity) -> bytes:
    return json.dumps(entity).encode()


def _code_of(answer: Answer) -> str | None:
    """Return Azure's own code of an answer; None: it has none, it may be a proxy's."""
    return answer.headers.get("x-ms-error-code") or _code_in(answer.body or b"")


def _code_in(text: bytes) -> str | None:
    found = _CODE.search(text)
    return None if found is None else found[1].decode()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(key: str) -> str:
    return "'" + quote(key.replace("'", "''"), safe="") + "'"


def _head(boundary: str, number: int) -> list[str]:
    """Return the lines with which one request of many begins."""
    return [
        f"--{boundary}",
        "Content-Type: application/http",
        "Content-Transfer-Encoding: binary",
        f"Content-ID: {number}",
        "",
    ]
