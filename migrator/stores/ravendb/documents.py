"""What is in a timeout's document: read as values, and put together again as it was.

Pure. Documents were written by many versions of NServiceBus, so nothing about them is believed.
Source: reference ``legacy-stores.md`` 3.1, 5.4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from migrator.nservicebus import headers as h
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.documents.ports import Candidate, Document, Unclaimable
from migrator.stores.ravendb.families import Family, RawDocument, why_not_kept
from migrator.stores.sql.moving import is_storable

VENDOR_MARKS: Final = ("__hidden__", "__migrated__")
"""What the vendor's tool writes before an owner's name: it holds the timeout, or has moved it."""
_HIDDEN: Final = VENDOR_MARKS[0]
_MORE_THAN_JSON: Final = frozenset({"@attachments", "@counters", "@timeseries"})
"""Metadata of a document that removing and storing again would not bring back whole."""
_ARCHIVED: Final = "@archived"
"""Told by 6.0 and later; a timeout manager asks an index, which leaves such documents out."""
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:(Z)|([+-])(\d\d):(\d\d))?",
    re.ASCII,
)
_STATE: Final = "State"


class Unreadable(ValueError):
    """The document is no timeout that anybody could send; it stays where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """A document that is a timeout."""

    raw: RawDocument
    due_at: datetime
    """Aware, UTC; never before what is stored."""
    destination: str | None
    headers_text: str | None
    body: bytes | None
    flaw: str | None
    """Why nobody can send it, although all of it could be restored."""


def owner_of(raw: RawDocument) -> str:
    """Return the endpoint that owns a document, as stored; empty when none is named."""
    owner = raw.content.get("OwningTimeoutManager")
    return owner if isinstance(owner, str) else ""


def is_marked(owner: str) -> bool:
    """Return whether the vendor's tool holds, or has moved, what this owner's name is on."""
    return owner.startswith(VENDOR_MARKS)


def is_hidden(owner: str) -> bool:
    """Return whether a run of the vendor's tool is under way with it, or was left so."""
    return owner.startswith(_HIDDEN)


def timeout_of(raw: RawDocument) -> Timeout:
    """Return *raw* as a timeout.

    Raises:
        Unreadable: Its due time cannot be read, no ledger could keep its id, it is archived, or
            it has attachments, counters or time series, which would not come back if it were
            removed and stored again; or all of it would not, see ``answers``.
    """
    if (why := why_not_kept(raw.content, raw.metadata)) is not None:
        raise Unreadable(why)
    if _MORE_THAN_JSON.intersection(raw.metadata):
        raise Unreadable("it has attachments, counters or time series")
    if raw.metadata.get(_ARCHIVED) is True:
        raise Unreadable("it is archived, and its timeout manager does not see it")
    if not is_storable(raw.id):
        raise Unreadable("no ledger could keep its id")
    headers = raw.content.get("Headers")
    body, flaw = _body(raw.content.get(_STATE))
    return Timeout(
        raw=raw,
        due_at=parse_time(raw.content.get("Time")),
        destination=_destination(raw.content.get("Destination"), headers),
        headers_text=None if headers is None else _json(headers),
        body=body,
        flaw=flaw,
    )


def candidate_of(timeout: Timeout) -> Candidate:
    """Return what a listing shows of a timeout."""
    return Candidate(
        id=TimeoutId(timeout.raw.id),
        due_at=timeout.due_at,
        destination=timeout.destination,
        headers_text=timeout.headers_text,
        body_bytes=len(timeout.body or b""),
    )


def unclaimable_of(raw: RawDocument, why: Unreadable) -> Unclaimable:
    """Return what a listing shows of a document that is no timeout anybody could send."""
    return Unclaimable(id=TimeoutId(raw.id if is_storable(raw.id) else ascii(raw.id)), why=str(why))


def document_of(timeout: Timeout) -> Document:
    """Return a timeout whole, with what ``restored`` needs.

    A body in the usual form of Base64 is not told twice: the ledger would keep it once more.
    Headers are, for the ledger may hold none where its database takes no such text.
    """
    raw = timeout.raw
    content = dict(raw.content)
    has_body_apart = timeout.body is not None and content[_STATE] == _base64(timeout.body)
    if has_body_apart:
        content[_STATE] = None
    saga_id = raw.content.get("SagaId")
    extra = {
        "collection": raw.collection,
        "content": content,
        "has_body_apart": has_body_apart,
        "metadata": dict(raw.metadata),
    }
    return Document(
        id=TimeoutId(raw.id),
        destination=timeout.destination,
        saga_id=saga_id if isinstance(saga_id, str) and is_storable(saga_id) else None,
        due_at=timeout.due_at,
        body=timeout.body,
        headers_text=timeout.headers_text,
        version=raw.version,
        extra=json.dumps(extra, separators=(",", ":")),  # ASCII: every database takes that
        flaw=timeout.flaw,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A document as it shall be stored again."""

    content: Mapping[str, Any]
    metadata: Mapping[str, Any]


def collection_of(document: Document) -> str:
    """Return the collection that *document* was read from."""
    collection = json.loads(document.extra).get("collection")
    return collection if isinstance(collection, str) else ""


def restored(document: Document, family: Family) -> Restored:
    """Return the document that ``document_of`` was made of: same fields, same values, same order.

    The server itself gives it a new version and a new time of change.
    """
    extra = json.loads(document.extra)
    content = dict(extra["content"])
    if extra["has_body_apart"]:
        content[_STATE] = _base64(document.body)
    return Restored(content=content, metadata=family.kept_metadata(extra["metadata"]))


def parse_time(value: object) -> datetime:
    """Return the due time; what is finer than a microsecond is rounded up, for never is it early.

    A time without a zone is UTC. The last moments of the year 9999 are not rounded.

    Raises:
        Unreadable: It is no ISO 8601 date and time.
    """
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise Unreadable("its due time cannot be read")
    year, month, day, hour, minute, second = (int(found[n]) for n in range(1, 7))
    fraction = (found[7] or "").ljust(9, "0")
    try:
        whole = datetime(year, month, day, hour, minute, second, tzinfo=_zone(found)).astimezone(
            UTC
        )
    except (ValueError, OverflowError) as exc:
        raise Unreadable("its due time is none") from exc
    try:
        return whole + timedelta(microseconds=-(-int(fraction) // 1000))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _zone(found: re.Match[str]) -> timezone:
    if found[9] is None:
        return UTC
    offset = timedelta(hours=int(found[10]), minutes=int(found[11]))
    return timezone(-offset if found[9] == "-" else offset)


def _destination(value: object, headers: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return None
    # Core 3 and 4 stored an address object, and a machine name even for brokers
    routed = headers.get(h.ROUTE_EXPIRED_TO) if isinstance(headers, dict) else None
    queue = value.get("Queue")
    return (routed if isinstance(routed, str) and h.queue_part(routed) else None) or (
        queue if isinstance(queue, str) else None
    )


def _body(value: object) -> tuple[bytes | None, str | None]:
    """Return a body, or why it cannot be sent."""
    if value is None:
        return None, None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            # .NET passes over white space
            return base64.b64decode("".join(value.split()), validate=True), None
    return None, "State holds no Base64"


def _base64(body: bytes | None) -> str:
    return base64.b64encode(body or b"").decode("ascii")


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which only an escape can carry
        return json.dumps(value, separators=(",", ":"))
    return text
