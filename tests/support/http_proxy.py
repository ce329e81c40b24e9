"""An HTTP proxy before a server: it refuses what a test wants refused, and passes the rest on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client is told, by the server or instead of it."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Instead = Callable[[Request], Answer | None]
"""Answers a request; None: the server shall."""
Edit = Callable[[Request, Answer], Answer]
"""Changes what the server answered."""


class HttpProxy:
    """Passes a loopback port on to another one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.instead: Instead = lambda _request: None
        self.edit: Edit = lambda _request, answer: answer
        self.seen: Counter[tuple[str, int]] = Counter()
        """How often each method was answered with each status."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.passing = self._pass
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _pass(self, request: Request, headers: dict[str, str]) -> Answer:
        answer = self.instead(request)
        if answer is None:
            answer = self.edit(request, self._ask(request, headers))
        self.seen[request.method, answer.status] += 1
        return answer

    def _ask(self, request: Request, headers: dict[str, str]) -> Answer:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(request.method, request.path, request.body, headers)
            found = connection.getresponse()
            kept = {k: v for k, v in found.getheaders() if k.lower() not in _HOP}
            return Answer(status=found.status, headers=kept, body=found.read())
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    passing: Callable[[Request, dict[str, str]], Answer]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection for each request: none is left open

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        server: Any = self.server
        request = Request(method=self.command, path=self.path, body=body)
        answer = server.passing(request, headers)
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
