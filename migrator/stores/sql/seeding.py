"""Invented timeouts for rehearsals, tests and benchmarks, in a table as the vendor creates it.

Source: reference ``legacy-stores.md`` 1.2 (script), 1.3 (values).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import cycle, islice
from random import Random
from typing import Any, Final
from uuid import UUID as Guid
from zoneinfo import ZoneInfo

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, oracle
from sqlalchemy.types import TypeEngine

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.types import ColumnTime, UtcDateTime
from migrator.documents import Document
from migrator.errors import StoreError
from migrator.nservicebus.headers import ROUTE_EXPIRED_TO
from migrator.nservicebus.timeouts import NO_SAGA, Count
from migrator.nservicebus.wiretime import build_wire_time
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.store import Blank

_CHUNK_ROWS: Final = 5_000
_TICKS_EPOCH: Final = 621_355_968_000_000_000
"""1970-01-01 in .NET ticks of 100 ns."""
INVENTED: Final = "5f2d7c1b9a3e4f608d1c2b3a4e5f6071"
"""A host that no endpoint has; in the headers of every invented timeout."""
_SENT_BEFORE_DUE: Final = timedelta(days=30)


class SeedDocument(Document, title="migrator/seed/1"):
    """`migrator seed --json`."""

    endpoint: str
    source: str
    rows: Count
    bad: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """One row as the persistence writes it; None becomes NULL."""

    id: str
    destination: str | None
    saga_id: str | None
    body: bytes | None
    due_at: datetime | None
    headers_text: str | None
    persistence_version: str | None = "6.6.5.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSpec:
    endpoint: str
    count: int
    due_from: datetime
    due_until: datetime
    destinations: Sequence[str]
    """Used in turn; an endpoint mostly sends to itself."""
    body_bytes: int = 500
    seed: int = 0
    """The same seed invents the same rows."""
    bad: int = 0
    """So many of them cannot be handed over, each for another reason."""


def create_table(engine: sa.Engine, blank: Blank) -> None:
    """Create the legacy table as the vendor does; an existing one stays."""
    doing = f"creating {blank.table.fullname}"
    with writing(engine, StoreError, doing=doing) as connection:
        blank.table.metadata.create_all(connection, checkfirst=True)


def insert_rows(engine: sa.Engine, blank: Blank, rows: Iterable[SeedRow]) -> int:
    pending, inserted = iter(rows), 0
    while chunk := list(islice(pending, _CHUNK_ROWS)):
        with translating(StoreError, doing=f"seeding {blank.table.fullname}"):
            _write(engine, blank, chunk)
        inserted += len(chunk)
    return inserted


def invent(what: SeedSpec) -> Iterator[SeedRow]:
    """Yield invented timeouts, evenly spread over the due times, in no order of time; bad first."""
    rows, ways = _good(what), cycle((_unreadable, _without_destination, _to_unknown_destination))
    for row in islice(rows, what.bad):
        yield next(ways)(row)
    yield from rows


def _good(what: SeedSpec) -> Iterator[SeedRow]:
    rng = Random(what.seed)  # noqa: S311 - rehearsals want the same rows again, not secrets
    span = (what.due_until - what.due_from) // timedelta(microseconds=1)
    ticks = _TICKS_EPOCH + int(what.due_from.timestamp() * 10_000_000)
    for n in range(what.count):
        due_at = what.due_from + timedelta(microseconds=rng.randint(0, max(span, 0)))
        destination = what.destinations[n % len(what.destinations)]
        yield SeedRow(
            id=_persister_id(rng, ticks + n),
            destination=destination,
            saga_id=str(_guid(rng)) if n % 2 else NO_SAGA,
            body=_body(rng, what.body_bytes),
            due_at=due_at,
            headers_text=_headers(what.endpoint, destination, due_at, rng),
        )


def _unreadable(row: SeedRow) -> SeedRow:
    return replace(row, headers_text=(row.headers_text or "")[:-1])


def _without_destination(row: SeedRow) -> SeedRow:
    headers = json.loads(row.headers_text or "{}")
    for key in (ROUTE_EXPIRED_TO, "NServiceBus.ReplyToAddress"):
        headers.pop(key, None)
    return replace(row, destination=None, headers_text=json.dumps(headers))


def _to_unknown_destination(row: SeedRow) -> SeedRow:
    """Name it in the headers alone: with it in the column, the row would wait."""
    headers = json.loads(row.headers_text or "{}") | {ROUTE_EXPIRED_TO: "Nobody.Home"}
    return replace(row, destination=None, headers_text=json.dumps(headers))


def _persister_id(rng: Random, counter: int) -> str:
    """Return a GUID as persister 1.0.1 and later create it: random, then a counter."""
    front = str(_guid(rng))[:18]
    return f"{front}-{counter & 0xFFFF:04x}-{counter >> 16 & 0xFFFFFFFFFFFF:012x}"


def _guid(rng: Random) -> Guid:
    return Guid(int=rng.getrandbits(128), version=4)


def _body(rng: Random, size: int) -> bytes:
    start = b'{"order":"'
    return (start + rng.randbytes(size // 2).hex().encode() + b'"}')[: max(size, 0)]


def _headers(endpoint: str, destination: str, due_at: datetime, rng: Random) -> str:
    message_id = str(_guid(rng))
    headers = {
        "NServiceBus.MessageId": message_id,
        "NServiceBus.MessageIntent": "Send",
        "NServiceBus.ConversationId": str(_guid(rng)),
        "NServiceBus.CorrelationId": message_id,
        "NServiceBus.ReplyToAddress": endpoint,
        "NServiceBus.OriginatingMachine": "APP01",
        "NServiceBus.OriginatingEndpoint": endpoint,
        "NServiceBus.ContentType": "application/json",
        "NServiceBus.EnclosedMessageTypes": f"{endpoint}.OrderOverdue, {endpoint}.Messages",
        "NServiceBus.Version": "7.8.0",
        "NServiceBus.TimeSent": build_wire_time(due_at - _SENT_BEFORE_DUE),
        "NServiceBus.Timeout.RouteExpiredTimeoutTo": destination,
        "NServiceBus.Timeout.Expire": build_wire_time(due_at),
        "NServiceBus.RelatedTo": str(_guid(rng)),
        "$.diagnostics.originating.hostid": INVENTED,
    }
    return json.dumps(headers, indent=2)


def _values(row: SeedRow, blank: Blank) -> dict[str, Any]:
    headers = row.headers_text
    found = {
        "Id": row.id,
        "Destination": row.destination,
        "SagaId": row.saga_id,
        "State": row.body,
        "Time": _stored(row.due_at, blank.time_zone),
        "Headers": _compact(headers) if blank.has_compact_headers else headers,
        "PersistenceVersion": row.persistence_version,
        **blank.constants,
    }
    return {key: found[key] for key in blank.table.c.keys()}  # noqa: SIM118 - a column collection is no mapping


def _stored(due_at: datetime | None, zone: str | None) -> datetime | None:
    """Return *due_at* as it is written: local time without a zone, if there is a *zone*."""
    if due_at is None or zone is None:
        return due_at
    return due_at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def _compact(headers: str | None) -> str | None:
    """Return *headers* on one line with slashes escaped; unchanged if they are not JSON."""
    try:
        parsed = json.loads(headers or "")
    except ValueError:
        return headers
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).replace("/", r"\/")


def _write(engine: sa.Engine, blank: Blank, rows: Sequence[SeedRow]) -> None:
    values, table = [_values(row, blank) for row in rows], blank.table
    with writing(engine) as connection:
        in_order = [tuple(each.values()) for each in values]
        if dialect_for(engine.dialect.name).write_rows(connection, table, in_order):
            return
        typed = sa.Table(
            table.name, sa.MetaData(), *map(_typed, table.columns), schema=table.schema
        )
        connection.execute(sa.insert(typed), values)


def _typed(column: sa.Column[Any]) -> sa.Column[Any]:
    # headers are text already, whatever the database makes of it
    due = UtcDateTime(with_zone=False)
    is_rounded = isinstance(column.type, mssql.DATETIME | oracle.DATE)
    types: dict[str, TypeEngine[Any]] = {
        "Time": ColumnTime(column.type) if is_rounded else due,
        "Headers": sa.Text(),
    }
    return sa.Column(column.name, types.get(column.key, column.type), key=column.key)
