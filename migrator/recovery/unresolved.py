"""What only an operator may decide: the outcome of a batch that no process can complete."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

import sqlalchemy as sa

from migrator.database.portable import for_update
from migrator.database.types import database_now
from migrator.errors import LedgerError
from migrator.ledger.claims import latest_run
from migrator.ledger.states import (
    HALF_DONE,
    OPEN,
    RAISES_ATTEMPT,
    BatchState,
    Event,
    RowState,
    next_state,
)
from migrator.ledger.tables import NO_TOKEN, LedgerPart
from migrator.ledger.work import SHARED_LANE
from migrator.nservicebus.timeouts import RECALL_LANE, BatchId, EndpointName, Lane, TimeoutId
from migrator.text import counted, grouped

Resolution = Literal[BatchState.HANDED_OVER, BatchState.CLAIMED]
_EVENTS: Final[Mapping[tuple[BatchState, Resolution], Sequence[Event]]] = {
    (BatchState.DOUBTFUL, BatchState.HANDED_OVER): (Event.RECEIPT,),
    (BatchState.DOUBTFUL, BatchState.CLAIMED): (Event.ABANDON,),
    (BatchState.COMMITTING, BatchState.HANDED_OVER): (Event.RECEIPT,),
    (BatchState.COMMITTING, BatchState.CLAIMED): (Event.GIVE_UP, Event.ABANDON),
    (BatchState.PUBLISHING, BatchState.HANDED_OVER): (Event.ALL_SETTLED,),
    (BatchState.PUBLISHING, BatchState.CLAIMED): (Event.GIVE_UP, Event.ABANDON),
    (BatchState.STAGING, BatchState.CLAIMED): (Event.ABANDON,),
    (BatchState.CLAIMED, BatchState.CLAIMED): (),
}
_MAY_WAIT: Final = OPEN - HALF_DONE
HalfDoneOutcome = Literal[BatchState.CLAIMED, BatchState.RELEASED]
_OURS: Final = {BatchState.CLAIMING: Event.ALL_TAKEN, BatchState.RELEASING: Event.ABANDON}
WRITTEN_OFF: Final = "written-off"
"""The reason of rows whose store was lost before it could answer whether it has them."""


class ReturnOutcome(StrEnum):
    """What an operator may decide about rows on their way back to a store that is lost."""

    HANDED_OVER = "handed-over"
    """Of a recall: their messages were never taken from the broker, and will be delivered."""
    QUARANTINED = "quarantined"
    """Out of quarantine: they are in quarantine again, and can be retried."""
    WRITTEN_OFF = "written-off"
    """Out of quarantine: they were lost with their store, and are never sent."""


TOWARDS: Final = {
    ReturnOutcome.HANDED_OVER: RowState.RECALLED,
    ReturnOutcome.QUARANTINED: RowState.RELEASED,
    ReturnOutcome.WRITTEN_OFF: RowState.RELEASED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingBack:
    """Rows of one batch whose return to the store is recorded but not confirmed."""

    batch: BatchId
    endpoint: EndpointName
    source: str
    towards: RowState
    """``released``: out of quarantine; ``recalled``: out of the delay levels."""
    rows: int


class OperatorActions(LedgerPart):
    def resolve(self, batch: BatchId, outcome: Resolution) -> None:
        """Record what an operator found out about a batch that is doubtful, or waits for a daemon.

        ``claimed``: none of it reached its delays, so it is handed over again by the latest run of
        its endpoint. ``handed_over``: all of it did. A batch that waits is open and its lane has no
        owner, for example because its broker is gone.

        Raises:
            LedgerError: There is no such batch, or a process works on it, or it is complete, or
            *outcome* does not apply to its state. Nothing was changed.
        """
        with self._writing(f"resolving batch {batch}") as connection:
            found = self._locked(connection, batch, {BatchState.DOUBTFUL})
            if found is None:
                found = self._waiting(connection, batch)
            events = _EVENTS.get((BatchState(found.state), outcome))
            if events is None:
                raise LedgerError(
                    f"batch {batch} is {found.state}: nothing of it was sent, so it can only be "
                    "claimed; nothing was changed"
                )
            self._step(connection, found, *events)

    def _waiting(self, connection: sa.Connection, batch: BatchId) -> sa.Row[Any]:
        table = self._tables.batch
        query = sa.select(table.c.state, table.c.lane, table.c.lease_token)
        seen = connection.execute(query.where(table.c.id == batch)).first()
        if seen is None or BatchState(seen.state) not in _MAY_WAIT:
            raise LedgerError(
                f"batch {batch} is not doubtful, nor does it wait; nothing was changed"
            )
        is_put_in = (seen.state, seen.lease_token) == (BatchState.CLAIMED, NO_TOKEN)
        if not is_put_in and (owner := self._owner(connection, seen.lane)):
            raise LedgerError(
                f"batch {batch} is not doubtful, and {owner} holds its lane {seen.lane}: stop it "
                "first; nothing was changed"
            )
        found = self._locked(connection, batch, {BatchState(seen.state)})
        if found is None or found.lease_token != seen.lease_token:
            raise LedgerError(f"a process works on batch {batch}; nothing was changed")
        return found

    def close_half_done(
        self, batch: BatchId, outcome: HalfDoneOutcome, *, evidence: str, event: sa.Executable
    ) -> int:
        """Record what an operator decided about a half-done batch whose store is gone.

        ``claimed``: the ledger has all of it, and the lane's owner hands it over. ``released``: the
        ledger has none of it; its rows get the reason ``written-off`` with the *evidence*, and are
        kept until they are purged. *event* is executed in the same transaction. Return the number
        of rows.

        Raises:
            LedgerError: There is no such batch, or it is not half-done, or its lane has an owner
            that may still ask the store. Nothing was changed.
        """
        with self._writing(f"closing batch {batch}") as connection:
            self._demand_no_owner(connection, batch)
            found = self._locked(connection, batch, HALF_DONE)
            if found is None:
                raise LedgerError(f"batch {batch} is not half-done; nothing was changed")
            is_written_off = outcome is BatchState.RELEASED
            self._step(connection, found, Event.WRITE_OFF if is_written_off else _OURS[found.state])
            if is_written_off:
                self._write_off(connection, batch, evidence)
            connection.execute(event)
        return int(found.size)

    def _locked(
        self, connection: sa.Connection, batch: BatchId, states: Collection[BatchState]
    ) -> sa.Row[Any] | None:
        table = self._tables.batch
        query = sa.select(table).where(table.c.id == batch, table.c.state.in_(states))
        return connection.execute(for_update(query, table)).first()

    def _step(self, connection: sa.Connection, batch: sa.Row[Any], *events: Event) -> None:
        """Record *events*, and leave the batch to the next owner of its lane.

        A batch to be handed over again goes to any lane, as one of its endpoint's latest run, whose
        map, broker and delays apply.
        """
        table, state = self._tables.batch, BatchState(batch.state)
        for event in events:
            state = next_state(state, event)
        values = {
            "state": state,
            "attempt": batch.attempt + sum(event in RAISES_ATTEMPT for event in events),
            "lease_token": NO_TOKEN,
            "owner": None,
        }
        if events:
            values[f"{state}_at"] = database_now()
        if state is BatchState.CLAIMED:
            run = latest_run(connection, self._tables, batch.source, batch.endpoint)
            values |= {"lane": SHARED_LANE, "run_id": run or batch.run_id}
        connection.execute(sa.update(table).where(table.c.id == batch.id).values(values))

    def _demand_no_owner(self, connection: sa.Connection, batch: BatchId) -> None:
        """Keep the lane from being taken. It is locked before the batch, as in a takeover."""
        table = self._tables.batch.c
        lane = connection.scalar(sa.select(table.lane).where(table.id == batch))
        if lane is not None and (owner := self._owner(connection, lane)):
            raise LedgerError(f"{owner} holds lane {lane}: stop it first; nothing was changed")

    def _owner(self, connection: sa.Connection, lane: Lane) -> str | None:
        lease = self._tables.lease
        is_its = lease.c.name == self._tables.lease_name(lane)
        connection.execute(for_update(sa.select(lease.c.name).where(is_its), lease))
        is_alive = lease.c.owner.is_not(None), lease.c.until > database_now()
        return connection.scalar(sa.select(lease.c.owner).where(is_its, *is_alive))

    def _write_off(self, connection: sa.Connection, batch: BatchId, evidence: str) -> None:
        row = self._tables.timeout
        is_here = row.c.state.is_(None) | (row.c.state == RowState.QUARANTINED)
        statement = sa.update(row).where(row.c.batch_id == batch, is_here)
        connection.execute(statement.values(_written_off(evidence)))

    # ── rows that go back one by one ────────────────────────────────────────────────────────

    def going_back(self, batch: BatchId | None = None) -> Sequence[GoingBack]:
        row, of = self._tables.timeout.c, self._tables.batch.c
        only = [] if batch is None else [row.batch_id == batch]
        query = (
            sa.select(
                row.batch_id, of.endpoint, of.source, row.going_back, sa.func.count().label("rows")
            )
            .join(self._tables.batch, of.id == row.batch_id)
            .where(row.going_back.is_not(None), *only)
            .group_by(row.batch_id, of.endpoint, of.source, row.going_back)
            .order_by(row.batch_id, row.going_back)
        )
        with self._reading("looking for rows that go back") as connection:
            if not self._ever_claimed_documents(connection):
                return ()
            return [
                GoingBack(
                    batch=found.batch_id,
                    endpoint=found.endpoint,
                    source=found.source,
                    towards=RowState(found.going_back),
                    rows=found.rows,
                )
                for found in connection.execute(query)
            ]

    def ids_going_back(self, going: GoingBack) -> Sequence[TimeoutId]:
        row = self._tables.timeout.c
        query = sa.select(row.store_id).where(*self._is(going)).order_by(row.row_index)
        return [row.store_id for row in self._read(query, doing="reading rows that go back")]

    def close_going_back(
        self, going: GoingBack, outcome: ReturnOutcome, *, evidence: str, event: sa.Executable
    ) -> int:
        """Record *outcome* of the rows that *going* counts; return how many.

        Rows written off record the *evidence*, and are kept until they are purged. *event* is
        executed in the same transaction.

        Raises:
            LedgerError: Their number has changed, or a recall runs. Nothing was changed.
        """
        row = self._tables.timeout
        values: dict[str, Any] = {"going_back": None}
        if outcome is ReturnOutcome.WRITTEN_OFF:
            values = _written_off(evidence)
        with self._writing(f"closing rows of batch {going.batch}") as connection:
            if owner := self._owner(connection, RECALL_LANE):
                raise LedgerError(f"{owner} runs a recall: stop it first; nothing was changed")
            changed = connection.execute(sa.update(row).where(*self._is(going)).values(values))
            if changed.rowcount != going.rows:
                raise LedgerError(
                    f"{counted(changed.rowcount, 'row')} of batch {going.batch} would go back now, "
                    f"not {grouped(going.rows)}: a process works on them; nothing was changed"
                )
            connection.execute(event)
        return going.rows

    def _is(self, going: GoingBack) -> list[Any]:
        row = self._tables.timeout.c
        return [row.batch_id == going.batch, row.going_back == going.towards]

    def _ever_claimed_documents(self, connection: sa.Connection) -> bool:
        """Rows of tables go back in one transaction. Otherwise all rows must be read."""
        batch = self._tables.batch.c
        query = sa.select(batch.id).where(batch.claiming_at.is_not(None)).limit(1)
        return connection.scalar(query) is not None


def _written_off(evidence: str) -> dict[str, str | None]:
    return {
        "state": RowState.RELEASED,
        "going_back": None,
        "reason": WRITTEN_OFF,
        "reason_detail": evidence,
    }
