"""The two families of RavenDB's HTTP interface, as values: what to send, what an answer means.

Nothing here sends anything. RavenDB keeps documents that Python's parser gives up on, and numbers
that Python would not write as they were: no timeouts of NServiceBus's, shown as what nobody can
claim, so that one does not hide a page of others. Source: reference ``legacy-stores.md`` 3.3;
RavenDB's documentation of the REST interface (3.5, 4.2), and its server's sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

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
    """One request to a database."""

    method: str
    path: str
    """Below ``/databases/<name>``, starting with a slash."""
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
    """Store a document."""

    id: str
    content: Mapping[str, Any]
    metadata: Mapping[str, Any]
    expected: str | None
    """The version it must have; ``MUST_BE_NEW``; None: any, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Remove a document."""

    id: str
    expected: str | None
    """The version it must have; it must exist then. None: any, or none."""
    collection: str = ""


class BadAnswer(ValueError):
    """An answer has not the form that this family gives it."""


class Family(Protocol):
    """One form of the interface."""

    @property
    def name(self) -> str:
        """As in the settings: ``3.5`` or ``4``."""
        ...

    def page(self, prefix: str, *, after: str | None, size: int) -> Request:
        """Ask for *size* documents of a prefix in the order of ids, behind *after*."""
        ...

    def part_of_collection(self, collection: str, *, start: int, size: int) -> Request | None:
        """Ask for documents of a collection in the order of their changes; None: nobody can.

        Behind *start* others may come and go, so this shows what there is and lists nothing.
        """
        ...

    def reads(self, ids: Sequence[str]) -> Iterator[Request]:
        """Ask for documents by id, in as many requests as their number needs."""
        ...

    def batch(self, commands: Iterable[Put | Remove]) -> Request:
        """Ask for all *commands* in one transaction; 409 says that a condition did not hold."""
        ...

    def is_done(self, batch: Request, answer: Any) -> bool:
        """Return whether *answer* is this family's to a *batch* that was done."""
        ...

    def documents(self, answer: Any) -> list[RawDocument]:
        """Return the documents of an answer to ``page`` or ``reads``; absent ones are left out.

        Raises:
            BadAnswer: It is not this family's answer.
        """
        ...

    def is_settled(self, document: RawDocument) -> bool:
        """Return False while another transaction is about to change the document."""
        ...

    def kept_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return what has to be given when the document is stored again."""
        ...

    def metadata_of(self, collection: str) -> dict[str, Any]:
        """Return the metadata that puts a new document into *collection*."""
        ...


class Modern:
    """RavenDB 4 and later."""

    name: Final = "4"
    _SERVERS_OWN: Final = frozenset(
        {"@id", "@change-vector", "@etag", "@last-modified", "@flags", "@index-score"}
    )

    def page(self, prefix: str, *, after: str | None, size: int) -> Request:
        """See ``Family``."""
        query = [("startsWith", prefix), ("start", "0"), ("pageSize", str(size))]
        if after is not None:
            query.append(("startAfter", after))
        return Request(method="GET", path="/docs", query=tuple(query))

    def part_of_collection(self, collection: str, *, start: int, size: int) -> Request | None:
        """See ``Family``; the server answers this from the collection, not from an index."""
        rql = "from '" + collection.replace("\\", "\\\\").replace("'", "\\'") + "'"
        query = (("query", rql), ("start", str(start)), ("pageSize", str(size)))
        return Request(method="GET", path="/queries", query=query)

    def reads(self, ids: Sequence[str]) -> Iterator[Request]:
        """See ``Family``.

        Many are asked for as the vendor's own clients do: 4.1 answers 500 to a URL of 9 000
        characters, and what is between may take less. One is asked for by GET: a 3.5 server that
        is taken for a later one would store what is posted.
        """
        for chunk in _chunks(ids):
            if len(chunk) == 1:
                query = (("id", chunk[0]), ("id", _FILLER_ID))
                yield Request(method="GET", path="/docs", query=query)
            else:
                yield Request(method="POST", path="/docs", body={"Ids": chunk})

    def batch(self, commands: Iterable[Put | Remove]) -> Request:
        """See ``Family``."""
        return Request(
            method="POST",
            path="/bulk_docs",
            body={"Commands": [_modern(each) for each in commands]},
        )

    def is_done(self, batch: Request, answer: Any) -> bool:
        """See ``Family``.

        There may be more results than commands: 4.1 tells those of each attempt, where it had to
        begin again because it did the batch together with another one whose condition failed.
        """
        results = answer.get("Results") if isinstance(answer, dict) else None
        return isinstance(results, list) and len(results) >= len(batch.body["Commands"])

    def documents(self, answer: Any) -> list[RawDocument]:
        """See ``Family``."""
        return _raw_documents(_results(answer), version="@change-vector", collection="@collection")

    def is_settled(self, document: RawDocument) -> bool:
        """See ``Family``: transactions are short here, and nobody sees them from outside."""
        return True

    def kept_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Family``."""
        return {key: value for key, value in metadata.items() if key not in self._SERVERS_OWN}

    def metadata_of(self, collection: str) -> dict[str, Any]:
        """See ``Family``."""
        return {"@collection": collection}


def _modern(command: Put | Remove) -> dict[str, Any]:
    # null: any version; "": must be new; else: exactly this one, and it must exist
    if isinstance(command, Remove):
        return {"Id": command.id, "ChangeVector": command.expected, "Type": "DELETE"}
    return {
        "Id": command.id,
        "ChangeVector": command.expected,
        "Document": {**command.content, "@metadata": dict(command.metadata)},
        "Type": "PUT",
    }


class Classic:
    """RavenDB 3.5; 3.0 has the same requests."""

    name: Final = "3.5"
    _SERVERS_OWN: Final = frozenset(
        {
            "Last-Modified",
            "Raven-Last-Modified",
            "Non-Authoritative-Information",
            "Temp-Index-Score",
        }
    )
    _REFUSED_IN_KEYS: Final = frozenset("()<>@,;:\\/[]?={}\t ")
    """The server takes no metadata whose name has one of these: it would be no HTTP header."""

    def page(self, prefix: str, *, after: str | None, size: int) -> Request:
        """See ``Family``."""
        query = [("startsWith", prefix), ("start", "0"), ("pageSize", str(size))]
        if after is not None:
            query.append(("skipAfter", after))
        return Request(method="GET", path="/docs", query=tuple(query))

    def part_of_collection(self, collection: str, *, start: int, size: int) -> Request | None:
        """See ``Family``; only an index knows collections here, and it may be missing or late."""
        return None

    def reads(self, ids: Sequence[str]) -> Iterator[Request]:
        """See ``Family``."""
        for chunk in _chunks(ids):
            yield Request(method="POST", path="/queries", body=chunk)

    def batch(self, commands: Iterable[Put | Remove]) -> Request:
        """See ``Family``."""
        body = [sent for command in commands for sent in self._commands(command)]
        return Request(method="POST", path="/bulk_docs", body=body)

    def _commands(self, command: Put | Remove) -> Iterator[dict[str, Any]]:
        if isinstance(command, Put):
            yield {
                "Key": command.id,
                "Method": "PUT",
                "Document": dict(command.content),
                "Metadata": dict(command.metadata),
                **_etag(command.expected),
            }
            return
        if command.expected is not None:
            # A DELETE of a document that is gone succeeds here, whatever ETag it names; only a
            # PUT fails then. Its content is never seen: the DELETE is in the same transaction.
            yield {
                "Key": command.id,
                "Method": "PUT",
                "Document": {},
                "Metadata": self.metadata_of(command.collection),
                **_etag(command.expected),
            }
        yield {"Key": command.id, "Method": "DELETE"}

    def is_done(self, batch: Request, answer: Any) -> bool:
        """See ``Family``."""
        return isinstance(answer, list) and len(answer) == len(batch.body)

    def documents(self, answer: Any) -> list[RawDocument]:
        """See ``Family``."""
        results = answer if isinstance(answer, list) else _results(answer)
        return _raw_documents(results, version="@etag", collection="Raven-Entity-Name")

    def is_settled(self, document: RawDocument) -> bool:
        """See ``Family``: a distributed transaction shows in the metadata."""
        told = document.metadata.get("Non-Authoritative-Information")
        return str(told or "").lower() != "true"

    def kept_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """See ``Family``."""
        return {
            key: value
            for key, value in metadata.items()
            if key not in self._SERVERS_OWN and not self._REFUSED_IN_KEYS.intersection(key)
        }

    def metadata_of(self, collection: str) -> dict[str, Any]:
        """See ``Family``."""
        return {"Raven-Entity-Name": collection}


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _IDS_PER_POST):
        yield list(ids[start : start + _IDS_PER_POST])


def _etag(expected: str | None) -> dict[str, str]:
    if expected is None:
        return {}
    return {"Etag": _EMPTY_ETAG if expected == MUST_BE_NEW else expected}


def _results(answer: Any) -> list[Any]:
    results = answer.get("Results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise BadAnswer("no list of results")
    return results


def _raw_documents(results: list[Any], *, version: str, collection: str) -> list[RawDocument]:
    found = []
    for item in results:
        if item is None:
            continue
        metadata = item.get("@metadata") if isinstance(item, dict) else None
        if not isinstance(metadata, dict):
            raise BadAnswer("a document without metadata")
        id_, told = metadata.get("@id"), metadata.get(version)
        if not isinstance(id_, str) or not isinstance(told, str) or not id_ or not told:
            raise BadAnswer(f"a document without @id or {version}")
        found.append(
            RawDocument(
                id=id_,
                version=told,
                collection=str(metadata.get(collection) or ""),
                content={key: value for key, value in item.items() if key != "@metadata"},
                metadata=metadata,
            )
        )
    return found


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
                return "it has a number that would not be stored again as it is"
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
