"""The two families of RavenDB's HTTP interface, as values: what to send, what an answer means.

Nothing here sends anything. RavenDB keeps documents that Python's parser refuses, and numbers that
Python would write differently. NServiceBus wrote none of them; they are shown as unclaimable, so
that one does not hide a page of others. Source: reference ``legacy-stores.md`` 3.3; RavenDB's
documentation of the REST interface (3.5, 4.2), and its server's sources.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

MUST_BE_NEW: Final = ""
"""As an expected version: the document must not exist."""
_FILLER_ID: Final = "migrator/-"
"""Asked for beside a single id, so that its absence is told as null and never as a 404."""
_IDS_PER_POST: Final = 128
_EMPTY_ETAG: Final = "00000000-0000-0000-0000-000000000000"
DEEPEST: Final = 100
"""How deep what is in a document may be nested: headers are two deep, and whatever is put into
the ledger has to be written and read again on any stack."""
_KEPT_DEPTH: Final = 3 * DEEPEST
"""Levels of an answer that are kept where it is nested deeper than the parser goes."""
_LONGEST_NUMBER: Final = 400
"""Characters; Python takes no whole number of some thousand digits."""
_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    """Sent as JSON; None: no body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDocument:
    """A document as the server tells it."""

    id: str
    version: str
    """ETag or change vector."""
    collection: str
    content: Mapping[str, Any]
    """Without metadata."""
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    id: str
    content: Mapping[str, Any]
    metadata: Mapping[str, Any]
    expected: str | None
    """The version it must have; ``MUST_BE_NEW``; None: any, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    id: str
    expected: str | None
    """The version it must have; it must exist then. None: any, or none."""
    collection: str = ""


class BadAnswer(ValueError):
    """An answer has not the form that this family gives it."""


class Family(ABC):
    """One form of the interface; ``Modern`` and ``Classic`` say where they differ."""

    name: ClassVar[str]
    _behind: ClassVar[str]
    """The parameter that names the id behind which a page begins."""
    _version: ClassVar[str]
    """The metadata with a document's version, and below that with its collection."""
    _collection: ClassVar[str]
    _servers_own: ClassVar[frozenset[str]]
    """Metadata that the server writes itself."""

    def page(self, prefix: str, *, after: str | None, size: int) -> Request:
        """Ask for *size* documents of a prefix in the order of ids, behind *after*."""
        query = [("startsWith", prefix), ("start", "0"), ("pageSize", str(size))]
        if after is not None:
            query.append((self._behind, after))
        return Request(method="GET", path="/docs", query=tuple(query))

    def part_of_collection(self, collection: str, *, start: int, size: int) -> Request | None:
        """Request documents of a collection in the order of changes; None: the server cannot.

        Documents may come and go, so this is no complete listing.
        """
        return None

    @abstractmethod
    def reads(self, ids: Sequence[str]) -> Iterator[Request]:
        """Ask for documents by id, in as many requests as their number needs."""

    @abstractmethod
    def batch(self, commands: Iterable[Put | Remove]) -> Request:
        """Ask for all *commands* in one transaction; 409 says that a condition did not hold."""

    @abstractmethod
    def is_done(self, batch: Request, answer: Any) -> bool:
        """Return whether *answer* is this family's to a *batch* that was done."""

    def documents(self, answer: Any) -> list[RawDocument]:
        """Return the documents of an answer to ``page`` or ``reads``; absent ones are left out.

        Raises:
            BadAnswer: It is not this family's answer.
        """
        return [self._document(each) for each in self._results(answer) if each is not None]

    def is_settled(self, document: RawDocument) -> bool:
        """Return False while another transaction is about to change the document."""
        return True

    def kept_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what has to be given when the document is stored again."""
        return {key: value for key, value in metadata.items() if key not in self._servers_own}

    def metadata_of(self, collection: str) -> dict[str, Any]:
        """Return the metadata that puts a new document into *collection*."""
        return {self._collection: collection}

    def _results(self, answer: Any) -> list[Any]:
        results = answer.get("Results") if isinstance(answer, dict) else None
        if not isinstance(results, list):
            raise BadAnswer("no list of results")
        return results

    def _document(self, told: Any) -> RawDocument:
        metadata = told.get("@metadata") if isinstance(told, dict) else None
        if not isinstance(metadata, dict):
            raise BadAnswer("a document without metadata")
        id_, version = metadata.get("@id"), metadata.get(self._version)
        if not isinstance(id_, str) or not isinstance(version, str) or not id_ or not version:
            raise BadAnswer(f"a document without @id or {self._version}")
        return RawDocument(
            id=id_,
            version=version,
            collection=str(metadata.get(self._collection) or ""),
            content={key: value for key, value in told.items() if key != "@metadata"},
            metadata=metadata,
        )


class Modern(Family):
    """RavenDB 4 and later; no other client sees an open transaction."""

    name = "4"
    _behind = "startAfter"
    _version = "@change-vector"
    _collection = "@collection"
    _servers_own = frozenset(
        {"@id", "@change-vector", "@etag", "@last-modified", "@flags", "@index-score"}
    )

    def part_of_collection(self, collection: str, *, start: int, size: int) -> Request | None:
        # the server answers this from the collection, not from an index
        rql = "from '" + collection.replace("\\", "\\\\").replace("'", "\\'") + "'"
        query = (("query", rql), ("start", str(start)), ("pageSize", str(size)))
        return Request(method="GET", path="/queries", query=query)

    def reads(self, ids: Sequence[str]) -> Iterator[Request]:
        # Many are asked for as the vendor's own clients do: 4.1 answers 500 to a URL of 9 000
        # characters, and what is between may take less. One is asked for by GET: a 3.5 server that
        # is taken for a later one would store what is posted.
        for chunk in _chunks(ids):
            if len(chunk) == 1:
                query = (("id", chunk[0]), ("id", _FILLER_ID))
                yield Request(method="GET", path="/docs", query=query)
            else:
                yield Request(method="POST", path="/docs", body={"Ids": chunk})

    def batch(self, commands: Iterable[Put | Remove]) -> Request:
        # a change vector of null: any version; "": must be new; else: exactly this one
        body = [
            {"Id": each.id, "ChangeVector": each.expected, "Type": "DELETE"}
            if isinstance(each, Remove)
            else {
                "Id": each.id,
                "ChangeVector": each.expected,
                "Document": {**each.content, "@metadata": dict(each.metadata)},
                "Type": "PUT",
            }
            for each in commands
        ]
        return Request(method="POST", path="/bulk_docs", body={"Commands": body})

    def is_done(self, batch: Request, answer: Any) -> bool:
        # There may be more results than commands: 4.1 has those of each attempt, where it had to
        # begin again because it did the batch together with another one whose condition failed.
        results = answer.get("Results") if isinstance(answer, dict) else None
        return isinstance(results, list) and len(results) >= len(batch.body["Commands"])


class Classic(Family):
    """RavenDB 3.5; 3.0 has the same requests.

    Only an index knows collections here, and it may be missing or late.
    """

    name = "3.5"
    _behind = "skipAfter"
    _version = "@etag"
    _collection = "Raven-Entity-Name"
    _servers_own = frozenset(
        {
            "Last-Modified",
            "Raven-Last-Modified",
            "Non-Authoritative-Information",
            "Temp-Index-Score",
        }
    )
    _REFUSED_IN_KEYS: Final = frozenset("()<>@,;:\\/[]?={}\t ")
    """The server takes no metadata whose name has one of these: it would be no HTTP header."""

    def reads(self, ids: Sequence[str]) -> Iterator[Request]:
        for chunk in _chunks(ids):
            yield Request(method="POST", path="/queries", body=chunk)

    def batch(self, commands: Iterable[Put | Remove]) -> Request:
        body = [sent for command in commands for sent in self._commands(command)]
        return Request(method="POST", path="/bulk_docs", body=body)

    def _commands(self, command: Put | Remove) -> Iterator[dict[str, Any]]:
        if isinstance(command, Put):
            yield self._putting(command, command.content, command.metadata)
            return
        if command.expected is not None:
            # A DELETE of a document that is gone succeeds here, whatever ETag it names; only a
            # PUT fails then. Its content is never seen: the DELETE is in the same transaction.
            yield self._putting(command, {}, self.metadata_of(command.collection))
        yield {"Key": command.id, "Method": "DELETE"}

    def _putting(
        self, command: Put | Remove, content: Mapping[str, Any], metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {"Document": dict(content), "Metadata": dict(metadata)}
        if command.expected is not None:
            found["Etag"] = _EMPTY_ETAG if command.expected == MUST_BE_NEW else command.expected
        return {"Key": command.id, "Method": "PUT", **found}

    def is_done(self, batch: Request, answer: Any) -> bool:
        return isinstance(answer, list) and len(answer) == len(batch.body)

    def is_settled(self, document: RawDocument) -> bool:
        # a distributed transaction shows in the metadata
        told = document.metadata.get("Non-Authoritative-Information")
        return str(told or "").lower() != "true"

    def kept_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        kept = super().kept_metadata(metadata)
        return {k: v for k, v in kept.items() if not self._REFUSED_IN_KEYS.intersection(k)}

    def _results(self, answer: Any) -> list[Any]:
        return answer if isinstance(answer, list) else super()._results(answer)


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _IDS_PER_POST):
        yield list(ids[start : start + _IDS_PER_POST])


def family_of(build: Any) -> Family:
    """Return the family of a server from its answer to ``/build/version``.

    Raises:
        BadAnswer: It is older than 3, or cannot be told; says what was found.
    """
    version = build.get("ProductVersion") if isinstance(build, dict) else None
    digits = str(version or "").strip().partition(".")[0]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 3:
        raise BadAnswer("no product version")
    if int(digits) < 3:
        raise BadAnswer(f"version {str(version)[:20]!a}, older than 3")
    return Modern() if int(digits) > 3 else Classic()


@dataclass(frozen=True, slots=True)
class Inexact:
    """A number that would be another text when it is stored again."""

    text: str


def parsed(raw: bytes) -> Any:
    """Return the JSON value that *raw* tells; what is nested too deep is cut, and still too deep.

    Raises:
        ValueError: It is no JSON.
    """
    text = raw.decode(json.detect_encoding(raw), "surrogatepass")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        return _DECODER.decode(_shallow(text))


def why_not_kept(*parts: Mapping[str, Any]) -> str | None:
    """Return why *parts* of a document could not be stored again as they are; None: they could."""
    level: list[Any] = list(parts)
    for _ in range(DEEPEST):
        below = []
        for each in _inside(level):
            if isinstance(each, Inexact):
                return "it has a number that could not be stored again unchanged"
            if isinstance(each, dict | list):
                below.append(each)
        if not below:
            return None
        level = below
    return f"it is nested more than {DEEPEST} deep"


def _inside(level: list[Any]) -> Iterator[Any]:
    for each in level:
        yield from each.values() if isinstance(each, Mapping) else each


def _shallow(text: str) -> str:
    """Return *text* with null for whatever is deeper than ``_KEPT_DEPTH``."""
    kept: list[str] = []
    depth = begin = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth == _KEPT_DEPTH + 1:
                kept += [text[begin : token.start()], "null"]
        elif sign in ("]", "}"):
            depth -= 1
            if depth == _KEPT_DEPTH:
                begin = token.end()
    if depth > _KEPT_DEPTH:
        raise ValueError("the answer ends too early")
    return "".join([*kept, text[begin:]])


def _whole(text: str) -> int | Inexact:
    if len(text) <= _LONGEST_NUMBER and str(found := int(text)) == text:
        return found
    return Inexact(text)


def _fraction(text: str) -> float | Inexact:
    found = float(text)
    return found if repr(found) == text else Inexact(text)


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_fraction)
