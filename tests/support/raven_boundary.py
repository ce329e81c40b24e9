"""RavenDB's HTTP boundary with everything a network can do to it, whatever answers behind it.

A request may get an error instead of an answer, its answer may be lost after the work, or the
work may be done much later, when somebody else was sooner. ``tests/support/ravendb`` answers from
memory and is strict, ``tests/support/raven_real`` asks a RavenDB.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_proxy import Answer, HttpServer, Request

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


def json_answer(status: int, told: Any) -> Answer:
    """Return *told* as an answer; None: without a body."""
    body = b"" if told is None else json.dumps(told).encode()
    return Answer(status=status, headers=_JSON, body=body)


_JSON = {"Content-Type": "application/json; charset=utf-8"}


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
    done: threading.Event = field(default_factory=threading.Event)


class Boundary(HttpServer):
    """What adapters connect to; ``family`` is ``3.5`` or ``4``."""

    def __init__(self, family: str) -> None:
        """Listen."""
        self.family = family
        self.seen: list[Request] = []
        self.violations: list[str] = []
        """Requests that no adapter should ever send, with what is wrong about them."""
        self.plans: list[Plan] = []
        self._planned: list[Plan] = []
        self._lock = threading.RLock()
        super().__init__()

    def __exit__(self, *_: object) -> None:
        for plan in self._planned:
            if plan.wait_for is not None:
                plan.wait_for.set()
        super().__exit__()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

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

    def try_remove(self, id_: str) -> bool:
        """Remove a timeout as a timeout manager does that is about to send it."""
        raise NotImplementedError

    def due(self, owner: str) -> list[str]:
        """Return the ids of an endpoint's timeouts, soonest first."""
        found = self._with("OwningTimeoutManager", owner)
        return sorted(found, key=lambda id_: str(found[id_]["Time"]))

    def peek(self, id_: str) -> bool:
        """Return whether a timeout is there."""
        return self.content(id_) is not None

    def remove_by_saga(self, saga: str) -> list[str]:
        """Remove all timeouts of a saga, whoever owns them; return their ids."""
        return [each for each in self._with("SagaId", saga) if self.try_remove(each)]

    def _with(self, field_: str, value: str) -> dict[str, dict[str, Any]]:
        found = self.documents.values()
        return {each.id: each.content for each in found if each.content.get(field_) == value}

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
    def watched(self) -> Iterator[list[Request]]:
        """Collect the requests of a block."""
        began, mine = len(self.seen), list[Request]()
        yield mine
        mine += self.seen[began:]

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def answer(self, request: Request) -> Answer | None:
        """Let happen what was planned for such a request, once, or do what is asked for."""
        self.seen.append(request)
        if request.raw and request.headers.get("Content-Type") != "application/json":
            self.violations.append(f"{request.line}: no content type")
        with self._lock:
            plan = next((each for each in self.plans if each.where in request.target), None)
            self.plans = [each for each in self.plans if each is not plan]
        if plan is None:
            return self.do(request)
        if plan.status:
            return json_answer(plan.status, {"Type": "Raven.Client.Exceptions.SomeException"})
        if plan.wait_for is not None:
            request.cut()
            plan.wait_for.wait()
        answer = self.do(request)
        plan.done.set()
        if plan.instead is not None:
            answer = Answer(status=200, headers=_JSON, body=plan.instead)
        return None if plan.lose else answer

    def do(self, request: Request) -> Answer:
        """Do what is asked for."""
        raise NotImplementedError
