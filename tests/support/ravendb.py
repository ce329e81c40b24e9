"""A small server that answers RavenDB's documented requests, and refuses all others.

It is no RavenDB: it has the requests, conditions and answers of reference ``legacy-stores.md``
3.3, written down a second time, so that the adapter's requests are compared with them. It keeps
documents in memory and does a batch as one transaction.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.http_proxy import Answer, Request
from tests.support.raven_boundary import DATABASE, Boundary, Stored, json_answer

__all__ = ["DATABASE", "StrictRaven"]

_EMPTY_ETAG = "00000000-0000-0000-0000-000000000000"
_REFUSED_IN_KEYS = set("()<>@,;:\\/[]?={}\t ")
_SERVERS_OWN = {"@id", "@change-vector", "@last-modified", "@etag"}


class Undocumented(Exception):
    """The request is none that the reference knows."""


class ConditionFailed(Exception):
    """A version is not what the request expected."""


class StrictRaven(Boundary):
    """The server; ``family`` is ``3.5`` or ``4``."""

    def __init__(self, family: str) -> None:
        """See ``Boundary``."""
        self.page_cap = 1024
        self.shards: list[str] = []
        """What they are called, from 6 on, in a database that has some."""
        self._documents: dict[str, Stored] = {}
        self._count = 0
        super().__init__(family)

    # ── for tests, and for the simulated timeout manager ────────────────────────────────────

    @property
    def documents(self) -> dict[str, Stored]:
        """See ``Boundary``."""
        with self._lock:
            return copy.deepcopy(self._documents)

    def store(self, id_: str, content: Mapping[str, Any], **metadata: Any) -> None:
        """See ``Boundary``."""
        with self._lock:
            self._put(id_, dict(content), dict(metadata))

    def remove(self, id_: str) -> None:
        """See ``Boundary``."""
        with self._lock:
            self._documents.pop(id_.lower(), None)

    def try_remove(self, id_: str) -> bool:
        """See ``Boundary``."""
        with self._lock:
            return self._documents.pop(id_.lower(), None) is not None

    # ── requests ────────────────────────────────────────────────────────────────────────────

    def do(self, request: Request) -> Answer:
        """Return what is documented."""
        with self._lock:
            before = dict(self._documents)  # documents are replaced, never changed
            try:
                return json_answer(*self._answered(request))
            except ConditionFailed as exc:
                self._documents = before
                kind = "Raven.Client.Exceptions.ConcurrencyException"
                return json_answer(409, {"Type": kind, "Error": str(exc)})
            except (Undocumented, KeyError, TypeError, AttributeError) as exc:
                self._documents = before
                self.violations.append(f"{request.line}: {exc!r}")
                return json_answer(400, {"Error": repr(exc)})

    def _answered(self, seen: Request) -> tuple[int, Any]:
        parts = urlsplit(seen.target)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        path = unquote(parts.path)
        if (told := self._of_the_server(seen.line)) is not None:
            return 200, told
        base = f"/databases/{DATABASE}"
        if not path.startswith(base):
            return 404, {"Error": "no such database"}
        match seen.method, path.removeprefix(base):
            case "GET", "/docs" if "startsWith" in dict(query):
                return 200, self._page(dict(query))
            case "GET", "/docs" if self.family == "4":
                if {key for key, _ in query} != {"id"} or len(query) != 2:
                    raise Undocumented("parameters")
                return self._by_id({"Ids": [id_ for _, id_ in query]})
            case "POST", "/docs" if self.family == "4" and not query:
                return self._by_id(seen.body)
            case "GET", "/queries" if self.family == "4":
                return 200, self._collection(dict(query))
            case "POST", "/queries" if self.family == "3.5":
                return 200, {"Results": [self._told(each) for each in seen.body], "Includes": []}
            case "POST", "/bulk_docs":
                return self._batch(seen.body)
        raise Undocumented("no such request")

    def _of_the_server(self, line: str) -> Any:
        if line == "GET /build/version":
            version = "3.5.9 / 5f2e3a /" if self.family == "3.5" else "5.4"
            return {"ProductVersion": version, "BuildVersion": "35289"}
        if line == f"GET /databases?name={DATABASE}&namesOnly=true" and self.family == "4":
            return {"Databases": self.shards or [DATABASE]}
        return None

    def _page(self, query: dict[str, str]) -> Any:
        behind = "skipAfter" if self.family == "3.5" else "startAfter"
        if not set(query) <= {"startsWith", "start", "pageSize", behind}:
            raise Undocumented("a parameter")
        if not query["startsWith"]:
            raise Undocumented("an empty prefix")
        size = min(int(query["pageSize"]), self.page_cap)
        after = query.get(behind, "").lower()
        prefix = query["startsWith"].lower()
        of_prefix = [each for each in self._sorted() if each.id.lower().startswith(prefix)]
        found = [each for each in of_prefix if each.id.lower() > after]
        if after and self.family == "3.5" and after not in self._documents:
            found = found[1:]  # it steps over what it found, as do 4.0 and 4.1, but not later ones
        found = [self._told(each.id) for each in found[int(query["start"]) :][:size]]
        return found if self.family == "3.5" else {"Results": found}

    def _collection(self, query: dict[str, str]) -> Any:
        rql = re.fullmatch(r"from '(\w+)'", query["query"])
        if rql is None or set(query) != {"query", "start", "pageSize"}:
            raise Undocumented("a query")
        name = rql[1].lower()
        found = [d for d in self._documents.values() if _collection_of(d.metadata) == name]
        start = int(query["start"])
        some = [self._told(d.id) for d in found[start : start + int(query["pageSize"])]]
        return {"Results": some, "TotalResults": len(found), "IsStale": False, "ResultEtag": 1}

    def _by_id(self, body: Any) -> tuple[int, Any]:
        if set(body) != {"Ids"} or len(body["Ids"]) > 1024:
            raise Undocumented("another field, or too many ids")
        found = [self._told(id_) for id_ in body["Ids"]]
        if found == [None]:
            return 404, None
        return 200, {"Results": found, "Includes": {}}

    def _told(self, id_: str) -> Any:
        stored = self._documents.get(id_.lower())
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
        stored = self._documents.get(id_.lower())
        if command["Type"] == "DELETE":
            if set(command) != {"Id", "ChangeVector", "Type"}:
                raise Undocumented("a field of DELETE")
            if expected is not None and (stored is None or stored.version != expected):
                raise ConditionFailed(id_)
            self._documents.pop(id_.lower(), None)
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
        stored = self._documents.get(id_.lower())
        if command["Method"] == "DELETE":
            if not {"Key", "Method"} <= set(command) <= {"Key", "Method", "Etag"}:
                raise Undocumented("a field of DELETE")
            if stored is not None and expected not in (None, stored.version):
                raise ConditionFailed(id_)
            self._documents.pop(id_.lower(), None)  # of one that is gone: no conflict, ETag or not
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
        self._documents[id_.lower()] = Stored(id_, content, metadata, version)

    def _sorted(self) -> list[Stored]:
        return [self._documents[key] for key in sorted(self._documents)]


def _collection_of(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("@collection")).lower()
