"""A TCP proxy between a client and its server that can pull the cable, at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Direction = Literal["to_server", "to_client"]
_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)  # linger on, for zero seconds: closing sends RST instead of FIN


@dataclass(eq=False)
class _Link:
    """One client, and its own connection to the server."""

    client: socket.socket
    server: socket.socket
    ended: threading.Event = field(default_factory=threading.Event)
    directions: int = 2
    """How many of them still flow."""

    def reset(self) -> None:
        """End both sides with RST, as a broken line would."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.close()

    def close(self) -> None:
        """Close both sides, and wake the threads that read from them."""
        self.ended.set()
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RD)
            side.close()


class Proxy:
    """Forward a loopback port to a server, until told otherwise.

    All orders hold for every connection through the proxy, and for later ones too. Cutting resets
    both sides: the client sees ``ConnectionResetError``, the server a client that vanished.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.RLock()
        self._links: set[_Link] = set()
        self._flowing = {"to_server": threading.Event(), "to_client": threading.Event()}
        self._budget: int | None = None
        self._cut_on_answer: Literal["before", "after"] | None = None
        self._skipping = 0
        self._asked = False
        self._refusing = False
        self._closed = False
        self.cuts = 0
        """How often connections were cut."""
        for flow in self._flowing.values():
            flow.set()
        threading.Thread(target=self._accept, name="proxy-accept", daemon=True).start()

    # --- where it is ------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port clients connect to, on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def url(self, url: str) -> str:
        """Return ``url`` with host and port replaced by the proxy's."""
        parts = urlsplit(url)
        login, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self.port}"))

    # --- orders -----------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset all open connections now; new ones are welcome."""
        with self._lock:
            links, self._links = self._links, set()
            self.cuts += bool(links)
        for link in links:
            link.reset()

    def lead_to(self, port: int) -> None:
        """Bring new connections to another server of this machine; open ones stay."""
        self._target = (self._target[0], port)

    def refuse(self) -> None:
        """Reset every new connection as soon as it is made; open ones stay."""
        self._refusing = True

    def stall(self, direction: Direction) -> None:
        """Go deaf: stop forwarding in a direction, but keep all connections open."""
        self._flowing[direction].clear()

    def resume(self) -> None:
        """Forward in both directions again, first of all what was held back."""
        for flow in self._flowing.values():
            flow.set()

    def cut_after_bytes(self, count: int) -> None:
        """Let exactly ``count`` more bytes through to the server, then cut."""
        with self._lock:
            self._budget = count

    def cut_before_answer(self, *, skipping: int = 0) -> None:
        """Cut when the server answers the client's next bytes; the client never sees the answer.

        With *skipping*, that many answers are passed on first, on whatever connections.
        """
        self._skipping = skipping
        self._on_answer("before")

    def cut_after_answer(self) -> None:
        """Cut right after the server's answer to the client's next bytes was passed on.

        "Answer" is what the server sends in one go; the rest of a longer one is lost.
        """
        self._on_answer("after")

    def close(self) -> None:
        """Cut everything and stop listening."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.resume()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the work ---------------------------------------------------------------------------

    def _on_answer(self, when: Literal["before", "after"]) -> None:
        with self._lock:
            self._asked = False
            self._cut_on_answer = when

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=5)
                server.settimeout(None)
            except OSError:
                server = socket.socket()
                _Link(client, server).reset()
                continue
            link = _Link(client, server)
            if self._refusing or self._closed:
                link.reset()
                continue
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._links.add(link)
            for flow in (
                (link, client, server, "to_server", self._toward_server),
                (link, server, client, "to_client", self._toward_client),
            ):
                threading.Thread(target=self._pump, args=flow, name="proxy", daemon=True).start()

    def _pump(
        self,
        link: _Link,
        source: socket.socket,
        target: socket.socket,
        direction: Direction,
        forward: Callable[[socket.socket, bytes], bool],
    ) -> None:
        broken = True
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flowing[direction].wait()
                if link.ended.is_set():
                    return
                if forward(target, data):
                    self.cut()
                    return
            self._flowing[direction].wait()
            target.shutdown(socket.SHUT_WR)  # a half-closed connection stays half-closed
            broken = False
        self._finish(link, broken=broken)

    def _finish(self, link: _Link, *, broken: bool) -> None:
        """One direction has ended; close the link with the second one, or at once if it broke."""
        with self._lock:
            link.directions -= 1
            if link.directions and not broken:
                return
            self._links.discard(link)
        if broken:
            link.reset()
        else:
            link.close()

    def _toward_server(self, server: socket.socket, data: bytes) -> bool:
        """Pass on what the client sent; tell whether the connection must be cut now."""
        with self._lock:
            allowed = len(data) if self._budget is None else min(self._budget, len(data))
            exhausted = self._budget is not None and allowed == self._budget
            if self._budget is not None:
                self._budget = None if exhausted else self._budget - allowed
            self._asked = True
        server.sendall(data[:allowed])
        return exhausted

    def _toward_client(self, client: socket.socket, data: bytes) -> bool:
        """Pass on what the server sent; tell whether the connection must be cut now."""
        with self._lock:
            cut = self._cut_on_answer if self._asked else None
            if cut and self._skipping:
                self._skipping -= 1
                self._asked, cut = False, None
            elif cut:
                self._cut_on_answer = None
        if cut != "before":
            client.sendall(data)
        return cut is not None
