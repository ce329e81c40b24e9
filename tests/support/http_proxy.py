"""HTTP servers of tests: one that a test answers by itself, and one that passes requests on."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asked for."""

    method: str
    target: str
    """Path and query, not decoded."""
    raw: bytes
    headers: Mapping[str, str]
    cut: Callable[[], None]
    """Cuts the connection; the request may be worked on all the same."""

    @property
    def body(self) -> Any:
        """The body as JSON; None: there is none."""
        return json.loads(self.raw) if self.raw else None

    @property
    def line(self) -> str:
        """Method and target."""
        return f"{self.method} {self.target}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client is told."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def passed_on(request: Request, port: int, target: str | None = None) -> Answer:
    """Return what another server on this machine answers."""
    headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(request.method, target or request.target, request.raw or None, headers)
        found = connection.getresponse()
        kept = {k: v for k, v in found.getheaders() if k.lower() not in _HOP}
        return Answer(status=found.status, headers=kept, body=found.read())
    finally:
        connection.close()


class HttpServer:
    """Answers on a free port of the loopback interface."""

    keeps_alive: ClassVar[bool] = True
    """Whether a connection is there for more than one request: then clients have to close it."""

    def __init__(self) -> None:
        server = self

        class Handler(_Handler):
            answered_by = server

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def answer(self, request: Request) -> Answer | None:
        """Return what a client is told; None: its connection is cut."""
        raise NotImplementedError


class HttpProxy(HttpServer):
    """Passes requests on to another port; refuses or changes what a test wants."""

    keeps_alive = False

    def __init__(self, port: int) -> None:
        self._port = port
        self.instead: Callable[[Request], Answer | None] = lambda _request: None
        """Answers a request; None: the server shall."""
        self.edit: Callable[[Request, Answer], Answer] = lambda _request, answer: answer
        self.seen: Counter[tuple[str, int]] = Counter()
        """How often each method was answered with each status."""
        super().__init__()

    def answer(self, request: Request) -> Answer:
        """See ``HttpServer``."""
        answer = self.instead(request) or self.edit(request, passed_on(request, self._port))
        self.seen[request.method, answer.status] += 1
        return answer


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: that a client is refused is what a test wants to see."""


class _Handler(BaseHTTPRequestHandler):
    answered_by: HttpServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for an answer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        request = Request(
            method=self.command,
            target=self.path,
            raw=self.rfile.read(int(self.headers["Content-Length"] or 0)),
            headers=dict(self.headers),
            cut=self._cut,
        )
        answer = self.answered_by.answer(request)
        if answer is None or self.close_connection:
            self.close_connection = True
            return
        try:
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            if not self.answered_by.keeps_alive:
                self.send_header("Connection", "close")  # which ends it here, too
            self.end_headers()
            self.wfile.write(answer.body)
        except OSError:
            self.close_connection = True  # the client waited no longer

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
