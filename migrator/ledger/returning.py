"""Rows that go back to a document store one by one: which there are, and how a person ends that.

Rows of settled batches go back singly, out of quarantine or out of the delay levels. Each is
recorded as going before its store is asked; when the store is gone by then, nobody can finish it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, func, select, update

from migrator.database.engine import reading, writing
from migrator.database.portable import for_update
from migrator.database.types import database_now
from migrator.errors import LedgerError
from migrator.ledger.operator_actions import WRITTEN_OFF
from migrator.ledger.states import RowState
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import RECALL_LANE, BatchId, EndpointName, TimeoutId


class ReturnOutcome(StrEnum):
    """What a person may decide about rows that go back to a store that is gone."""

    HANDED_OVER = "handed-over"
    """Of a recall: their messages were never taken from the broker, and come."""
    QUARANTINED = "quarantined"
    """Out of quarantine: they are in quarantine again, and can be tried."""
    WRITTEN_OFF = "written-off"
    """Out of quarantine: they went with their store, and are never sent."""


_DOING: Final = "looking for rows that go back"
TOWARDS: Final = {
    ReturnOutcome.HANDED_OVER: RowState.RECALLED,
    ReturnOutcome.QUARANTINED: RowState.RELEASED,
    ReturnOutcome.WRITTEN_OFF: RowState.RELEASED,
}
"""What the rows were to become that an outcome is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingBack:
    """Rows of one batch that are recorded as going back."""

    batch: BatchId
    endpoint: EndpointName
    source: str
    towards: RowState
    """``released``: out of quarantine; ``recalled``: out of the delay levels."""
    rows: int


class SqlReturning:
    """Rows of one ledger that go back one by one."""

    def __init__(self, engine: Engine, tables: LedgerTables) -> None:
        """Work on the ledger in *tables*."""
        self._engine = engine
        self._tables = tables

    def under_way(self, batch: BatchId | None = None) -> Sequence[GoingBack]:
        """Return the rows that go back, by batch; of one *batch*, if it is given."""
        row, of = self._tables.timeout.c, self._tables.batch.c
        only = [] if batch is None else [row.batch_id == batch]
        query = (
            select(row.batch_id, of.endpoint, of.source, row.going_back, func.count().label("rows"))
            .join(self._tables.batch, of.id == row.batch_id)
            .where(row.going_back.is_not(None), *only)
            .group_by(row.batch_id, of.endpoint, of.source, row.going_back)
            .order_by(row.batch_id, row.going_back)
        )
        with reading(self._engine, LedgerError, doing=_DOING) as connection:
            if not self._ever_claimed_documents(connection):
                return ()
            return [
                GoingBack(
                    batch=BatchId(found.batch_id),
                    endpoint=EndpointName(found.endpoint),
                    source=found.source,
                    towards=RowState(found.going_back),
                    rows=found.rows,
                )
                for found in connection.execute(query)
            ]

    def ids(self, going: GoingBack) -> Sequence[TimeoutId]:
        """Return the ids of the rows that *going* counts."""
        row = self._tables.timeout.c
        query = select(row.store_id).where(*self._is(going)).order_by(row.row_index)
        with reading(self._engine, LedgerError, doing=_DOING) as connection:
            return [TimeoutId(each) for each in connection.scalars(query)]

    def close(
        self, going: GoingBack, outcome: ReturnOutcome, *, evidence: str, event: Executable
    ) -> int:
        """Record *outcome* of the rows that *going* counts; return how many it was.

        What is written off says so, with the *evidence*, and is kept until it is purged. *event*
        is executed in the same transaction.

        Raises:
            LedgerError: They go back no more, or a recall is under way. Nothing was changed.
        """
        row = self._tables.timeout
        values: dict[str, Any] = {"going_back": None}
        if outcome is ReturnOutcome.WRITTEN_OFF:
            values |= {
                "state": RowState.RELEASED,
                "reason": WRITTEN_OFF,
                "reason_detail": evidence,
            }
        doing = f"closing rows of batch {going.batch}"
        with writing(self._engine, LedgerError, doing=doing) as connection:
            self._demand_no_recall(connection)
            changed = connection.execute(update(row).where(*self._is(going)).values(values))
            if changed.rowcount != going.rows:
                raise LedgerError(
                    f"of batch {going.batch}, not {going.rows} but {changed.rowcount} rows go "
                    "back now: somebody works on them; nothing was changed"
                )
            connection.execute(event)
        return going.rows

    def _is(self, going: GoingBack) -> list[Any]:
        row = self._tables.timeout.c
        return [row.batch_id == going.batch, row.going_back == going.towards]

    def _demand_no_recall(self, connection: Connection) -> None:
        """Return when nobody recalls, and keep a recall from beginning, if there ever was one."""
        lease = self._tables.lease
        is_its = lease.c.name == self._tables.lease_name(RECALL_LANE)
        query = for_update(select(lease.c.name).where(is_its), lease)
        connection.execute(query)
        lives = lease.c.owner.is_not(None), lease.c.until > database_now()
        if owner := connection.scalar(select(lease.c.owner).where(is_its, *lives)):
            raise LedgerError(f"{owner} recalls: stop it first; nothing was changed")

    def _ever_claimed_documents(self, connection: Connection) -> bool:
        """Return False where all rows came from tables: they go back in one transaction.

        Else all rows are looked at, and few ledgers that are as large as that ever need it.
        """
        batch = self._tables.batch.c
        query = select(batch.id).where(batch.claiming_at.is_not(None)).limit(1)
        return connection.scalar(query) is not None
