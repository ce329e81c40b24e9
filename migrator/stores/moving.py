"""Moving rows from a legacy table into the ledger: what differs between SQL dialects.

Rules of this file: every statement runs inside the claim's one transaction; a row is taken only
while nobody else holds it; what is removed here and what is written there is the same row.

Rows are picked by ``Time`` alone: the vendor's only useful index is on that single column, so
this order costs no sort however many rows are due at the same moment. The cursor is inclusive
for the same reason; rows it already took are gone, so claims still come forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    String,
    Text,
    TextClause,
    cast,
    delete,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
)

from migrator.database.engine import CONTENT_HASH
from migrator.database.types import byte_length
from migrator.errors import StoreError
from migrator.ports import ClaimRequest
from migrator.stores.ledger_side import LedgerSide
from migrator.stores.legacy_table import LegacyTable
from migrator.stores.selection import wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What was moved into a batch; never nothing."""

    size: int
    body_bytes: int
    first_due: datetime
    last_due: datetime
    last_id: str


class Mover(Protocol):
    """Takes rows out of a legacy table and writes them into the ledger."""

    def move(
        self, connection: Connection, legacy: LegacyTable, request: ClaimRequest, batch_id: int
    ) -> Moved | None:
        """Move the soonest due rows of the request's range; None when there are none."""
        ...

    def as_stored(
        self, column: ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> ColumnElement[Any]:
        """Return a ledger column as the legacy column *key* has it."""
        ...


def mover_for(dialect: str, ledger: LedgerSide) -> Mover:
    """Return the mover of a dialect.

    Raises:
        StoreError: There is none for it.
    """
    if dialect == "postgresql":
        return PostgresqlMover(ledger)
    if dialect == "sqlite":
        return SqliteMover(ledger)
    raise StoreError(f"timeouts in a {dialect} database are not supported")


class PostgresqlMover:
    """One statement: pick and lock, sum up, delete, insert."""

    # The range is known to be in the Time index, and ids in the primary key's; without statistics
    # the planner may believe that reading the whole table is cheaper, once per batch.
    _BY_TIME: Final = text(
        "SELECT set_config('enable_seqscan', 'off', true), "
        "set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)"
    )
    _BY_ID: Final = text(
        "SELECT set_config('enable_seqscan', 'off', true), "
        "set_config('enable_bitmapscan', 'off', true)"
    )

    def __init__(self, ledger: LedgerSide) -> None:
        """Write into *ledger*."""
        self._ledger = ledger

    def move(
        self, connection: Connection, legacy: LegacyTable, request: ClaimRequest, batch_id: int
    ) -> Moved | None:
        """Move rows; those locked by others are skipped."""
        connection.execute(self.settings(request))
        return _moved(connection.execute(self.statement(legacy, request, batch_id)).one())

    def as_stored(
        self, column: ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> ColumnElement[Any]:
        """Cast text to uuid again, and a moment to the column's timestamp (sessions are UTC)."""
        wanted = legacy.table.c[key].type
        return cast(column, wanted) if key in {"Id", "SagaId", "Time"} else column

    def settings(self, request: ClaimRequest) -> TextClause:
        """Return what makes the planner walk the right index for *request*."""
        return self._BY_TIME if request.only is None else self._BY_ID

    def statement(self, legacy: LegacyTable, request: ClaimRequest, batch_id: int) -> Select[Any]:
        """Return the whole move as one statement whose result is one row of sums."""
        table, sized = legacy.table, _sized(legacy, request, self._ledger)
        taken = (
            delete(table)
            .where(table.c.Id == sized.c.Id, _fits(sized, request))
            .returning(*table.c, sized.c.row_index)
            .cte("taken")
        )
        values = _ledger_values(legacy, request, batch_id, taken.c) | {
            "row_index": taken.c.row_index,
            "content_hash": postgresql_content_hash(taken.c.Headers, taken.c.State),
        }
        kept = self._ledger.timeout
        inserted = (
            insert(kept)
            .from_select(list(values), select(*values.values()))
            .returning(kept.c.row_index, kept.c.due, kept.c.store_id, _body_bytes(kept))
            .cte("kept")
        )
        return _sums(inserted)


class SqliteMover:
    """Two statements; a write transaction is the only one there is, so nobody interferes."""

    def __init__(self, ledger: LedgerSide) -> None:
        """Write into *ledger*."""
        self._ledger = ledger

    def move(
        self, connection: Connection, legacy: LegacyTable, request: ClaimRequest, batch_id: int
    ) -> Moved | None:
        """Copy rows into the ledger, then remove exactly those."""
        table, sized = legacy.table, _sized(legacy, request, self._ledger)
        values = _ledger_values(legacy, request, batch_id, table.c) | {
            "row_index": sized.c.row_index,
            "content_hash": getattr(func, CONTENT_HASH)(table.c.Headers, table.c.State),
        }
        chosen = select(*values.values()).where(table.c.Id == sized.c.Id, _fits(sized, request))
        kept = self._ledger.timeout
        connection.execute(insert(kept).from_select(list(values), chosen))
        mine = kept.c.batch_id == batch_id
        ids = select(kept.c.store_id).where(mine)
        connection.execute(delete(table).where(table.c.Id.in_(ids)))
        rows = select(kept.c.row_index, kept.c.due, kept.c.store_id, _body_bytes(kept)).where(mine)
        return _moved(connection.execute(_sums(rows.subquery("kept"))).one())

    def as_stored(
        self, column: ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> ColumnElement[Any]:
        """Leave values alone: they came untouched."""
        del legacy, key
        return column


def in_ledger(legacy: LegacyTable, ledger: LedgerSide) -> ColumnElement[int | None]:
    """Return 1 for rows the ledger has in an open state, else NULL.

    A correlated scalar subquery on purpose: a planner must not turn it into a join with the
    whole ledger.
    """
    known = ledger.timeout.alias("known")
    return (
        select(literal_column("1"))
        .where(
            known.c.source == legacy.source,
            known.c.store_id == id_text(legacy),
            ledger.is_open(known),
        )
        .limit(1)
        .correlate(legacy.table)
        .scalar_subquery()
    )


def id_text(legacy: LegacyTable) -> ColumnElement[str]:
    """Return the row's id as text, exactly as the ledger keeps it."""
    column = legacy.table.c.Id
    return column if isinstance(column.type, String) else cast(column, Text)


def _sized(legacy: LegacyTable, request: ClaimRequest, ledger: LedgerSide) -> CTE:
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


def _fits(sized: CTE, request: ClaimRequest) -> ColumnElement[bool]:
    return (sized.c.total <= literal(request.max_bytes, BigInteger)) | (sized.c.row_index == 0)


def _ledger_values(
    legacy: LegacyTable,
    request: ClaimRequest,
    batch_id: int,
    row: Any,
) -> dict[str, ColumnElement[Any]]:
    return {
        "source": literal(legacy.source),
        "endpoint": literal(str(request.endpoint.name)),
        "store_id": cast(row.Id, Text),
        "batch_id": literal(batch_id, BigInteger),
        "destination": row.Destination,
        "saga_id": cast(row.SagaId, Text),
        "due": row.Time,
        "body": row.State,
        "headers": row.Headers,
        "persistence_version": row.PersistenceVersion,
    }


def postgresql_content_hash(
    headers: ColumnElement[Any], body: ColumnElement[Any]
) -> ColumnElement[str]:
    """Return what ``domain.timeouts.content_hash`` returns, computed by PostgreSQL."""
    content = (
        func.convert_to(func.coalesce(headers, ""), "UTF8")
        .op("||")(func.decode("00", "hex"))
        .op("||")(func.coalesce(body, func.decode("", "hex")))
    )
    return func.encode(func.sha256(content), "hex")


def _body_bytes(kept: FromClause) -> ColumnElement[int]:
    return byte_length(kept.c.body).label("body_bytes")


def _sums(kept: FromClause) -> Select[Any]:
    last_id = select(kept.c.store_id).order_by(kept.c.row_index.desc()).limit(1).scalar_subquery()
    return select(
        func.count().label("size"),
        func.sum(kept.c.body_bytes).label("body_bytes"),
        func.min(kept.c.due).label("first_due"),
        func.max(kept.c.due).label("last_due"),
        last_id.label("last_id"),
    ).select_from(kept)


def _moved(row: Row[Any]) -> Moved | None:
    if not row.size:
        return None
    return Moved(
        size=row.size,
        body_bytes=int(row.body_bytes),
        first_due=row.first_due,
        last_due=row.last_due,
        last_id=row.last_id,
    )
