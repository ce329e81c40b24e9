"""What is in a timeout's document: read as values, and put together again as it was.

Pure. Documents were written by many versions of NServiceBus, so nothing about them is believed.
Source: reference ``legacy-stores.md`` 3.1, 5.4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from migrator.nservicebus import headers as h
from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.documents.ports import Document, Entry
from migrator.stores.ravendb.families import (
    MUST_BE_NEW,
    Family,
    Put,
    RawDocument,
    why_not_kept,
)
from migrator.stores.requests import ScannedRow
from migrator.stores.sql.moving import is_storable

VENDOR_MARKS: Final = ("__hidden__", "__migrated__")
"""What the vendor's tool writes before an owner's name: it holds the timeout, or has moved it."""
_HIDDEN: Final = VENDOR_MARKS[0]
_MORE_THAN_JSON: Final = frozenset({"@attachments", "@counters", "@timeseries"})
"""Metadata of a document that removing and storing again would not bring back whole."""
_ARCHIVED: Final = "@archived"
"""Told by 6.0 and later; a timeout manager asks an index, which leaves such documents out."""
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
"""Up to its whole second, what is finer, and the zone."""
_STATE: Final = "State"


class Unreadable(ValueError):
    """The document is no timeout that anybody could send; it stays where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    raw: RawDocument
    due_at: datetime
    """Aware, UTC; never before what is stored."""
    destination: str | None
    headers_text: str | None
    body: bytes | None
    flaw: str | None
    """Why it cannot be sent, although all of it could be restored."""


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
        raise Unreadable("it is archived, so its timeout manager does not see it")
    if not is_storable(raw.id):
        raise Unreadable("its id cannot be stored in a ledger")
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


def entry_of(timeout: Timeout) -> Entry:
    id_ = TimeoutId(timeout.raw.id)
    return Entry(due_at=timeout.due_at, id=id_, destination=timeout.destination)


def listed_as(raw: RawDocument) -> ScannedRow:
    try:
        timeout = timeout_of(raw)
    except Unreadable as exc:
        shown = raw.id if is_storable(raw.id) else ascii(raw.id)
        return ScannedRow(id=shown, why_unclaimable=str(exc))
    return ScannedRow(
        id=timeout.raw.id,
        due_at=timeout.due_at,
        destination=timeout.destination,
        headers_text=timeout.headers_text,
        body_bytes=len(timeout.body or b""),
    )


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


def collection_of(document: Document) -> str:
    collection = json.loads(document.extra).get("collection")
    return collection if isinstance(collection, str) else ""


def restored(document: Document, family: Family) -> Put:
    """Return what stores the document again that ``document_of`` was made of.

    Same fields, same values, same order, and it must be new; the server itself gives it a new
    version and a new time of change.
    """
    extra = json.loads(document.extra)
    content = dict(extra["content"])
    if extra["has_body_apart"]:
        content[_STATE] = _base64(document.body)
    metadata = family.kept_metadata(extra["metadata"])
    return Put(id=document.id, content=content, metadata=metadata, expected=MUST_BE_NEW)


def parse_time(value: object) -> datetime:
    """Return the due time; what is finer than a microsecond is rounded up, for never is it early.

    A time without a zone is UTC. The last moments of the year 9999 are not rounded.

    Raises:
        Unreadable: It is no ISO 8601 date and time.
    """
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise Unreadable("its due time cannot be read")
    whole, fraction, zone = found.groups()
    try:
        second = datetime.fromisoformat(whole + (zone or "Z")).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise Unreadable("it has no due time") from exc
    try:
        return second + timedelta(microseconds=-(-int((fraction or "").ljust(9, "0")) // 1000))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


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
    if value is None:
        return None, None
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            # .NET passes over white space
            return base64.b64decode("".join(value.split()), validate=True), None
    return None, "State is not Base64"


def _base64(body: bytes | None) -> str:
    return base64.b64encode(body or b"").decode("ascii")


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which only an escape can carry
        return json.dumps(value, separators=(",", ":"))
    return text
