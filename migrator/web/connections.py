"""Connections of the HTTP server: an idle client makes room for one that sends a request.

Rules of this file: the headers of every request, the first and any later one, have a deadline; so
has a client that does not read its answer. At the limit, of one address or of all, the connection
that has waited longest for a request is closed for the one that comes. Where none waits, a few
more are let in, of which only ``/live`` and ``/ready`` are answered. Source: docs/control.md.
"""

from __future__ import annotations

import asyncio
import pwd
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST_CONNECTIONS: Final = 64
"""For each way in."""
MOST_OF_ADDRESS: Final = 32
"""For each address; a proxy has one."""
_RESERVED: Final = 16
"""In addition, for health checks."""
IDLE_S: Final = 15
"""The headers of a request, and any part of an answer, have so long."""
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred``: process, user, group; unix(7)."""


class Crowd:
    """The connections of one way in."""

    def __init__(self) -> None:
        self._all: set[Connection] = set()

    def is_over(self, address: str | None) -> bool:
        """Return whether *address*, or all together, have more connections than they may."""
        return len(self._of(address)) > MOST_OF_ADDRESS or len(self._all) > MOST_CONNECTIONS

    def enter(self, new: Connection) -> None:
        """Let *new* in, for which another one may have to go; or drop it."""
        own = self._of(new.address)
        if len(own) >= MOST_OF_ADDRESS:
            self._make_room(own)
        if len(self._all) >= MOST_CONNECTIONS:
            self._make_room([*self._all])
        if (
            len(self._of(new.address)) >= MOST_OF_ADDRESS + _RESERVED
            or len(self._all) >= MOST_CONNECTIONS + _RESERVED
        ):
            new.transport.abort()
        else:
            self._all.add(new)

    def trim(self, address: str | None) -> None:
        """Close those that have waited longest, while there are more than there may be.

        They were let in while others were at work.
        """
        for each, most in ((self._of(address), MOST_OF_ADDRESS), ([*self._all], MOST_CONNECTIONS)):
            if len(each) > most:
                self._make_room(each)

    def leave(self, connection: Connection) -> None:
        """Forget *connection*."""
        self._all.discard(connection)

    def _of(self, address: str | None) -> Sequence[Connection]:
        return [each for each in self._all if address is not None and each.address == address]

    def _make_room(self, connections: Sequence[Connection]) -> None:
        """Close the one that has waited longest for a request, if one waits."""
        waiting = [each for each in connections if each.is_waiting]
        if waiting:
            longest = min(waiting, key=lambda each: each.waits_since_s)
            self._all.discard(longest)
            longest.transport.abort()


class Connection(H11Protocol):
    """One connection, which knows who is at the other end of a socket file."""

    def __init__(self, crowd: Crowd, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._crowd = crowd
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self.address: str | None = None
        """Whence it comes; None: over the socket file."""
        self.waits_since_s = 0.0
        """When it was made, or its last answer was complete; by the loop's clock."""

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered, and no answer is still being sent."""
        answered: RequestResponseCycle | None = self.cycle
        is_answered = answered is None or answered.response_complete
        return is_answered and not self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the class above
        """Begin, if there is room."""
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None and found.family == socket.AF_UNIX:
            self.client = _peer(found)
        elif self.client is not None:
            self.address = self.client[0]
        self._await_request()
        self._crowd.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._crowd.leave(self)
        for timer in (self._deadline, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; a request that is being answered is answered no further.

        What is refused then is its body, and there is one answer to a request.
        """
        is_answered = self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if is_answered:
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Await the next request, unless it is there already."""
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._await_request()
            self._crowd.trim(self.address)

    def pause_writing(self) -> None:
        """Wait for the client to read its answer, for a while."""
        super().pause_writing()
        self._reading = self.loop.call_later(IDLE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def _await_request(self) -> None:
        self.waits_since_s = self.loop.time()
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(IDLE_S, self._end_unused, self.cycle)

    def _end_unused(self, answered: object) -> None:
        """End it unless a request has begun since the one that was *answered*."""
        if self.cycle is answered and not self.transport.is_closing():
            self.transport.abort()


def _peer(connected: socket.socket) -> tuple[str, int]:
    """Return the name and the process of the peer, as the kernel has them."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = "unknown"
    return f"{name}, uid {user}", process
