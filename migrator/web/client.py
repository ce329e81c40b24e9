"""Asking a running daemon over its control socket; the other end is ``serving``.

Rules of this file: what became of a command is told as it is known: done, refused, not begun, or
nobody knows; nothing is asked twice by itself.
"""

from __future__ import annotations

import json
import socket
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from migrator.errors import ConfigError, DaemonUnavailable
from migrator.web.control import Answer, Order, build_order

_PATIENCE_S: Final = 25.0
"""Longer than the daemon lets a command wait, so that it is the daemon that says so."""
_CONNECT_S: Final = 5.0
_OK, _BAD_REQUEST, _CONFLICT = 200, 400, 409


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes


class DaemonClient:
    """One daemon, as the command line talks to it."""

    def __init__(self, path: Path, *, patience_s: float = _PATIENCE_S) -> None:
        """Nothing is asked yet."""
        self._path = path
        self._patience_s = patience_s

    def status(self) -> dict[str, Any]:
        """Return the document ``migrator/daemon/1``.

        Raises:
            DaemonUnavailable: Nobody answers.
        """
        reply = self._asked("GET", "/status")
        if reply.status != _OK:
            raise self._trouble(reply)
        return self._document(reply, "migrator/daemon/1")

    def give(self, order: Order) -> Answer:
        """Return what came of *order*.

        Raises:
            DaemonUnavailable: Nobody answers; says whether the daemon may have got it.
            ConfigError: The daemon does not know such a command.
        """
        reply = self._asked("POST", "/control", json.dumps(build_order(order)).encode())
        if reply.status not in (_OK, _CONFLICT):
            raise self._trouble(reply)
        found = self._document(reply, "migrator/control/1")
        return Answer(is_done=bool(found["is_done"]), text=str(found["text"]))

    def _asked(self, method: str, path: str, body: bytes | None = None) -> _Reply:
        headers = {} if body is None else {"content-type": "application/json"}
        with closing(_UnixConnection(self._path, timeout_s=self._patience_s)) as connection:
            try:
                connection.connect()
            except OSError as exc:
                raise self._nobody(exc) from exc
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return _Reply(answer.status, answer.read())
            except (OSError, HTTPException) as exc:
                raise DaemonUnavailable(
                    f"the daemon at {self._path} was asked and did not answer ({_why(exc)}): what "
                    "was asked may have been done; asking again is safe"
                ) from exc

    def _nobody(self, exc: OSError) -> DaemonUnavailable:
        if isinstance(exc, PermissionError):
            return DaemonUnavailable(
                f"you may not open {self._path}: it is for the daemon's user and group; nothing "
                "was asked"
            )
        return DaemonUnavailable(
            f"no daemon listens on {self._path} ({_why(exc)}): is `migrator run` running, with "
            "the same web.socket? `migrator status` shows what the ledger knows; nothing was asked"
        )

    def _document(self, reply: _Reply, schema: str) -> dict[str, Any]:
        try:
            found = json.loads(reply.body)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("schema") != schema:
            raise DaemonUnavailable(
                f"whoever listens on {self._path} does not answer as this version of migrator does"
            )
        return found

    def _trouble(self, reply: _Reply) -> ConfigError | DaemonUnavailable:
        text = f"{self._document(reply, 'migrator/error/1').get('error')}"
        if reply.status == _BAD_REQUEST:
            return ConfigError(f"the daemon did not understand: {text}; nothing was done")
        return DaemonUnavailable(f"the daemon at {self._path} says: {text}")


class _UnixConnection(HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        super().__init__("daemon", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect, or leave nothing open."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(_CONNECT_S)
            made.connect(str(self._path))
            made.settimeout(self._timeout_s)
        except BaseException:
            made.close()
            raise
        self.sock = made


def _why(exc: Exception) -> str:
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return text or type(exc).__name__
