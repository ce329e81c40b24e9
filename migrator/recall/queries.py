"""What the ledger says: how much waits in the delay levels, and what a message found there is.

Rules of this file: a batch whose rows are all due, or all due later than the margin, is counted
by its size; rows are read only of batches in between, and those that differ from their batch. A
ledger with a million rows is asked this again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    and_,
    case,
    false,
    func,
    or_,
    select,
    true,
)

from migrator.database.engine import reading
from migrator.database.portable import among, flag, for_update, pair_in, prefer_indexes
from migrator.database.types import byte_length
from migrator.delays.tagged import TaggedMessage
from migrator.errors import LedgerError
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.conversion import NOT_TAKEN_BACK
from migrator.recall.rules import RecallForecast, RecallOutcome, Scope

_CHUNK: Final = 500
"""Batches whose rows are read with one query."""
_Batch = Row[*tuple[Any, ...]]
_Counts = tuple[int, int, int, datetime | None]
"""In the levels, too near, left; and when the first of those in the levels is due."""


def forecast(
    engine: Engine,
    tables: LedgerTables,
    scope: Scope,
    *,
    now: datetime,
    not_before: datetime,
    exact_rows: int | None = None,
) -> RecallForecast:
    """Return what is still to be found in the levels, by the ledger; changes nothing.

    Args:
        engine: The ledger's database.
        tables: The ledger.
        scope: Which rows are meant.
        now: What was due before has left.
        not_before: What is due before is too near.
        exact_rows: How many rows are read at most, of batches that are due in part; beyond
            that, such batches count by their due times. None: all are read.
    """
    with reading(engine, LedgerError, doing="counting what could be recalled") as connection:
        prefer_indexes(connection)
        count = _Counting(connection, tables, scope, now, not_before)
        exact, rest = _parted(count.between(), exact_rows)
        counts = [count.of_whole_batches(), *map(count.estimated, rest)]
        for start in range(0, len(exact), _CHUNK):
            counts.append(count.of_rows([batch.id for batch in exact[start : start + _CHUNK]]))
        may_find = count.may_find()
    in_levels, too_near, left, dues = zip(*counts, strict=True)
    first_due = min((due for due in dues if due is not None), default=None)
    return RecallForecast(
        in_levels=sum(in_levels),
        too_near=sum(too_near),
        left=sum(left),
        possible_until=None if first_due is None else first_due - (not_before - now),
        may_find=may_find,
        is_exact=not rest,
    )


@dataclass(frozen=True, slots=True)
class _Counting:
    """Counts what *scope* means: what has left, what is too near, and what can come back."""

    connection: Connection
    ledger: LedgerTables
    scope: Scope
    now: datetime
    not_before: datetime

    def of_whole_batches(self) -> _Counts:
        """Count batches that are wholly on one side: their sizes without the rows that differ."""
        batch, row = self.ledger.batch.c, self.ledger.timeout.c
        is_past, is_far = self._is_past(), self._is_far()
        # counted before it is joined: a planner without statistics would look for each row again
        differing = (
            select(row.batch_id, func.count().label("rows"))
            .where(row.state.is_not(None))
            .group_by(row.batch_id)
            .subquery()
        )
        rest = batch.size - func.coalesce(differing.c.rows, 0)
        # computed for each batch before it is summed up: SQL Server has no subquery within a sum
        each = (
            select(
                flag(is_past).label("is_past"),
                flag(is_far).label("is_far"),
                rest.label("rest"),
                batch.first_due,
            )
            .select_from(self.ledger.batch)
            .outerjoin(differing, differing.c.batch_id == batch.id)
            .where(*self._of_scope())
            .subquery()
        )
        query = select(
            _sum(each.c.is_past == 1, each.c.rest),
            _sum(each.c.is_far == 1, each.c.rest),
            func.min(case((each.c.is_far == 1, each.c.first_due))),
        )
        left, far, first_due = self.connection.execute(query).one()
        return int(far), 0, int(left), first_due

    def between(self) -> Sequence[_Batch]:
        batch, which = self.ledger.batch.c, self._of_scope()
        if not self._reads_rows:
            is_whole = or_(self._is_past(), batch.first_due >= self.not_before)
            which.append(flag(is_whole) == 0)
        query = (
            select(batch.id, batch.size, batch.first_due, batch.last_due)
            .where(*which)
            .order_by(batch.id.desc())
        )
        return self.connection.execute(query).all()

    def of_rows(self, batches: Sequence[int]) -> _Counts:
        row = self.ledger.timeout.c
        is_far = row.due >= self.not_before
        query = select(
            _sum(is_far, 1),
            _sum((row.due > self.now) & ~is_far, 1),
            _sum(row.due <= self.now, 1),
            func.min(case((is_far, row.due))),
        ).where(row.batch_id.in_(batches), row.state.is_(None), *of_rows(row, self.scope))
        in_levels, too_near, left, first_due = self.connection.execute(query).one()
        return int(in_levels), int(too_near), int(left), first_due

    def estimated(self, batch: _Batch) -> _Counts:
        """Count a batch as if its rows were due evenly between its first and its last."""
        first, last = batch.first_due or self.now, batch.last_due or self.now
        left = _share(first, last, self.now, batch.size)
        near = _share(first, last, self.not_before, batch.size) - left
        return batch.size - left - near, near, left, max(first, self.not_before)

    def may_find(self) -> bool:
        batch = self.ledger.batch.c
        is_to_come = or_(batch.last_due.is_(None), batch.last_due > self.now)
        query = select(batch.id).where(*self._of_scope(), is_to_come).limit(1)
        return self.connection.scalar(query) is not None

    @property
    def _reads_rows(self) -> bool:
        """Whether the scope means single rows of a batch, so that none is counted by its size."""
        scope = self.scope
        return (scope.destination, scope.due_from, scope.due_until) != (None, None, None)

    def _is_past(self) -> ColumnElement[bool]:
        return false() if self._reads_rows else self.ledger.batch.c.last_due <= self.now

    def _is_far(self) -> ColumnElement[bool]:
        """Return the condition of a batch that is still to come, with rows that are not back.

        A batch all of whose rows came back, or were purged, has none.
        """
        if self._reads_rows:
            return false()
        row, batch = self.ledger.timeout.alias().c, self.ledger.batch.c
        is_there = select(row.id).where(row.batch_id == batch.id, row.state.is_(None)).exists()
        return and_(batch.first_due >= self.not_before, is_there)

    def _of_scope(self) -> list[ColumnElement[bool]]:
        batch = self.ledger.batch.c
        return [batch.state == BatchState.HANDED_OVER, *of_batches(batch, self.scope)]


def kept_in_quarantine(engine: Engine, tables: LedgerTables, scope: Scope) -> Mapping[str, int]:
    """Return how many rows of *scope* their store does not take back, by reason."""
    row, batch = tables.timeout.c, tables.batch.c
    which = [row.state == RowState.QUARANTINED, row.reason.in_(NOT_TAKEN_BACK)]
    if meant := of_batches(batch, scope):
        which.append(row.batch_id.in_(select(batch.id).where(*meant)))
    query = select(row.reason, func.count()).where(*which).group_by(row.reason)
    with reading(engine, LedgerError, doing="counting the quarantine by reason") as connection:
        prefer_indexes(connection)
        found = connection.execute(query).all()
    return {str(reason): int(count) for reason, count in sorted(tuple(each) for each in found)}


def of_batches(batch: Any, scope: Scope) -> list[ColumnElement[bool]]:
    """Return what *scope* demands of a batch."""
    found: list[ColumnElement[bool]] = []
    if scope.sources is not None:
        found.append(among(batch.source, scope.sources))
    if scope.run is not None:
        found.append(batch.run_id == scope.run)
    if scope.since is not None:
        found.append(batch.claimed_at >= scope.since)
    return found


def of_rows(row: Any, scope: Scope) -> list[ColumnElement[bool]]:
    """Return what *scope* demands of a row beyond its batch."""
    found: list[ColumnElement[bool]] = []
    if scope.destination is not None:
        found.append(row.destination == scope.destination)
    if scope.due_from is not None:
        found.append(row.due >= scope.due_from)
    if scope.due_until is not None:
        found.append(row.due < scope.due_until)
    return found


def _sum(which: ColumnElement[bool], value: Any) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((which, value), else_=0)), 0)


def _parted(
    batches: Sequence[_Batch], exact_rows: int | None
) -> tuple[Sequence[_Batch], Sequence[_Batch]]:
    """Return the batches whose rows are read, and the rest."""
    rows = 0
    for index, batch in enumerate(batches):
        rows += batch.size
        if exact_rows is not None and rows > exact_rows:
            return batches[:index], batches[index:]
    return batches, ()


def _share(first: datetime, last: datetime, until: datetime, size: int) -> int:
    length = max(last - first, timedelta(microseconds=1))
    return round(size * min(max((until - first) / length, 0.0), 1.0))


# ── messages that were found ──────────────────────────────────────────────────────────────────


def locked_rows(
    ledger: LedgerTables, messages: Collection[TaggedMessage], scope: Scope, *, dialect: str
) -> Select[Any]:
    """Return a query for what ``judge`` asks of the rows of *messages*; it locks them."""
    row, batch = ledger.timeout, ledger.batch
    keys = {each.row for each in messages}
    meant = [*of_batches(batch.c, scope), *of_rows(row.c, scope)]
    query = (
        select(
            row.c.id,
            row.c.batch_id,
            row.c.row_index,
            row.c.source,
            row.c.store_id,
            row.c.due,
            func.coalesce(row.c.state, batch.c.state).label("state"),
            byte_length(row.c.body).label("body_bytes"),
            row.c.going_back,
            flag(and_(*meant) if meant else true()).label("is_meant"),
        )
        .join(batch, batch.c.id == row.c.batch_id)
        .where(pair_in(row.c.batch_id, row.c.row_index, keys, dialect=dialect))
    )
    return for_update(query, row)


def rows_of(
    connection: Connection,
    ledger: LedgerTables,
    messages: Collection[TaggedMessage],
    scope: Scope,
) -> Mapping[tuple[int, int], Row[Any]]:
    """Return the rows of *messages* that there are, by batch and index; they are locked."""
    query = locked_rows(ledger, messages, scope, dialect=connection.dialect.name)
    return {(row.batch_id, row.row_index): row for row in connection.execute(query)}


def judge(row: Row[Any] | None, message: TaggedMessage, not_before: datetime) -> RecallOutcome:
    """Return what *message* is; ``RESTORED`` means that its row is to be restored.

    A row that an earlier recall began to restore may be in the store already: that is finished
    whatever this recall means, and however near it is due, else it would be sent twice.
    """
    if row is None:
        return RecallOutcome.FOREIGN
    if row.store_id != message.timeout_id or row.body_bytes != message.body_bytes:
        return RecallOutcome.DIFFERENT
    if row.state == RowState.RECALLED:
        return RecallOutcome.LEFTOVER
    if row.going_back == RowState.RECALLED:
        return RecallOutcome.RESTORED
    if not row.is_meant:
        return RecallOutcome.OUT_OF_SCOPE
    if row.state != BatchState.HANDED_OVER:
        return RecallOutcome.UNSETTLED
    return RecallOutcome.TOO_NEAR if row.due < not_before else RecallOutcome.RESTORED
