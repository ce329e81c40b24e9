"""Reading a whole legacy table for preview: no bodies, no locks, no long transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Engine,
    Row,
    Select,
    case,
    inspect,
    literal,
    null,
    select,
    type_coerce,
)

from migrator.database.engine import reading
from migrator.database.failures import retrying, translating
from migrator.database.portable import flag
from migrator.database.types import UtcDateTime, byte_length
from migrator.errors import StoreError
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.conversion import expires_at
from migrator.stores.ports import DueTime, SurveyedRow
from migrator.stores.sql.legacy_table import EARLIEST, LATEST, LegacyTable
from migrator.stores.sql.local_time import due_from, due_of
from migrator.stores.sql.moving import id_text, in_ledger

CHUNK_ROWS: Final = 2000
_SAMPLED: Final = 40


def survey(
    engine: Engine, legacy: LegacyTable, ledger: LedgerTables
) -> Iterator[Sequence[SurveyedRow]]:
    """Yield all rows in chunks in the order of the primary key; see ``ports.Store.survey``.

    Works without a ledger, too: then no row is in it.
    """
    has_ledger = _has_ledger(engine, ledger)
    last_id: str | None = None
    while True:
        query = _chunk(legacy, ledger if has_ledger else None, last_id)
        rows = retrying(lambda query=query: _read(engine, legacy, query))  # type: ignore[misc] # mypy cannot type a default of a lambda
        if rows:
            yield [_surveyed(row) for row in rows]
        if len(rows) < CHUNK_ROWS:
            return
        last_id = rows[-1].id


def due_times(engine: Engine, legacy: LegacyTable, now: datetime) -> Sequence[DueTime]:
    """Return the due times of a few rows; see ``ports.Store.due_times``."""
    row, due = legacy.table.c, legacy.table.c.Time
    if engine.dialect.name != "postgresql" or getattr(due.type, "with_zone", False):
        return ()
    query = select(
        type_coerce(due, UtcDateTime(with_zone=False)).label("stored"),
        due_of(row).label("due_at"),
        row.Headers.label("headers_text"),
    ).where(*legacy.is_owned, due.between(EARLIEST, LATEST))
    parts = (
        query.order_by(due.asc()),
        query.where(due_from(row, now)).order_by(due.asc()),
        query.order_by(due.desc()),
    )
    found: list[DueTime] = []
    for part in parts:
        limited = part.limit(_SAMPLED)
        rows = retrying(lambda query=limited: _read(engine, legacy, query))  # type: ignore[misc] # mypy cannot type a default of a lambda
        if not rows and not found:
            break
        found += [
            DueTime(stored=row.stored, due_at=row.due_at, expires_at=expires_at(row.headers_text))
            for row in rows
        ]
    return found


def _has_ledger(engine: Engine, ledger: LedgerTables) -> bool:
    with translating(StoreError, doing="looking for the ledger"), reading(engine) as connection:
        table = ledger.timeout
        return inspect(connection).has_table(table.name, schema=table.schema)


def _chunk(legacy: LegacyTable, ledger: LedgerTables | None, last_id: str | None) -> Select[Any]:
    row = legacy.table.c
    known: ColumnElement[Any] = null() if ledger is None else in_ledger(legacy, ledger)
    # a driver cannot read infinity or the year 10 000
    readable = case((row.Time.between(EARLIEST, LATEST), due_of(row)), else_=null())
    query = select(
        id_text(legacy).label("id"),
        row.Destination.label("destination"),
        readable.label("due_at"),
        row.Headers.label("headers_text"),
        byte_length(row.State).label("body_bytes"),
        flag(known.is_not(None)).label("is_in_ledger"),
    )
    query = query.where(*legacy.is_owned)
    if last_id is not None:
        query = query.where(row.Id > literal(last_id, row.Id.type))
    return query.order_by(row.Id).limit(CHUNK_ROWS)


def _read(engine: Engine, legacy: LegacyTable, query: Select[Any]) -> Sequence[Row[Any]]:
    with translating(StoreError, doing=f"reading {legacy.source}"), reading(engine) as connection:
        return connection.execute(query).all()


def _surveyed(row: Row[Any]) -> SurveyedRow:
    return SurveyedRow(
        id=row.id,
        destination=row.destination,
        due_at=row.due_at,
        headers_text=row.headers_text,
        body_bytes=row.body_bytes,
        is_in_ledger=bool(row.is_in_ledger),
    )
