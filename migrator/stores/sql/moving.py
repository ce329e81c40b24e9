"""Moving rows from a legacy table into the ledger: which rows are wanted, and how they move.

Rules of this file: every statement runs inside the claim's one transaction. A row is taken only if
no other transaction has locked it. The row removed here is the row written there.

Rows are picked by ``Time`` alone: the vendor's only useful index is on that single column, so this
order costs no sort however many rows are due at the same moment. The cursor is inclusive for the
same reason; rows it already took are gone, so claims still advance.

PostgreSQL and SQLite hash rows as they move (``sized``). SQL Server, whose text is UTF-16, and
Oracle, whose STANDARD_HASH takes no LOB and whose DBMS_CRYPTO needs a grant, cannot. There rows are
picked and locked, read and hashed here, copied and removed (``move_rows``). All four steps must
concern the same rows, and reading is limited in size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.types import Uuid

from migrator.database.portable import row_by_row
from migrator.database.types import GuidBytes, byte_length, exactly, guid_as_text, uuid_as_text
from migrator.errors import RowsKept, StoreError
from migrator.ledger.batches import timeouts_of
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import RunId, StoredTimeout, content_hash
from migrator.stores.requests import ClaimRequest, Cursor, trial_request
from migrator.stores.sql.legacy_table import EARLIEST, LegacyTable
from migrator.stores.sql.local_time import due_after, due_from, due_until
from migrator.text import counted

_NUL: Final = "\0"
MOST_ROWS: Final = 1000
"""Rows of one claim: SQL Server locks a whole table instead of 5000 rows."""
_CHUNK_ROWS: Final = 500
"""Rows copied by one statement: SQL Server takes 2100 parameters, Oracle 1000 in a list."""
_CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Bodies and headers read at a time; a larger row is read alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    legacy: LegacyTable
    ledger: LedgerTables
    request: ClaimRequest
    batch_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    size: int
    body_bytes: int
    first_due: datetime
    last_due: datetime
    last_id: str
    rows: Sequence[StoredTimeout] | None = None
    """By row index; None: they have to be read from the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    id: str
    row_index: int
    content_hash: str


Copier = Callable[[Sequence[Copied]], int]


def parameters(move: Move) -> dict[str, Any]:
    request = move.request
    found = {
        "batch_id": move.batch_id,
        "due_after": request.due_after,
        "due_until": request.due_until,
        "cursor_due_at": request.cursor and request.cursor.due_at,
        "max_rows": request.max_rows,
        "max_bytes": request.max_bytes,
    }
    return {name: value for name, value in found.items() if value is not None}


def parametric(
    legacy: LegacyTable, ledger: LedgerTables, endpoint: StoreEndpoint, names: Iterable[str]
) -> Move:
    """One statement serves all claims of the endpoint that have values for the same names."""
    given: dict[str, Any] = {name: sa.bindparam(name) for name in names}
    batch_id, due_at = given.pop("batch_id"), given.pop("cursor_due_at", None)
    cursor = None if due_at is None else Cursor(due_at=due_at, id="")
    request = replace(trial_request(RunId(0), endpoint), **given, cursor=cursor)
    return Move(legacy=legacy, ledger=ledger, request=request, batch_id=batch_id)


def _literal(value: Any, type_: sa.types.TypeEngine[Any]) -> sa.ColumnElement[Any]:
    is_parameter = isinstance(value, sa.BindParameter)
    return sa.type_coerce(value, type_) if is_parameter else sa.literal(value, type_)


def in_ledger(legacy: LegacyTable, ledger: LedgerTables) -> sa.ColumnElement[int | None]:
    """A correlated subquery on purpose: a planner must not join it with the whole ledger."""
    known = ledger.timeout.alias("known")
    return (
        sa.select(sa.literal_column("1"))
        .where(
            known.c.source == legacy.source,
            ledger.is_open(known, id_text(legacy)),
        )
        .limit(1)
        .correlate(legacy.table)
        .scalar_subquery()
    )


def id_text(legacy: LegacyTable) -> sa.ColumnElement[str]:
    return as_text(legacy.table.c.Id)


def as_text(column: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
    if isinstance(column.type, sa.String):
        return column
    is_bytes = isinstance(column.type, GuidBytes)
    return guid_as_text(column) if is_bytes else uuid_as_text(column)


def sized(move: Move) -> sa.CTE:
    """Return locked candidates with their position and the sum of bytes up to each."""
    legacy, request = move.legacy, move.request
    row = legacy.table.c
    picked = (
        sa.select(
            row.Id,
            row.Time,
            (byte_length(row.State) + byte_length(row.Headers)).label("bytes"),
        )
        .where(*wanted(legacy, request), in_ledger(legacy, move.ledger).is_(None))
        .order_by(row.Time)
        .limit(request.max_rows)
        .with_for_update(of=legacy.table, skip_locked=True)
        .cte("picked")
    )
    order = (picked.c.Time, picked.c.Id)
    return sa.select(
        picked.c.Id,
        (sa.func.row_number().over(order_by=order) - 1).label("row_index"),
        sa.func.sum(picked.c.bytes).over(order_by=order).label("total"),
    ).cte("sized")


def fits(chosen: sa.CTE, request: ClaimRequest) -> sa.ColumnElement[bool]:
    """Return whether a row of ``sized`` is within the bytes; the first always is."""
    return (chosen.c.total <= _literal(request.max_bytes, sa.BigInteger())) | (
        chosen.c.row_index == 0
    )


def ledger_values(move: Move, row: Any) -> dict[str, sa.ColumnElement[Any]]:
    """Rows of a shared table keep their own spelling of the owner, to go back as they were."""
    legacy = move.legacy
    spelled = {} if legacy.owner is None else {"store_extra": row.Endpoint}
    found: dict[str, sa.ColumnElement[Any]] = {
        "source": sa.literal(legacy.source),
        "endpoint": sa.literal(str(move.request.endpoint.name)),
        "store_id": as_text(row.Id),
        "batch_id": _literal(move.batch_id, sa.BigInteger()),
        "destination": row.Destination,
        "saga_id": as_text(row.SagaId),
        "due": row.Time,
        "body": row.State,
        "headers": row.Headers,
        "persistence_version": row.get("PersistenceVersion", sa.null()),
    }
    return found | spelled


def moved(found: Iterable[Sequence[Any]]) -> Moved | None:
    """Sum up rows of ``content_of``, in any order; None: there are none."""
    rows = sorted(timeouts_of(found), key=attrgetter("row_index"))
    if not rows:
        return None
    due = [row.due_at for row in rows]
    return Moved(
        size=len(rows),
        body_bytes=sum(len(row.body) for row in rows),
        first_due=min(due),
        last_due=max(due),
        last_id=rows[-1].id,
        rows=rows,
    )


def wanted(legacy: LegacyTable, request: ClaimRequest) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a claimable row; a lock or the ledger may still exclude it."""
    found = [*legacy.is_owned, *_in_range(legacy, request)]
    if request.only is not None:
        found += _called(legacy, request.only)
    if request.but_for:
        found.append(legacy.table.c.Id.not_in(ids_for(legacy, request.but_for)))
    return found


def ids_for(legacy: LegacyTable, ids: Iterable[str]) -> Collection[str]:
    """Return *ids* in the type of the table's key, without those it cannot contain.

    A GUID may be written in any letter case. Where the key is text, the text itself counts, too.
    """
    is_guid = isinstance(legacy.table.c.Id.type, Uuid | GuidBytes)
    found: set[str] = set()
    for each in ids:
        guid = guid_text(each)
        if guid is not None:
            found.add(guid)
        if not is_guid and is_storable(each):
            found.add(each)
    return sorted(found)


def _called(legacy: LegacyTable, ids: Collection[str]) -> list[sa.ColumnElement[bool]]:
    """Search the key by its own collation, then compare text that is no GUID exactly."""
    key, wanted_ids = legacy.table.c.Id, ids_for(legacy, ids)
    texts = [each for each in wanted_ids if guid_text(each) is None]
    if not texts:
        return [key.in_(wanted_ids)]
    guids = [each for each in wanted_ids if guid_text(each) is not None]
    return [key.in_(wanted_ids), sa.or_(key.in_(guids), exactly(key).in_(texts))]


def guid_text(text: str) -> str | None:
    """Return a GUID as databases write it (lower case, hyphens); None: *text* is none."""
    try:
        return str(UUID(text))
    except ValueError:
        return None


def is_storable(text: str) -> bool:
    """False for a NUL, and for anything that is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return _NUL not in text


def _in_range(legacy: LegacyTable, request: ClaimRequest) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on ``Time``; they also exclude NULL and both infinities."""
    row, after = legacy.table.c, request.due_after
    found = [
        due_until(row, request.due_until),
        due_from(row, EARLIEST) if after is None else due_after(row, after),
    ]
    if request.cursor is not None:
        found.append(due_from(row, request.cursor.due_at))
    return found


def candidates(legacy: LegacyTable, ledger: LedgerTables, request: ClaimRequest) -> sa.Select[Any]:
    return (
        sa.select(id_text(legacy).label("id"))
        .where(*wanted(legacy, request), in_ledger(legacy, ledger).is_(None))
        .order_by(legacy.table.c.Time)
        .limit(min(request.max_rows, MOST_ROWS))
    )


def picking(move: Move) -> sa.Select[Any]:
    """Soonest first, with sizes; the dialect adds limit and lock."""
    legacy = move.legacy
    row = legacy.table.c
    return (
        sa.select(
            id_text(legacy).label("id"),
            row.Time.label("due"),
            byte_length(row.State).label("body_bytes"),
            byte_length(row.Headers).label("headers_bytes"),
        )
        .where(*wanted(legacy, move.request), in_ledger(legacy, move.ledger).is_(None))
        .order_by(row.Time)
    )


def reading_content(legacy: LegacyTable, ids: Sequence[str], hint: str = "") -> sa.Select[Any]:
    row = legacy.table.c
    query = sa.select(
        id_text(legacy).label("id"), row.Headers.label("headers"), row.State.label("body")
    ).where(row.Id.in_(ids))
    return query.with_hint(legacy.table, hint, "mssql") if hint else query


def removing(legacy: LegacyTable, ids: Sequence[str]) -> sa.Delete:
    removal = sa.delete(legacy.table).where(legacy.table.c.Id.in_(ids))
    return row_by_row(removal, past_locked=True)


def move_rows(
    connection: sa.Connection,
    move: Move,
    picked: Sequence[sa.Row[Any]],
    copy: Copier,
    *,
    hint: str = "",
) -> Moved | None:
    """Move the first rows of *picked*, as many as the request has bytes for; at least one.

    *hint*: how SQL Server finds rows by their ids. Raises ``StoreError`` if a row disappeared; the
    caller rolls back.
    """
    legacy, rows = move.legacy, fitting(picked, move.request.max_bytes)
    if not rows:
        return None
    position = 0
    for chunk in _chunks(rows):
        ids = [row.id for row in chunk]
        hashes = {
            found.id: content_hash(found.headers, found.body)
            for found in connection.execute(reading_content(legacy, ids, hint))
        }
        demand(legacy, "read", len(hashes), of=len(chunk))
        copied = copy(
            [
                Copied(id=row.id, row_index=position + place, content_hash=hashes[row.id])
                for place, row in enumerate(chunk)
            ]
        )
        demand(legacy, "copied", copied, of=len(chunk))
        removed = connection.execute(removing(legacy, ids)).rowcount
        demand_removed(legacy, removed, of=len(chunk))
        position += len(chunk)
    return summed(rows)


def summed(rows: Sequence[sa.Row[Any]]) -> Moved:
    return Moved(
        size=len(rows),
        body_bytes=sum(row.body_bytes for row in rows),
        first_due=rows[0].due,
        last_due=rows[-1].due,
        last_id=rows[-1].id,
    )


def demand(legacy: LegacyTable, done: str, count: int, *, of: int) -> None:
    """Raise ``StoreError`` unless all rows were *done*; the caller rolls back."""
    if count != of:
        were = f"{counted(count, 'was', 'were')} {done}"
        raise StoreError(f"{legacy.source}: of {counted(of, 'row')}, {were}; rolled back")


def demand_removed(legacy: LegacyTable, count: int, *, of: int) -> None:
    """Raise ``RowsKept`` if the table silently kept copied rows; the caller rolls back."""
    if count < of:
        raise RowsKept(
            f"{legacy.source}: rows that are removed stay there: of {counted(of, 'row')}, "
            f"{counted(count, 'was', 'were')} removed; rolled back"
        )
    demand(legacy, "removed", count, of=of)


def fitting(picked: Sequence[sa.Row[Any]], max_bytes: int) -> Sequence[sa.Row[Any]]:
    totals = accumulate(row.body_bytes + row.headers_bytes for row in picked)
    return picked[: max(sum(total <= max_bytes for total in totals), 1)]


def _chunks(rows: Sequence[sa.Row[Any]]) -> Iterator[Sequence[sa.Row[Any]]]:
    begin, size = 0, 0
    for end, row in enumerate(rows):
        own = row.body_bytes + row.headers_bytes
        if end > begin and (end - begin == _CHUNK_ROWS or size + own > _CHUNK_BYTES):
            yield rows[begin:end]
            begin, size = end, 0
        size += own
    yield rows[begin:]
