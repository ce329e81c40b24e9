"""What only an operator may change: the outcome of a doubtful batch, and what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from sqlalchemy import Connection, Engine, Row, Select, case, delete, or_, select, update

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.portable import MOST_IN_LIST, first_for_update
from migrator.database.types import database_now
from migrator.domain.states import RAISES_ATTEMPT, BatchState, Event, RowState, next_state
from migrator.domain.timeouts import BatchId, RunId
from migrator.errors import LedgerError
from migrator.ledger.purging import count_purged
from migrator.ledger.tables import LedgerTables

Resolution = Literal[BatchState.HANDED_OVER, BatchState.CLAIMED]
_EVENTS: Final = {BatchState.HANDED_OVER: Event.RECEIPT, BatchState.CLAIMED: Event.ABANDON}
_PURGE_ROWS: Final = 5000
"""Rows deleted per transaction."""
_SETTLED: Final = (
    BatchState.HANDED_OVER,
    BatchState.DISPATCHED,
    BatchState.RELEASED,
    BatchState.RECALLED,
)
_NOBODY: Final = 0
"""A token no lease ever has: whoever owns the lane adopts the batch."""


class SqlUpkeep:
    """Decisions of an operator about one ledger."""

    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        """Work on the ledger in *tables*."""
        self._engine = engine
        self._tables = tables

    def resolve(self, batch: BatchId, outcome: Resolution) -> None:
        """Record what an operator found out about a doubtful batch.

        ``claimed`` means that none of it reached its delays: it is handed over again by the
        lane's owner. ``handed_over`` means that all of it did.

        Raises:
            LedgerError: There is no such batch, or it is not doubtful. Nothing was changed.
        """
        event, table = _EVENTS[outcome], self._tables.batch
        state = next_state(BatchState.DOUBTFUL, event)
        statement = (
            update(table)
            .where(table.c.id == batch, table.c.state == BatchState.DOUBTFUL)
            .values(
                {
                    "state": state,
                    "attempt": table.c.attempt + int(event in RAISES_ATTEMPT),
                    "lease_token": _NOBODY,
                    f"{state}_at": database_now(),
                }
            )
        )
        doing = f"resolving batch {batch}"
        with translating(LedgerError, doing=doing), writing(self._engine) as connection:
            if connection.execute(statement).rowcount != 1:
                raise LedgerError(f"batch {batch} is not doubtful; nothing was changed")

    def purge(
        self,
        *,
        before: datetime,
        run: RunId | None = None,
        at_most: int | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> int:
        """Delete rows settled and due before *before*, of one run or of all; return how many.

        It ends early when *at_most* rows, or some thousands more, are deleted, or *goes_on*, asked
        between two transactions, says so.

        Rows in quarantine stay, and so do the batches themselves: they are the books. A row that
        is not due yet stays however long ago it was settled: its message may still wait in the
        levels, and only by its row can it be recalled, verified, or told from a leftover copy.
        What is purged is not recognised should it turn up in the store again.
        """
        purged = 0
        while (at_most is None or purged < at_most) and (not purged or goes_on()):
            doing = "purging settled rows"
            with translating(LedgerError, doing=doing), writing(self._engine) as connection:
                rows = connection.execute(self._purgeable(before, run)).all()
                if rows:
                    self._delete(connection, rows)
            if not rows:
                break
            purged += len(rows)
        return purged

    def _purgeable(self, before: datetime, run: RunId | None) -> Select[Any]:
        row, batch = self._tables.timeout, self._tables.batch
        settled_at = case(*((batch.c.state == state, batch.c[f"{state}_at"]) for state in _SETTLED))
        is_settled = row.c.state.in_((RowState.RELEASED, RowState.RECALLED))
        query = (
            select(row.c.id, row.c.batch_id, row.c.state, batch.c.state.label("batch_state"))
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                batch.c.state.in_(_SETTLED),
                settled_at < before,
                or_(batch.c.first_due.is_(None), batch.c.first_due < before),
                row.c.due < before,
                or_(row.c.state.is_(None), is_settled),
                row.c.going_back.is_(None),
            )
        )
        if run is not None:
            query = query.where(batch.c.run_id == run)
        dialect = self._engine.dialect.name
        return first_for_update(query, row, at_most=_PURGE_ROWS, dialect=dialect)

    def _delete(self, connection: Connection, rows: Sequence[Row[Any]]) -> None:
        row = self._tables.timeout
        ids = [found.id for found in rows]
        for start in range(0, len(ids), MOST_IN_LIST):
            some = row.c.id.in_(ids[start : start + MOST_IN_LIST])
            connection.execute(delete(row).where(some))
        # the books count a batch's size under its own state; rows that differ were not in it
        purged, left = Counter[int](), Counter[int]()
        for found in rows:
            is_like_its_batch = found.state in (None, found.batch_state)
            (purged if is_like_its_batch else left)[found.batch_id] += 1
        count_purged(connection, self._tables.batch, purged, left)
