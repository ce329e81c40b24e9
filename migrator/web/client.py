"""The client of a running daemon's control socket; ``server`` is the other end.

Rules of this file: the outcome of a command is reported as known: done, refused, not begun, or
unknown; no request is repeated automatically.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Collection
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from migrator.errors import ConfigError, DaemonUnavailable

if TYPE_CHECKING:  # imported by those who give a command: who only asks waits for none of it
    from migrator.status.document import DaemonDocument, StatusDocument
    from migrator.web.control import Answer, Command

_TIMEOUT_S: Final = 25.0
"""Longer than the daemon lets a command wait, so that the daemon reports the timeout."""
_CONNECT_S: Final = 5.0
_OK, _BAD_REQUEST, _CONFLICT = 200, 400, 409


class DaemonClient:
    """A connection to one daemon for each request."""

    def __init__(
        self,
        path: Path,
        *,
        timeout_s: float = _TIMEOUT_S,
        peers: Collection[int] | None = None,
    ) -> None:
        self._peers = peers
        self._path = path
        self._timeout_s = timeout_s

    def status(self) -> DaemonDocument:
        """Return the document ``migrator/daemon/1``.

        Raises:
            DaemonUnavailable: No daemon answers.
        """
        return cast("DaemonDocument", self._asked("GET", "/status", "migrator/daemon/1"))

    def ledger(self, place: str) -> StatusDocument:
        """Return the document ``migrator/status/1`` of the ledger at *place*.

        Raises:
            DaemonUnavailable: No daemon answers, or it has another ledger, or cannot read it.
        """
        found = self._asked("GET", f"/ledger?place={place}", "migrator/status/1")
        return cast("StatusDocument", found)

    def give(self, command: Command, who: str | None) -> Answer:
        """Return what came of *command*, of which the daemon is told *who* gives it.

        Raises:
            DaemonUnavailable: No daemon answers; the text says whether it may have got the command.
            ConfigError: The daemon does not know such a command.
        """
        from migrator.web.control import Answer, build_order

        body = json.dumps(build_order(command, who)).encode()
        found = self._asked("POST", "/control", "migrator/control/1", body)
        return Answer(is_done=bool(found["is_done"]), text=str(found["text"]))

    def _asked(
        self, method: str, path: str, schema: str, body: bytes | None = None
    ) -> dict[str, Any]:
        headers = {} if body is None else {"content-type": "application/json"}
        with closing(HTTPConnection("daemon")) as connection:
            connection.sock = line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                line.settimeout(_CONNECT_S)
                line.connect(str(self._path))
            except OSError as exc:
                raise self._not_connected(exc) from exc
            if self._peers is not None and (user := peer_of(line)) not in self._peers:
                raise DaemonUnavailable(
                    f"the process that listens on {self._path} is of user {user}, and not this "
                    "user's, root's or the service's: name the socket with --socket if you trust "
                    "it; nothing was sent"
                )
            line.settimeout(self._timeout_s)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, HTTPException) as exc:
                raise DaemonUnavailable(
                    f"the daemon at {self._path} was asked and did not answer ({_why(exc)}): the "
                    "command may have been carried out; it is safe to repeat it"
                ) from exc
        if answer.status in (_OK, _CONFLICT):
            return self._document(text, schema)
        error = self._document(text, "migrator/error/1").get("error")
        if answer.status == _BAD_REQUEST:
            raise ConfigError(f"the daemon did not understand: {error}; nothing was done")
        raise DaemonUnavailable(f"the daemon at {self._path} says: {error}")

    def _not_connected(self, exc: OSError) -> DaemonUnavailable:
        if isinstance(exc, PermissionError):
            return DaemonUnavailable(
                f"this user may not open {self._path}: only the daemon's user and group may; "
                "nothing was sent"
            )
        return DaemonUnavailable(
            f"no daemon listens on {self._path} ({_why(exc)}): is `migrator run` running, with "
            "the same web.socket? `migrator status` shows what the ledger knows; nothing was sent"
        )

    def _document(self, text: bytes, schema: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("schema") != schema:
            raise DaemonUnavailable(
                f"the process that listens on {self._path} does not answer like this version of "
                "migrator"
            )
        return found


def peer_of(line: socket.socket) -> int:
    """Return the user whose process listens at the other end, as the kernel knows it."""
    size = struct.calcsize("iII")
    _, user, _ = struct.unpack("iII", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(user)


def _why(exc: Exception) -> str:
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    return text or type(exc).__name__
