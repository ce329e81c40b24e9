"""Moving rows from a legacy table into the ledger: the parts that are the same SQL everywhere.

Rules of this file: every statement runs inside the claim's one transaction; a row is taken only
while nobody else holds it; what is removed here and what is written there is the same row.

Rows are picked by ``Time`` alone: the vendor's only useful index is on that single column, so
this order costs no sort however many rows are due at the same moment. The cursor is inclusive
for the same reason; rows it already took are gone, so claims still come forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    Row,
    Select,
    String,
    func,
    literal,
    literal_column,
    null,
    select,
)

from migrator.database.guids import GuidBytes, guid_as_text
from migrator.database.types import byte_length, uuid_as_text
from migrator.ledger.tables import LedgerTables
from migrator.stores.ports import ClaimRequest
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.selection import wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What was moved into a batch; never nothing."""

    size: int
    body_bytes: int
    first_due: datetime
    last_due: datetime
    last_id: str


def in_ledger(legacy: LegacyTable, ledger: LedgerTables) -> ColumnElement[int | None]:
    """Return 1 for rows the ledger has in an open state, else NULL.

    A correlated scalar subquery on purpose: a planner must not turn it into a join with the
    whole ledger.
    """
    known = ledger.timeout.alias("known")
    return (
        select(literal_column("1"))
        .where(
            known.c.source == legacy.source,
            ledger.is_open(known, id_text(legacy)),
        )
        .limit(1)
        .correlate(legacy.table)
        .scalar_subquery()
    )


def id_text(legacy: LegacyTable) -> ColumnElement[str]:
    """Return the row's id as text, exactly as the ledger keeps it."""
    return as_text(legacy.table.c.Id)


def as_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return an id of whatever type as text."""
    if isinstance(column.type, String):
        return column
    is_bytes = isinstance(column.type, GuidBytes)
    return guid_as_text(column) if is_bytes else uuid_as_text(column)


def sized(legacy: LegacyTable, request: ClaimRequest, ledger: LedgerTables) -> CTE:
    """Return locked candidates with their position and the sum of bytes up to each."""
    row = legacy.table.c
    picked = (
        select(
            row.Id,
            row.Time,
            (byte_length(row.State) + byte_length(row.Headers)).label("bytes"),
        )
        .where(*wanted(legacy, request), in_ledger(legacy, ledger).is_(None))
        .order_by(row.Time)
        .limit(request.max_rows)
        .with_for_update(of=legacy.table, skip_locked=True)
        .cte("picked")
    )
    order = (picked.c.Time, picked.c.Id)
    return select(
        picked.c.Id,
        (func.row_number().over(order_by=order) - 1).label("row_index"),
        func.sum(picked.c.bytes).over(order_by=order).label("total"),
    ).cte("sized")


def fits(chosen: CTE, request: ClaimRequest) -> ColumnElement[bool]:
    """Return whether a row of ``sized`` is within the bytes; the first is, however large."""
    return (chosen.c.total <= literal(request.max_bytes, BigInteger)) | (chosen.c.row_index == 0)


def ledger_values(
    legacy: LegacyTable,
    request: ClaimRequest,
    batch_id: int,
    row: Any,
) -> dict[str, ColumnElement[Any]]:
    """Return columns of the ledger, and what a *row* of the legacy table has for them.

    In a shared table a row spells its owner in its own way, where the database does not mind; that
    is kept, so that it can go back as it was.
    """
    spelled = {} if legacy.owner is None else {"store_extra": row.Endpoint}
    found: dict[str, ColumnElement[Any]] = {
        "source": literal(legacy.source),
        "endpoint": literal(str(request.endpoint.name)),
        "store_id": as_text(row.Id),
        "batch_id": literal(batch_id, BigInteger),
        "destination": row.Destination,
        "saga_id": as_text(row.SagaId),
        "due": row.Time,
        "body": row.State,
        "headers": row.Headers,
        "persistence_version": row.get("PersistenceVersion", null()),
    }
    return found | spelled


def body_bytes(kept: FromClause) -> ColumnElement[int]:
    """Return the size of a body in the ledger, as ``sums`` wants it."""
    return byte_length(kept.c.body).label("body_bytes")


def sums(kept: FromClause) -> Select[Any]:
    """Return one row about all that was *kept* in a batch."""
    last_id = select(kept.c.store_id).order_by(kept.c.row_index.desc()).limit(1).scalar_subquery()
    return select(
        func.count().label("size"),
        func.sum(kept.c.body_bytes).label("body_bytes"),
        func.min(kept.c.due).label("first_due"),
        func.max(kept.c.due).label("last_due"),
        last_id.label("last_id"),
    ).select_from(kept)


def moved(row: Row[Any]) -> Moved | None:
    """Return what a row of ``sums`` says; None: nothing was moved."""
    if not row.size:
        return None
    return Moved(
        size=row.size,
        body_bytes=int(row.body_bytes),
        first_due=row.first_due,
        last_due=row.last_due,
        last_id=row.last_id,
    )
