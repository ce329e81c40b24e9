"""How the ledger forgets rows that were dispatched long ago.

Rules of this file: only the lane's owner forgets rows, and forgotten rows are still counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    delete,
    select,
    update,
)

from migrator.database.portable import (
    MOST_IN_LIST,
    for_update,
    locked_at_once,
    prefer_indexes,
    row_by_row,
)
from migrator.database.types import database_now
from migrator.ledger.claims import hold_lease
from migrator.ledger.purge import count_purged
from migrator.ledger.states import BatchState
from migrator.ledger.tables import LedgerPart
from migrator.ledger.work import Lease

_PRUNE_BATCHES: Final = 200
"""Batches per call of ``prune``."""
_PRUNE_ROWS: Final = 20_000
"""Rows forgotten per call of ``prune``, fewer on SQL Server; a single batch may have more."""


class DispatchedBatches(LedgerPart):
    def prune(self, lease: Lease, *, older_than: timedelta) -> int:
        """Forget some rows dispatched longer ago than *older_than*; return how many.

        Their batches are merged into one, so that counts stay true. Rows with a state of their
        own stay, and so do their batches. A redelivered message whose row is forgotten becomes a
        new row and is sent again.
        """
        with self._writing(f"pruning batches of lane {lease.lane}") as connection:
            prefer_indexes(connection)
            now = connection.execute(select(database_now())).scalar_one()
            if not self._prunable(connection, lease, now - older_than):
                return 0  # read first: the lock below would take a transaction id
            hold_lease(connection, self._tables, lease)
            old = self._prunable(connection, lease, now - older_than)
            forgotten = self._forget(connection, [row.id for row in old])
            self._merge(connection, lease, old)
        return forgotten

    def _prunable(
        self, connection: Connection, lease: Lease, before: datetime
    ) -> Sequence[Row[Any]]:
        batch = self._tables.batch
        query: Select[Any] = (
            select(batch.c.id, batch.c.run_id, batch.c.size)
            .where(
                _is_sent(batch, lease),
                batch.c.dispatched_at < before,
                self._has_rows(batch, self._tables.timeout.c.state.is_(None)),
            )
            .order_by(batch.c.id)
            .limit(_PRUNE_BATCHES)
        )
        chosen: list[Row[Any]] = []
        rows, most = 0, locked_at_once(_PRUNE_ROWS, connection.dialect.name)
        for found in connection.execute(query):
            rows += found.size
            if chosen and rows > most:
                break
            chosen.append(found)
        return chosen

    def _forget(self, connection: Connection, batches: Collection[int]) -> int:
        row = self._tables.timeout
        which = and_(row.c.batch_id.in_(batches), row.c.state.is_(None))
        gone = row_by_row(delete(row).where(which))
        if connection.dialect.name in {"mysql", "oracle"}:
            # MySQL returns nothing of deleted rows, Oracle's driver little
            seen = for_update(select(row.c.batch_id).where(which), row)
            forgotten = Counter(connection.scalars(seen))
            connection.execute(gone)
        else:
            forgotten = Counter(connection.scalars(gone.returning(row.c.batch_id)))
        count_purged(connection, self._tables.batch, forgotten)
        return forgotten.total()

    def _merge(self, connection: Connection, lease: Lease, old: Sequence[Row[Any]]) -> None:
        batch = self._tables.batch
        runs = {row.run_id for row in old}
        newest = max(row.id for row in old)
        empty = (
            select(batch)
            .where(
                _is_sent(batch, lease),
                batch.c.run_id.in_(runs),
                batch.c.id <= newest,
                ~self._has_rows(batch),
            )
            .order_by(batch.c.id)
        )
        of_run = defaultdict[int, list[Row[Any]]](list)
        for row in connection.execute(empty):
            of_run[row.run_id].append(row)
        for together in of_run.values():
            if len(together) > 1:
                self._absorb(connection, together)

    def _absorb(self, connection: Connection, together: Sequence[Row[Any]]) -> None:
        batch = self._tables.batch
        oldest, *others = together
        connection.execute(
            update(batch)
            .where(batch.c.id == oldest.id)
            .values(
                size=sum(row.size for row in together),
                purged=sum(row.purged for row in together),
                body_bytes=sum(row.body_bytes for row in together),
                first_due=min((row.first_due for row in together if row.first_due), default=None),
                last_due=max((row.last_due for row in together if row.last_due), default=None),
                dispatched_at=max(row.dispatched_at for row in together),
            )
        )
        ids = [row.id for row in others]
        for start in range(0, len(ids), MOST_IN_LIST):
            some = batch.c.id.in_(ids[start : start + MOST_IN_LIST])
            connection.execute(delete(batch).where(some))

    def _has_rows(self, batch: Table, *which: ColumnElement[bool]) -> ColumnElement[bool]:
        row = self._tables.timeout
        # a scalar subquery: a planner must not make it a join with the whole ledger
        found = select(row.c.id).where(row.c.batch_id == batch.c.id, *which).limit(1)
        return found.correlate(batch).scalar_subquery().is_not(None)


def _is_sent(batch: Table, lease: Lease) -> ColumnElement[bool]:
    return and_(batch.c.lane == lease.lane, batch.c.state == BatchState.DISPATCHED)
