"""Asking a running daemon over its control socket; the other end is ``serving``.

Rules of this file: what became of a command is told as it is known: done, refused, not begun, or
nobody knows; nothing is asked twice by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from migrator.domain.control import Answer
from migrator.errors import ConfigError, DaemonUnavailable
from migrator.web.commands import Order, build_order

_PATIENCE_S: Final = 25.0
"""Longer than the daemon lets a command wait, so that it is the daemon that says so."""
_CONNECT_S: Final = 5.0


class DaemonClient:
    """One daemon, as the command line talks to it."""

    def __init__(self, path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        """Nothing is asked yet."""
        self._path = path
        self._timeout = httpx.Timeout(patience_s, connect=_CONNECT_S)

    def status(self) -> dict[str, Any]:
        """Return the document ``migrator/daemon/1``.

        Raises:
            DaemonUnavailable: Nobody answers.
        """
        with self._asked("GET", "/status") as answer:
            if answer.status_code == httpx.codes.OK:
                return self._document(answer, "migrator/daemon/1")
            raise self._trouble(answer)

    def give(self, order: Order) -> Answer:
        """Return what came of *order*.

        Raises:
            DaemonUnavailable: Nobody answers; says whether the daemon may have got it.
            ConfigError: The daemon does not know such a command.
        """
        with self._asked("POST", "/control", build_order(order)) as answer:
            if answer.status_code in (httpx.codes.OK, httpx.codes.CONFLICT):
                found = self._document(answer, "migrator/control/1")
                return Answer(is_done=bool(found["is_done"]), text=str(found["text"]))
            raise self._trouble(answer)

    @contextmanager
    def _asked(
        self, method: str, path: str, document: object | None = None
    ) -> Iterator[httpx.Response]:
        transport = httpx.HTTPTransport(uds=str(self._path), trust_env=False)
        try:
            with httpx.Client(
                transport=transport, base_url="http://daemon", timeout=self._timeout
            ) as client:
                yield client.request(method, path, json=document)
        except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
            raise self._nobody(exc) from exc
        except httpx.HTTPError as exc:
            raise DaemonUnavailable(
                f"the daemon at {self._path} was asked and did not answer ({_why(exc)}): what was "
                "asked may have been done; asking again is safe"
            ) from exc

    def _nobody(self, exc: Exception) -> DaemonUnavailable:
        if _is_forbidden(exc):
            return DaemonUnavailable(
                f"you may not open {self._path}: it is for the daemon's user and group; nothing "
                "was asked"
            )
        return DaemonUnavailable(
            f"no daemon listens on {self._path} ({_why(exc)}): is `migrator run` running, with "
            "the same web.socket? `migrator status` shows what the ledger knows; nothing was asked"
        )

    def _document(self, answer: httpx.Response, schema: str) -> dict[str, Any]:
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("schema") != schema:
            raise DaemonUnavailable(
                f"whoever listens on {self._path} does not answer as this version of migrator does"
            )
        return found

    def _trouble(self, answer: httpx.Response) -> ConfigError | DaemonUnavailable:
        text = f"{self._document(answer, 'migrator/error/1').get('error')}"
        if answer.status_code == httpx.codes.BAD_REQUEST:
            return ConfigError(f"the daemon did not understand: {text}; nothing was done")
        return DaemonUnavailable(f"the daemon at {self._path} says: {text}")


def _is_forbidden(exc: BaseException | None) -> bool:
    while exc is not None:
        if isinstance(exc, PermissionError):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


def _why(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
