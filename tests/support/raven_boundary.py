"""RavenDB's HTTP boundary with everything a network can do to it, whatever answers behind it.

A request may get an error instead of an answer, its answer may be lost after the work, or the
work may be done much later, when somebody else was sooner. ``tests/support/ravendb`` answers from
memory and is strict, ``tests/support/raven_real`` asks a RavenDB.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

DATABASE = "Timeouts"
"""What the database is called at the boundary."""


@dataclass
class Stored:
    """One document."""

    id: str
    content: dict[str, Any]
    metadata: dict[str, Any]
    """Without what the server writes itself."""
    version: str


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    target: str
    """Path and query, not decoded."""
    body: Any
    raw: bytes | None
    headers: Mapping[str, str]

    @property
    def line(self) -> str:
        """Method and target."""
        return f"{self.method} {self.target}"


@dataclass(frozen=True)
class Answer:
    """What goes back."""

    status: int
    raw: bytes
    encoding: str | None = None


def json_answer(status: int, told: Any) -> Answer:
    """Return *told* as an answer; None: without a body."""
    return Answer(status, b"" if told is None else json.dumps(told).encode())


@dataclass
class Plan:
    """What shall happen to the next request whose target holds *where*."""

    where: str
    status: int = 0
    """Answer this instead of doing anything."""
    instead: bytes | None = None
    """Do the work, then answer 200 with this."""
    lose: bool = False
    """Do the work, then cut the connection."""
    wait_for: threading.Event | None = None
    """Cut the connection, and do the work only once this is set."""
    before: Callable[[], None] | None = None
    """Called before the work, as if somebody were sooner."""
    done: threading.Event = field(default_factory=threading.Event)


class Boundary:
    """What adapters connect to; ``family`` is ``3.5`` or ``4``."""

    def __init__(self, family: str, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a free port of the loopback interface; with *tls*, only over that."""
        self.family = family
        self.seen: list[Seen] = []
        self.violations: list[str] = []
        """Requests that no adapter should ever send, with what is wrong about them."""
        self.plans: list[Plan] = []
        self._planned: list[Plan] = []
        self._lock = threading.RLock()
        owner = self

        class Handler(_Handler):
            boundary = owner

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for plan in self._planned:
            if plan.wait_for is not None:
                plan.wait_for.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def address(self) -> tuple[str, str]:
        """Server and database for a program that no plan is made for."""
        return self.url, DATABASE

    # ── for tests, and for the simulated timeout manager ────────────────────────────────────

    @property
    def documents(self) -> dict[str, Stored]:
        """All documents by their ids in lower case, as a server compares ids."""
        raise NotImplementedError

    def store(self, id_: str, content: Mapping[str, Any], **metadata: Any) -> None:
        """Store a document."""
        raise NotImplementedError

    def remove(self, id_: str) -> None:
        """Remove a document."""
        raise NotImplementedError

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Take time for many changes as for one: what a block stores or removes, its end does."""
        yield

    def content(self, id_: str) -> dict[str, Any] | None:
        """Return a document's content."""
        found = self.documents.get(id_.lower())
        return None if found is None else found.content

    def ids(self, prefix: str = "") -> list[str]:
        """Return the ids that start with *prefix*, in order."""
        documents = self.documents
        low = prefix.lower()
        return [documents[key].id for key in sorted(documents) if key.startswith(low)]

    def plan(self, where: str, **what: Any) -> Plan:
        """Let something happen to the next request whose target holds *where*."""
        plan = Plan(where, **what)
        with self._lock:
            self.plans.append(plan)
            self._planned.append(plan)
        return plan

    @contextmanager
    def watched(self) -> Iterator[list[Seen]]:
        """Collect the requests of a block."""
        began, mine = len(self.seen), list[Seen]()
        yield mine
        mine += self.seen[began:]

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def planned(self, target: str) -> Plan | None:
        """Return what was planned for a request, once."""
        with self._lock:
            for plan in self.plans:
                if plan.where in target:
                    self.plans.remove(plan)
                    return plan
        return None

    def answer(self, seen: Seen) -> Answer:
        """Do what is asked for."""
        raise NotImplementedError


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: that a client is refused is what a test wants to see."""


class _Handler(BaseHTTPRequestHandler):
    boundary: Boundary
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for an answer

    def do_GET(self) -> None:
        """Answer a question."""
        self._serve(None)

    def do_POST(self) -> None:
        """Answer a request with a body."""
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] != "application/json":
            self.boundary.violations.append(f"{self.path}: no content type")
        self._serve(raw)

    def _serve(self, raw: bytes | None) -> None:
        body = None if raw is None else json.loads(raw)
        seen = Seen(self.command, self.path, body, raw, dict(self.headers))
        self.boundary.seen.append(seen)
        plan = self.boundary.planned(self.path)
        if plan is not None and plan.status:
            self._write(json_answer(plan.status, {"Type": "Raven.Client.Exceptions.SomeException"}))
            return
        if plan is not None and plan.wait_for is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            plan.wait_for.wait()
        if plan is not None and plan.before is not None:
            plan.before()
        answer = self.boundary.answer(seen)
        if plan is not None:
            plan.done.set()
            if plan.lose:
                self.close_connection = True
                return
            if plan.instead is not None:
                answer = Answer(200, plan.instead)
        self._write(answer)

    def _write(self, answer: Answer) -> None:
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(answer.raw)))
            if answer.encoding:
                self.send_header("Content-Encoding", answer.encoding)
            self.end_headers()
            self.wfile.write(answer.raw)
        except OSError:
            self.close_connection = True  # the client waited no longer

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""
