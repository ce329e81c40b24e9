"""A small server that answers RavenDB's documented requests, and refuses all others.

This is the HTTP boundary and no RavenDB: it has the requests, conditions and answers of reference
``legacy-stores.md`` 3.3, written down a second time, so that the adapter's requests are compared
with them. It keeps documents in memory, does a batch as one transaction, and can fail as a
network does: lose an answer after the work, answer an error, or do the work much later.
"""

from __future__ import annotations

import copy
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

DATABASE = "Timeouts"
_EMPTY_ETAG = "00000000-0000-0000-0000-000000000000"
_REFUSED_IN_KEYS = set("()<>@,;:\\/[]?={}\t ")
_SERVERS_OWN = {"@id", "@change-vector", "@last-modified", "@etag"}


class Undocumented(Exception):
    """The request is none that the reference knows."""


class ConditionFailed(Exception):
    """A version is not what the request expected."""


@dataclass
class Stored:
    """One document."""

    id: str
    content: dict[str, Any]
    metadata: dict[str, Any]
    version: str


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    target: str
    """Path and query, not decoded."""
    body: Any

    @property
    def line(self) -> str:
        """Method and target."""
        return f"{self.method} {self.target}"


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
    """Do the work only once this is set."""
    before: Callable[[], None] | None = None
    """Called before the work, as if somebody were sooner."""
    done: threading.Event = field(default_factory=threading.Event)


class StrictRaven:
    """The server; ``family`` is ``3.5`` or ``4``."""

    def __init__(self, family: str, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a free port of the loopback interface; with *tls*, only over that."""
        self.family = family
        self.documents: dict[str, Stored] = {}
        """By id in lower case, as the server compares ids."""
        self.seen: list[Seen] = []
        self.violations: list[str] = []
        self.plans: list[Plan] = []
        self.page_cap = 1024
        self._planned: list[Plan] = []
        self._count = 0
        self._lock = threading.RLock()
        owner = self

        class Handler(_Handler):
            raven = owner

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

    # ── for tests, and for the simulated timeout manager ────────────────────────────────────

    def store(self, id_: str, content: Mapping[str, Any], **metadata: Any) -> str:
        """Store a document; return its version."""
        with self._lock:
            self._put(id_, dict(content), dict(metadata))
            return self.documents[id_.lower()].version

    def remove(self, id_: str) -> None:
        """Remove a document."""
        with self._lock:
            self.documents.pop(id_.lower(), None)

    def content(self, id_: str) -> dict[str, Any] | None:
        """Return a document's content."""
        with self._lock:
            found = self.documents.get(id_.lower())
            return None if found is None else copy.deepcopy(found.content)

    def ids(self, prefix: str = "") -> list[str]:
        """Return the ids that start with *prefix*, in order."""
        with self._lock:
            return [
                each.id for each in self._sorted() if each.id.lower().startswith(prefix.lower())
            ]

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

    def answer(self, seen: Seen) -> tuple[int, Any]:
        """Return status and body for a request."""
        with self._lock:
            before = dict(self.documents)  # documents are replaced, never changed
            try:
                return self._answered(seen)
            except ConditionFailed as exc:
                self.documents = before
                kind = "Raven.Client.Exceptions.ConcurrencyException"
                return 409, {"Type": kind, "Error": str(exc)}
            except (Undocumented, KeyError, TypeError, AttributeError) as exc:
                self.documents = before
                self.violations.append(f"{seen.line}: {exc!r}")
                return 400, {"Error": repr(exc)}

    def _answered(self, seen: Seen) -> tuple[int, Any]:
        parts = urlsplit(seen.target)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        path = unquote(parts.path)
        if seen.line == "GET /build/version":
            version = "3.5.9 / 5f2e3a /" if self.family == "3.5" else "5.4"
            return 200, {"ProductVersion": version, "BuildVersion": "35289"}
        base = f"/databases/{DATABASE}"
        if not path.startswith(base):
            return 404, {"Error": "no such database"}
        match seen.method, path.removeprefix(base):
            case "GET", "/docs" if "startsWith" in dict(query):
                return 200, self._page(dict(query))
            case "GET", "/docs" if self.family == "4":
                return self._by_id(seen.target, query)
            case "GET", "/queries" if self.family == "4":
                return 200, self._collection(dict(query))
            case "POST", "/queries" if self.family == "3.5":
                return 200, {"Results": [self._told(each) for each in seen.body], "Includes": []}
            case "POST", "/bulk_docs":
                return self._batch(seen.body)
        raise Undocumented("no such request")

    def _page(self, query: dict[str, str]) -> Any:
        behind = "skipAfter" if self.family == "3.5" else "startAfter"
        if not set(query) <= {"startsWith", "start", "pageSize", behind}:
            raise Undocumented("a parameter")
        if not query["startsWith"]:
            raise Undocumented("an empty prefix")
        size = min(int(query["pageSize"]), self.page_cap)
        after = query.get(behind, "").lower()
        found = [
            self._told(each.id)
            for each in self._sorted()
            if each.id.lower().startswith(query["startsWith"].lower()) and each.id.lower() > after
        ][int(query["start"]) :][:size]
        return found if self.family == "3.5" else {"Results": found}

    def _collection(self, query: dict[str, str]) -> Any:
        rql = re.fullmatch(r"from '(\w+)'", query["query"])
        if rql is None or set(query) != {"query", "start", "pageSize"}:
            raise Undocumented("a query")
        name = rql[1].lower()
        found = [d for d in self.documents.values() if _collection_of(d.metadata) == name]
        start = int(query["start"])
        some = [self._told(d.id) for d in found[start : start + int(query["pageSize"])]]
        return {"Results": some, "TotalResults": len(found), "IsStale": False, "ResultEtag": 1}

    def _by_id(self, target: str, query: list[tuple[str, str]]) -> tuple[int, Any]:
        if {key for key, _ in query} != {"id"} or len(self.url + target) > 2000:
            raise Undocumented("parameters, or too long a URL")
        found = [self._told(id_) for _, id_ in query]
        if found == [None]:
            return 404, None
        return 200, {"Results": found, "Includes": {}}

    def _told(self, id_: str) -> Any:
        stored = self.documents.get(id_.lower())
        if stored is None:
            return None
        own = (
            {"@id": stored.id, "@etag": stored.version, "Last-Modified": "2026-11-01T00:00:00Z"}
            if self.family == "3.5"
            else {
                "@id": stored.id,
                "@change-vector": stored.version,
                "@last-modified": "2026-11-01T00:00:00.0000000Z",
            }
        )
        return {**stored.content, "@metadata": {**stored.metadata, **own}}

    def _batch(self, body: Any) -> tuple[int, Any]:
        if self.family == "3.5":
            for command in body:
                self._command_35(command)
            return 200, [{"Method": command["Method"], "Key": command["Key"]} for command in body]
        if set(body) != {"Commands"}:
            raise Undocumented("a body without commands alone")
        for command in body["Commands"]:
            self._command_4(command)
        return 201, {"Results": [{"Type": command["Type"]} for command in body["Commands"]]}

    def _command_4(self, command: dict[str, Any]) -> None:
        id_, expected = command["Id"], command["ChangeVector"]
        stored = self.documents.get(id_.lower())
        if command["Type"] == "DELETE":
            if set(command) != {"Id", "ChangeVector", "Type"}:
                raise Undocumented("a field of DELETE")
            if expected is not None and (stored is None or stored.version != expected):
                raise ConditionFailed(id_)
            self.documents.pop(id_.lower(), None)
            return
        if command["Type"] != "PUT" or set(command) != {"Id", "ChangeVector", "Document", "Type"}:
            raise Undocumented("a command")
        if expected is not None and expected != ("" if stored is None else stored.version):
            raise ConditionFailed(id_)
        content = dict(command["Document"])
        metadata = content.pop("@metadata")
        if _SERVERS_OWN & set(metadata):
            raise Undocumented("metadata that is the server's own")
        self._put(id_, content, metadata)

    def _command_35(self, command: dict[str, Any]) -> None:
        id_, expected = command["Key"], command.get("Etag")
        stored = self.documents.get(id_.lower())
        if command["Method"] == "DELETE":
            if not {"Key", "Method"} <= set(command) <= {"Key", "Method", "Etag"}:
                raise Undocumented("a field of DELETE")
            if stored is not None and expected not in (None, stored.version):
                raise ConditionFailed(id_)
            self.documents.pop(id_.lower(), None)  # of one that is gone: no conflict, ETag or not
            return
        needed = {"Key", "Method", "Document", "Metadata"}
        if command["Method"] != "PUT" or not needed <= set(command) <= needed | {"Etag"}:
            raise Undocumented("a command")
        if any(_REFUSED_IN_KEYS & set(key) for key in command["Metadata"]):
            raise Undocumented("metadata that is no HTTP header")
        if expected is not None and expected != (stored.version if stored else _EMPTY_ETAG):
            raise ConditionFailed(id_)
        self._put(id_, dict(command["Document"]), dict(command["Metadata"]))

    def _put(self, id_: str, content: dict[str, Any], metadata: dict[str, Any]) -> None:
        self._count += 1
        version = (
            f"01000000-0000-0001-0000-{self._count:012X}"
            if self.family == "3.5"
            else f"A:{self._count}-pIhs+72n6USJoZ5XIvTHvQ, B:7-urx5nDNUT06FCpCon1wCyA"
        )
        self.documents[id_.lower()] = Stored(id_, content, metadata, version)

    def _sorted(self) -> list[Stored]:
        return [self.documents[key] for key in sorted(self.documents)]


def _collection_of(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("@collection")).lower()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: that a client is refused is what a test wants to see."""


class _Handler(BaseHTTPRequestHandler):
    raven: StrictRaven
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
            self.raven.violations.append(f"{self.path}: no content type")
        self._serve(json.loads(raw))

    def _serve(self, body: Any) -> None:
        seen = Seen(self.command, self.path, body)
        self.raven.seen.append(seen)
        plan = self.raven.planned(self.path)
        if plan is not None and plan.status:
            self._answer(plan.status, {"Type": "Raven.Client.Exceptions.SomeException"})
            return
        if plan is not None and plan.wait_for is not None:
            plan.wait_for.wait()
        if plan is not None and plan.before is not None:
            plan.before()
        status, told = self.raven.answer(seen)
        if plan is not None:
            plan.done.set()
            if plan.lose:
                self.close_connection = True
                return
            if plan.instead is not None:
                self._write(200, plan.instead)
                return
        self._answer(status, told)

    def _answer(self, status: int, told: Any) -> None:
        self._write(status, b"" if told is None else json.dumps(told).encode())

    def _write(self, status: int, raw: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        except OSError:
            self.close_connection = True  # the client waited no longer

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""
