"""Counting an endpoint's rows in the database, and reading the few that need inspection.

Rules of this file: all counts are one pass over the table. Due times are grouped by moments from
one reading of the clock. Only the few groups are sorted, never the rows. Nothing is locked or
changed, and no body is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from migrator.database.portable import among, flag, prefer_indexes
from migrator.database.types import byte_length, exactly, minute_of, second_of, utf8_length
from migrator.ledger.tables import LedgerTables
from migrator.stores.requests import RowGroup, ScannedRow, SummaryRequest
from migrator.stores.sql.legacy_table import EARLIEST, LATEST, LegacyTable
from migrator.stores.sql.local_time import due_after, due_from, due_of, due_until, zone_of
from migrator.stores.sql.moving import id_text, in_ledger

_CHUNK_ROWS: Final = 2000
_UNUSABLE: Final = -1
"""The slot of rows without a due time, or with one that no timeout manager reaches."""


class TableSummary:
    def __init__(
        self,
        connection: sa.Connection,
        legacy: LegacyTable,
        ledger: LedgerTables | None,
        request: SummaryRequest,
    ) -> None:
        self._connection = connection
        first_left = None
        if request.max_rows is not None:
            prefer_indexes(connection)  # or of a large table all would be read for a few
            first_left = connection.scalar(_behind(legacy, request.max_rows))
        self._legacy = replace(legacy, before=first_left)
        self._request = request
        self.is_whole = first_left is None
        """Whether the sample has all rows."""
        # an endpoint that was never claimed from has nothing there: no row is looked up
        has_met = ledger is not None and connection.scalar(_first_batch(legacy, ledger)) is not None
        self._ledger = ledger if has_met else None

    def groups(self, ends: Sequence[datetime]) -> Sequence[RowGroup]:
        """Return counts of all rows, grouped by what needs no conversion.

        *ends* are of the spans of due times, each inclusive; ascending, aware, UTC. Later rows are
        in one more span.
        """
        statement = _groups(self._legacy, self._ledger, self._request, ends)
        return [
            RowGroup(
                slot=None if row.slot == _UNUSABLE else row.slot,
                destination=row.destination,
                is_in_ledger=bool(row.is_in_ledger),
                is_odd=bool(row.is_odd),
                rows=row.found,
                bytes=int(row.size),
                an_id=row.an_id,
                first_due=row.first_due,
                last_due=row.last_due,
            )
            for row in self._connection.execute(statement)
        ]

    def odd_rows(self, destinations: Collection[str]) -> Iterator[Sequence[ScannedRow]]:
        """Yield the rows to migrate that look odd, or go to one of *destinations* or to none."""
        yield from self._stream(self._is_strange(destinations))

    def rows_due(
        self, after: datetime, until: datetime, *, not_for: Collection[str]
    ) -> Iterator[Sequence[ScannedRow]]:
        """Yield the rows to migrate due after *after*, up to *until*, without ``odd_rows``."""
        row = self._legacy.table.c
        is_plain = ~self._is_strange(not_for)
        yield from self._stream(due_after(row, after), due_until(row, until), is_plain)

    def rows_called(self, ids: Sequence[str]) -> Sequence[ScannedRow]:
        return self._read(self._rows().where(self._legacy.table.c.Id.in_(ids))) if ids else ()

    def sample_rows(self, rows: int, *, not_for: Collection[str]) -> Sequence[ScannedRow]:
        """Half first by key, half last, without odd ones: keys begin with random digits."""
        key = self._legacy.table.c.Id
        plain = self._rows().where(*self._is_meant(), ~self._is_strange(not_for))
        half = rows // 2
        first = self._read(plain.order_by(key).limit(rows - half))
        return [*first, *self._read(plain.order_by(key.desc()).limit(half))]

    def dues_per_minute(self, after: datetime, at_least: int) -> Counter[datetime]:
        """By the beginning of the minute; aware, UTC."""
        row = self._legacy.table.c
        is_later = due_after(row, after), due_until(row, LATEST)
        return self._per(minute_of(due_of(row)), *is_later, at_least=at_least)

    def dues_per_second(self, ranges: Sequence[tuple[datetime, datetime]]) -> Counter[datetime]:
        """Later than one end and up to the other; by the beginning of the second; aware, UTC."""
        row = self._legacy.table.c
        within = (sa.and_(due_after(row, a), due_until(row, b)) for a, b in ranges)
        return self._per(second_of(due_of(row)), sa.or_(*within))

    def _per(
        self,
        moment: sa.ColumnElement[datetime],
        *conditions: sa.ColumnElement[bool],
        at_least: int = 1,
    ) -> Counter[datetime]:
        meant = sa.select(moment.label("at")).where(*self._legacy.is_owned, *conditions)
        at, found = meant.subquery("moments").c.at, sa.func.count().label("found")
        statement = sa.select(at, found).group_by(at).having(sa.func.count() >= at_least)
        return Counter({row.at: row.found for row in self._connection.execute(statement)})

    def _rows(self) -> sa.Select[Any]:
        return scanned(self._legacy, self._ledger)

    def _stream(self, *conditions: sa.ColumnElement[bool]) -> Iterator[Sequence[ScannedRow]]:
        statement = self._rows().where(*self._is_meant(), *conditions)
        options = {"yield_per": _CHUNK_ROWS}
        with self._connection.execute(statement, execution_options=options) as found:
            yield from map(scanned_rows, found.partitions())

    def _read(self, statement: sa.Select[Any]) -> Sequence[ScannedRow]:
        return scanned_rows(self._connection.execute(statement).all())

    def _is_meant(self) -> Iterator[sa.ColumnElement[bool]]:
        row, request = self._legacy.table.c, self._request
        after = request.due_after
        yield due_from(row, EARLIEST) if after is None else due_after(row, after)
        yield due_until(row, request.due_until)
        if self._ledger is not None:
            yield in_ledger(self._legacy, self._ledger).is_(None)

    def _is_strange(self, destinations: Collection[str]) -> sa.ColumnElement[bool]:
        destination = self._legacy.table.c.Destination
        is_listed = [among(exactly(destination), destinations)] if destinations else []
        is_odd = _is_odd(self._legacy.table.c, self._request)
        return sa.or_(is_odd, destination.is_(None), *is_listed)


def scanned(
    legacy: LegacyTable, ledger: LedgerTables | None, *, reads_text: bool = True
) -> sa.Select[Any]:
    """*ledger* None: no row is in it. Without *reads_text*: neither destination nor headers."""
    row = legacy.table.c
    # a driver cannot read infinity or the year 10 000
    readable = sa.case((row.Time.between(EARLIEST, LATEST), due_of(row)), else_=sa.null())
    return sa.select(
        id_text(legacy).label("id"),
        (row.Destination if reads_text else sa.null()).label("destination"),
        readable.label("due_at"),
        (row.Headers if reads_text else sa.null()).label("headers_text"),
        byte_length(row.State).label("body_bytes"),
        _is_known(legacy, ledger).label("is_in_ledger"),
    ).where(*legacy.is_owned)


def scanned_rows(found: Sequence[sa.Row[Any]]) -> Sequence[ScannedRow]:
    return [ScannedRow(**{**row._mapping, "is_in_ledger": bool(row.is_in_ledger)}) for row in found]


def _groups(
    legacy: LegacyTable,
    ledger: LedgerTables | None,
    request: SummaryRequest,
    ends: Sequence[datetime],
) -> sa.Select[Any]:
    row = legacy.table.c
    is_local = zone_of(row.Time) is not None
    is_usable = row.Time.between(EARLIEST, LATEST)
    timed = sa.select(
        # PostgreSQL cannot compute with the local time of infinity
        (sa.case((is_usable, due_of(row))) if is_local else row.Time).label("due"),
        flag(is_usable).label("is_usable"),
        exactly(row.Destination).label("destination"),
        _is_known(legacy, ledger).label("is_in_ledger"),
        flag(_is_odd(row, request)).label("is_odd"),
        (byte_length(row.State) + utf8_length(row.Headers)).label("size"),
        id_text(legacy).label("id"),
    ).where(*legacy.is_owned)
    if is_local:  # without it the moment would be computed anew for each comparison
        timed = timed.offset(sa.literal_column("0"))
    each = timed.subquery("timed").c
    slot = sa.case((each.is_usable == sa.literal_column("0"), _number(_UNUSABLE)),
                   else_=_slot(each.due, ends, 0, len(ends)))  # fmt: skip
    # grouped by columns: a driver that numbers its parameters makes another expression of the
    # same one each time it is written
    keys = (slot.label("slot"), each.destination, each.is_in_ledger, each.is_odd)
    # a driver cannot read infinity
    due = sa.case((each.is_usable != sa.literal_column("0"), each.due)).label("due")
    group = sa.select(*keys, each.size, each.id, due).subquery("grouped").c
    by = (group.slot, group.destination, group.is_in_ledger, group.is_odd)
    return sa.select(
        *by,
        sa.func.count().label("found"),
        sa.func.sum(sa.cast(group.size, sa.BigInteger)).label("size"),
        sa.func.min(group.id).label("an_id"),
        sa.func.min(group.due).label("first_due"),
        sa.func.max(group.due).label("last_due"),
    ).group_by(*by)


def _slot(due: Any, ends: Sequence[datetime], low: int, high: int) -> sa.ColumnElement[int]:
    if low == high:
        return _number(low)
    middle = (low + high) // 2
    below, above = _slot(due, ends, low, middle), _slot(due, ends, middle + 1, high)
    return sa.case((due <= ends[middle], below), else_=above)


def _number(number: int) -> sa.ColumnElement[int]:
    return sa.literal_column(str(number), sa.Integer())


def _is_odd(row: Any, request: SummaryRequest) -> sa.ColumnElement[bool]:
    """Return the condition, never NULL, of rows with unusual sizes or headers."""
    longest = request.headers_max_bytes
    return sa.or_(
        row.Headers.is_(None),
        ~row.Headers.like("{%"),
        byte_length(row.State) > request.body_max_bytes,
        *([] if longest is None else [byte_length(row.Headers) > longest]),
    )


def _is_known(legacy: LegacyTable, ledger: LedgerTables | None) -> sa.ColumnElement[int]:
    known: sa.ColumnElement[Any] = sa.null() if ledger is None else in_ledger(legacy, ledger)
    return flag(known.is_not(None))


def _behind(legacy: LegacyTable, rows: int) -> sa.Select[Any]:
    key = legacy.table.c.Id
    return sa.select(id_text(legacy)).where(*legacy.is_owned).order_by(key).offset(rows).limit(1)


def _first_batch(legacy: LegacyTable, ledger: LedgerTables) -> sa.Select[Any]:
    batch = ledger.batch
    return sa.select(batch.c.id).where(batch.c.source == legacy.source).limit(1)
