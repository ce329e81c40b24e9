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

from migrator.database.portable import flag, for_update, pair_in
from migrator.database.types import byte_length
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerTables
from migrator.recall.rules import RecallForecast, RecallOutcome, RecallScope, Sighting

_CHUNK: Final = 500
"""Batches whose rows are read with one query."""
_Batch = Row[*tuple[Any, ...]]


@dataclass(slots=True, kw_only=True)
class _Tally:
    in_levels: int = 0
    too_near: int = 0
    left: int = 0
    first_due: datetime | None = None
    is_exact: bool = True

    def add(self, in_levels: int, too_near: int, left: int, first_due: datetime | None) -> None:
        self.in_levels += in_levels
        self.too_near += too_near
        self.left += left
        if first_due is not None:
            self.first_due = min(self.first_due or first_due, first_due)


class Forecaster:
    """Counts within one transaction of the caller's."""

    def __init__(
        self,
        connection: Connection,
        ledger: LedgerTables,
        scope: RecallScope,
        *,
        now: datetime,
        not_before: datetime,
    ) -> None:
        """Count what *scope* means: what has left, what is too near, and what can come back."""
        self._connection = connection
        self._row = ledger.timeout
        self._batch = ledger.batch
        self._scope = scope
        self._now = now
        self._not_before = not_before
        self._tally = _Tally()

    def forecast(self, *, exact_rows: int | None) -> RecallForecast:
        """Return the counts; beyond *exact_rows* rows in between, by the batches' due times."""
        tally = self._tally
        self._add_whole()
        exact, rest = _parted(self._between(), exact_rows)
        for start in range(0, len(exact), _CHUNK):
            self._add_rows([batch.id for batch in exact[start : start + _CHUNK]])
        for batch in rest:
            self._add_estimate(batch)
        margin = self._not_before - self._now
        return RecallForecast(
            in_levels=tally.in_levels,
            too_near=tally.too_near,
            left=tally.left,
            possible_until=None if tally.first_due is None else tally.first_due - margin,
            may_find=self._may_find(),
            is_exact=tally.is_exact,
        )

    def _add_whole(self) -> None:
        """Add batches that are wholly on one side: their sizes without the rows that differ."""
        batch, row = self._batch.c, self._row.c
        is_past, is_far = self._is_past(), self._is_far()
        # counted before it is joined: a planner without statistics would look for each row again
        differing = (
            select(row.batch_id, func.count().label("rows"))
            .where(row.state.is_not(None))
            .group_by(row.batch_id)
            .subquery()
        )
        rest = batch.size - func.coalesce(differing.c.rows, 0)
        # told of each batch before it is summed up: SQL Server has no subquery within a sum
        each = (
            select(
                flag(is_past).label("is_past"),
                flag(is_far).label("is_far"),
                rest.label("rest"),
                batch.first_due,
            )
            .select_from(self._batch)
            .outerjoin(differing, differing.c.batch_id == batch.id)
            .where(*self._of_scope())
            .subquery()
        )
        query = select(
            _sum(each.c.is_past == 1, each.c.rest),
            _sum(each.c.is_far == 1, each.c.rest),
            func.min(case((each.c.is_far == 1, each.c.first_due))),
        )
        left, far, first_due = self._connection.execute(query).one()
        self._tally.add(int(far), 0, int(left), first_due)

    def _between(self) -> Sequence[_Batch]:
        batch, which = self._batch.c, self._of_scope()
        if not self._reads_rows:
            is_whole = or_(self._is_past(), batch.first_due >= self._not_before)
            which.append(flag(is_whole) == 0)
        query = (
            select(batch.id, batch.size, batch.first_due, batch.last_due)
            .where(*which)
            .order_by(batch.id.desc())
        )
        return self._connection.execute(query).all()

    def _add_rows(self, batches: Sequence[int]) -> None:
        row = self._row.c
        is_far = row.due >= self._not_before
        query = select(
            _sum(is_far, 1),
            _sum((row.due > self._now) & ~is_far, 1),
            _sum(row.due <= self._now, 1),
            func.min(case((is_far, row.due))),
        ).where(row.batch_id.in_(batches), row.state.is_(None), *of_rows(row, self._scope))
        in_levels, too_near, left, first_due = self._connection.execute(query).one()
        self._tally.add(int(in_levels), int(too_near), int(left), first_due)

    def _add_estimate(self, batch: _Batch) -> None:
        """Add a batch as if its rows were due evenly between its first and its last."""
        self._tally.is_exact = False
        first, last = batch.first_due or self._now, batch.last_due or self._now
        left = _share(first, last, self._now, batch.size)
        near = _share(first, last, self._not_before, batch.size) - left
        self._tally.add(batch.size - left - near, near, left, max(first, self._not_before))

    def _may_find(self) -> bool:
        batch = self._batch.c
        is_to_come = or_(batch.last_due.is_(None), batch.last_due > self._now)
        query = select(batch.id).where(*self._of_scope(), is_to_come).limit(1)
        return self._connection.scalar(query) is not None

    @property
    def _reads_rows(self) -> bool:
        """Whether the scope means single rows of a batch, so that none is counted by its size."""
        scope = self._scope
        return any(
            each is not None for each in (scope.destination, scope.due_from, scope.due_until)
        )

    def _is_past(self) -> ColumnElement[bool]:
        return false() if self._reads_rows else self._batch.c.last_due <= self._now

    def _is_far(self) -> ColumnElement[bool]:
        """Return the condition of a batch that is still to come, with rows that are not back.

        A batch all of whose rows came back, or were purged, has none.
        """
        if self._reads_rows:
            return false()
        row, batch = self._row.alias().c, self._batch.c
        is_there = select(row.id).where(row.batch_id == batch.id, row.state.is_(None)).exists()
        return and_(batch.first_due >= self._not_before, is_there)

    def _of_scope(self) -> list[ColumnElement[bool]]:
        batch = self._batch.c
        return [batch.state == BatchState.HANDED_OVER, *of_batches(batch, self._scope)]


def of_batches(batch: Any, scope: RecallScope) -> list[ColumnElement[bool]]:
    """Return what *scope* demands of a batch."""
    found: list[ColumnElement[bool]] = []
    if scope.source is not None:
        found.append(batch.source == scope.source)
    if scope.run is not None:
        found.append(batch.run_id == scope.run)
    return found


def of_rows(row: Any, scope: RecallScope) -> list[ColumnElement[bool]]:
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


def sighted_rows(
    ledger: LedgerTables, sightings: Collection[Sighting], scope: RecallScope, *, dialect: str
) -> Select[Any]:
    """Return a query for what ``judge`` asks of the rows of *sightings*; it locks them."""
    row, batch = ledger.timeout, ledger.batch
    keys = {key_of(sighting) for sighting in sightings}
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
    sightings: Collection[Sighting],
    scope: RecallScope,
) -> Mapping[tuple[int, int], Row[Any]]:
    """Return the rows of *sightings* that there are, by ``key_of``; they are locked."""
    query = sighted_rows(ledger, sightings, scope, dialect=connection.dialect.name)
    return {(row.batch_id, row.row_index): row for row in connection.execute(query)}


def key_of(sighting: Sighting) -> tuple[int, int]:
    """Return by which a row is found: its batch, and its index in there."""
    return sighting.row.batch, sighting.row.row_index


def judge(row: Row[Any] | None, sighting: Sighting, not_before: datetime) -> RecallOutcome:
    """Return what *sighting* is; ``RESTORED`` means that its row is to be restored.

    A row that an earlier recall began to restore may be in the store already: that is finished
    whatever this recall means, and however near it is due, else it would be sent twice.
    """
    if row is None:
        return RecallOutcome.FOREIGN
    if row.store_id != sighting.row.timeout_id or row.body_bytes != sighting.body_bytes:
        return RecallOutcome.DIFFERENT
    if row.state == RowState.RECALLED:
        return RecallOutcome.LEFTOVER
    if row.state != BatchState.HANDED_OVER:
        return RecallOutcome.UNSETTLED
    if row.going_back == RowState.RECALLED:
        return RecallOutcome.RESTORED
    if not row.is_meant:
        return RecallOutcome.OUT_OF_SCOPE
    return RecallOutcome.TOO_NEAR if row.due < not_before else RecallOutcome.RESTORED
