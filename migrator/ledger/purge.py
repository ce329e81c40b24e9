"""Deleting rows whose work is complete and whose due time has passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from migrator.database.portable import (
    first_for_update,
    in_lists,
    locked_at_once,
    prefer_indexes,
    row_by_row,
)
from migrator.documents import Document
from migrator.ledger.states import BatchState, RowState
from migrator.ledger.tables import LedgerPart
from migrator.nservicebus.timeouts import Count, RunId

_PURGE_ROWS: Final = 5000
_SETTLED: Final = (BatchState.HANDED_OVER, BatchState.DISPATCHED, BatchState.RELEASED)


class PurgeDocument(Document, title="migrator/db-purge/1"):
    """`migrator db purge --json`."""

    before: datetime
    rows: Count


class SettledRows(LedgerPart):
    def purge(
        self,
        *,
        before: datetime,
        run: RunId | None = None,
        at_most: int | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> int:
        """Delete rows of complete batches due before *before*, of one run or all; return how many.

        It ends early after *at_most* rows (plus up to one transaction), or when *goes_on*, asked
        between two transactions, returns False.

        Rows in quarantine stay, and so do the batches, which count them. A row that is not due yet
        stays, however old its batch is: its message may still be in the levels, and only by its row
        can it be recalled, verified, or distinguished from a duplicate. A purged row is not
        recognised should it appear in the store again.
        """
        purged = 0
        while (at_most is None or purged < at_most) and (not purged or goes_on()):
            with self._writing("purging settled rows") as connection:
                prefer_indexes(connection)
                rows = connection.execute(self._purgeable(before, run)).all()
                if rows:
                    self._delete(connection, rows)
            if not rows:
                break
            purged += len(rows)
        return purged

    def _purgeable(self, before: datetime, run: RunId | None) -> sa.Select[Any]:
        row, batch = self._tables.timeout, self._tables.batch
        settled_at = sa.case(
            *((batch.c.state == state, batch.c[f"{state}_at"]) for state in _SETTLED)
        )
        is_settled = row.c.state.in_((RowState.RELEASED, RowState.RECALLED, RowState.DISCARDED))
        query = (
            sa.select(row.c.id, row.c.batch_id, row.c.state, batch.c.state.label("batch_state"))
            .join(batch, batch.c.id == row.c.batch_id)
            .where(
                batch.c.state.in_(_SETTLED),
                settled_at < before,
                sa.or_(batch.c.first_due.is_(None), batch.c.first_due < before),
                row.c.due < before,
                sa.or_(row.c.state.is_(None), is_settled),
                row.c.going_back.is_(None),
            )
        )
        if run is not None:
            query = query.where(batch.c.run_id == run)
        dialect = self._engine.dialect.name
        most = locked_at_once(_PURGE_ROWS, dialect)
        return first_for_update(query, row, at_most=most, dialect=dialect)

    def _delete(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> None:
        row = self._tables.timeout
        ids = [found.id for found in rows]
        for some in in_lists(ids):
            connection.execute(row_by_row(sa.delete(row).where(row.c.id.in_(some))))
        # progress counts a batch's size under its own state; rows that differ were not in it
        purged, left = Counter[int](), Counter[int]()
        for found in rows:
            is_like_its_batch = found.state in (None, found.batch_state)
            (purged if is_like_its_batch else left)[found.batch_id] += 1
        count_purged(connection, self._tables.batch, purged, left)


def count_purged(
    connection: sa.Connection,
    batch: sa.Table,
    purged: Mapping[int, int],
    left: Mapping[int, int] | None = None,
) -> None:
    """Record how many rows were deleted in the same transaction, by batch.

    *purged* rows stay in their batch's size. Those *left* out had another state, by which they were
    counted. Batches are changed in the order of their ids, so that two processes never wait for
    each other.
    """
    left = left or {}
    changes = [
        {"of_batch": batch_id, "more": purged.get(batch_id, 0), "fewer": left.get(batch_id, 0)}
        for batch_id in sorted({*purged, *left})
    ]
    if not changes:
        return
    connection.execute(
        sa.update(batch)
        .where(batch.c.id == sa.bindparam("of_batch"))
        .values(
            purged=batch.c.purged + sa.bindparam("more"), size=batch.c.size - sa.bindparam("fewer")
        ),
        changes,
    )
