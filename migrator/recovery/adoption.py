"""A ledger in another database than the one it was created in: a copy's own, or the same, moved.

Rules of this file: each decision is one transaction, with its event in the audit trail; nobody
may hold a lane meanwhile; a ledger that keeps its id keeps its batches as they are, as the queues
that it names hold what they say, and one with a new id knows nothing of those queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, func, select, update

from migrator.database.portable import for_update
from migrator.database.types import database_now
from migrator.errors import DatabaseFailedOver, LedgerError, LedgerMissing, PreflightRefused
from migrator.ledger.batches import SqlRuns
from migrator.ledger.failover import demand_same_server, record_position
from migrator.ledger.identity import identity_of, is_same, new_id
from migrator.ledger.queries import lane_statuses
from migrator.ledger.report import LaneStatus
from migrator.ledger.states import HALF_DONE, OPEN, BatchState, RowState
from migrator.ledger.tables import NO_TOKEN, UNSETTLED, LedgerPart, LedgerTables
from migrator.nservicebus.timeouts import SCAN_LANE, Lane
from migrator.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a ledger was created, where it is, and what is under way in it."""

    ledger_id: str
    created_in: str
    present: str
    """The database it is in now, in the same words."""
    holders: Sequence[LaneStatus]
    """Whose lease of a lane still runs, by lane; empty: nobody works here."""
    lanes: Sequence[Lane]
    """All lanes of hand-over there have ever been, ascending."""
    batches: Mapping[str, int]
    """Batches that somebody still has to act on, by state."""

    @property
    def is_moved(self) -> bool:
        """Whether the ledger is elsewhere than where it was created."""
        return not is_same(self.created_in, self.present)


class SqlAdoption(LedgerPart):
    """What becomes of a ledger that is not where it was created."""

    def __init__(self, engine: Engine, tables: LedgerTables, runs: SqlRuns) -> None:
        super().__init__(engine, tables)
        self._runs = runs

    def look(self) -> Whereabouts:
        """Return where the ledger is, and what is under way in it; changes nothing.

        Raises:
            LedgerMissing: There is none.
        """
        with self._reading("finding out where the ledger is") as connection:
            return self._look(connection)

    def adopt(self) -> str:
        """Make a cloned ledger this database's own: new id, no owners; return the new id.

        Batches beyond ``claimed`` become ``doubtful``: their outcome is known to the original only.
        What is half claimed from a document store, or half put back, is finished here: its batch
        keeps the former id, by which the store's evidence is found.

        Raises:
            PreflightRefused: Somebody works here, under the present id. Nothing was changed.
            LedgerError: A recall into a document store is half done. Its messages are known by
                the former id alone. Nothing was changed.
        """
        with self._writing("adopting the ledger") as connection:
            found = self._look_alone(connection)
            self._demand_no_recall(connection)
            self._keep_former_id(connection, found.ledger_id)
            self._free_lanes(connection)
            self._doubt(connection)
            adopted = new_id()
            self._enter(connection, id=adopted, identity=found.present)
            self._record(connection, "ledger_adopted", {"ledger": adopted, **_told(found)})
        return adopted

    def keep(self) -> Whereabouts:
        """Have a moved ledger belong to this database under its own id; return what was found.

        Its batches stay as they are: the next owner of their lane finishes them, by what the
        broker holds for them. Leases that ran out are ended, so that whoever had them, and is
        merely paused, writes nothing more. When the ledger is where it was created, nothing is
        changed.

        Raises:
            PreflightRefused: Somebody works here. Nothing was changed.
        """
        with self._writing("recording where the ledger is") as connection:
            found = self._look_alone(connection)
            if found.is_moved:
                self._free_lanes(connection)
                self._enter(connection, identity=found.present)
                self._record(connection, "ledger_moved", _told(found))
        return found

    def why_failed_over(self) -> str | None:
        """Return why another server must have taken over; None: none has."""
        with self._reading("asking which server this is") as connection:
            try:
                demand_same_server(connection, self._tables)
            except DatabaseFailedOver as exc:
                return str(exc)
        return None

    def finish_failover(self, connection: Connection, found: Mapping[str, object]) -> None:
        """Go on with this server, in a transaction of the caller's, who has settled the rest."""
        record_position(connection, self._tables)
        self._record(connection, "failover_settled", found)

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _look_alone(self, connection: Connection) -> Whereabouts:
        """Look, and keep every lane from being taken until the end of the transaction."""
        connection.execute(for_update(select(self._tables.lease.c.name), self._tables.lease))
        found = self._look(connection)
        if found.holders:
            raise PreflightRefused(f"{told_holders(found.holders)}. Nothing was changed")
        return found

    def _look(self, connection: Connection) -> Whereabouts:
        row = connection.execute(select(self._tables.ledger)).first()
        if row is None:
            raise LedgerMissing("the ledger is empty; run `migrator db upgrade`")
        batch = self._tables.batch
        now = connection.execute(select(database_now())).scalar_one()
        lanes = lane_statuses(connection, self._tables, now)
        counting = (
            select(batch.c.state, func.count())
            .where(batch.c.state.in_(UNSETTLED))
            .group_by(batch.c.state)
        )
        return Whereabouts(
            ledger_id=row.id,
            created_in=row.identity,
            present=identity_of(connection),
            holders=[each for each in lanes if each.is_alive],
            lanes=[each.lane for each in lanes if each.lane < SCAN_LANE],
            batches={state: count for state, count in connection.execute(counting)},
        )

    def _demand_no_recall(self, connection: Connection) -> None:
        row = self._tables.timeout.c
        half_done = select(func.count()).where(row.going_back == RowState.RECALLED)
        if rows := connection.scalar(half_done):
            raise LedgerError(
                f"{counted(rows, 'row is', 'rows are')} being recalled: timeouts may be in the "
                "store again, and their messages are known only under the ledger's former id; "
                "finish `migrator rollback` where the ledger was created, and copy it after that; "
                "or, if that "
                "database is gone and this one is complete, keep the id with `migrator db adopt "
                "--moved`; nothing was changed"
            )

    def _keep_former_id(self, connection: Connection, former: str) -> None:
        """Have every batch of a document store name the id that its evidence bears."""
        batch = self._tables.batch
        connection.execute(
            update(batch)
            .where(batch.c.claiming_at.is_not(None), batch.c.ledger_id.is_(None))
            .values(ledger_id=former)
        )

    def _free_lanes(self, connection: Connection) -> None:
        """End every lease, and every batch's, so that no former owner writes any more.

        Until somebody takes the lane, a batch with its last owner's token would let that one go on.
        """
        lease, batch = self._tables.lease, self._tables.batch
        freed = {"owner": None, "token": lease.c.token + 1, "until": database_now(), "doing": None}
        connection.execute(update(lease).values(freed))
        connection.execute(
            update(batch)
            .where(batch.c.state.in_(UNSETTLED))
            .values(lease_token=NO_TOKEN, owner=None)
        )

    def _doubt(self, connection: Connection) -> None:
        batch = self._tables.batch
        beyond = OPEN - HALF_DONE - {BatchState.CLAIMED}
        connection.execute(
            update(batch)
            .where(batch.c.state.in_(beyond))
            .values(state=BatchState.DOUBTFUL, doubtful_at=database_now())
        )

    def _enter(self, connection: Connection, **values: str) -> None:
        connection.execute(update(self._tables.ledger).values(values))
        record_position(connection, self._tables)

    def _record(self, connection: Connection, kind: str, detail: Mapping[str, object]) -> None:
        connection.execute(self._runs.event(kind, detail=detail, batch=None))


def told_holders(holders: Sequence[LaneStatus]) -> str:
    """Return who works on a ledger, and what to do about it."""
    listed = ", ".join(
        f"lane {each.lane}: {each.owner} until {each.until:%Y-%m-%d %H:%M:%S} UTC"
        for each in holders
    )
    return (
        f"a process works on this ledger here ({listed}): stop it, or, if it is dead, wait until "
        "its lease expires"
    )


def _told(found: Whereabouts) -> dict[str, object]:
    return {
        "former_ledger": found.ledger_id,
        "from": found.created_in,
        "to": found.present,
        "batches": dict(found.batches),
    }
