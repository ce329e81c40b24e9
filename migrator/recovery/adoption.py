"""A ledger in another database than the one it was created in: a copy, or the same one, moved.

Rules of this file: each decision is one transaction, with its event in the audit trail; no process
owns a lane meanwhile. A ledger that keeps its id keeps its batches as they are: the queues that it
names contain what the batches say. One with a new id knows nothing of those queues.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, func, select, update

from migrator.database.portable import for_update
from migrator.database.types import database_now
from migrator.delays.broker import BrokerFacts
from migrator.errors import DatabaseFailedOver, LedgerError, LedgerMissing, PreflightRefused
from migrator.ledger.batches import SqlRuns
from migrator.ledger.failover import demand_same_server, record_position
from migrator.ledger.identity import identity_of, is_same, new_id
from migrator.ledger.queries import lane_statuses
from migrator.ledger.report import LaneStatus
from migrator.ledger.states import HALF_DONE, OPEN, BatchState, RowState
from migrator.ledger.tables import INCOMPLETE, NO_TOKEN, LedgerPart, LedgerTables
from migrator.nservicebus.timeouts import SCAN_LANE, BatchId, EndpointName, Lane, TimeoutId
from migrator.rabbitmq.names import guard_queue
from migrator.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLocation:
    """Where a ledger was created, where it is, and what is under way in it."""

    ledger_id: str
    created_in: str
    present: str
    """The database it is in now, in the same words."""
    owned: Sequence[LaneStatus]
    """Owned lanes; empty: no process works here."""
    lanes: Sequence[Lane]
    """All lanes of hand-over there have ever been, ascending."""
    batches: Mapping[str, int]
    """Unfinished batches, by state."""

    @property
    def is_moved(self) -> bool:
        """Whether the ledger is elsewhere than where it was created."""
        return not is_same(self.created_in, self.present)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedContents:
    """What is missing from a moved database, or is in it twice."""

    incomplete_batches: int
    first_incomplete: BatchId | None
    missing_tables: Sequence[tuple[str, EndpointName]] = ()
    """Tables that do not exist here, each with its endpoint."""
    in_both_places: int = 0
    """Timeouts both in a table and in the ledger."""
    first_in_both: TimeoutId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Whether a ledger that was moved can continue where it is now."""

    location: LedgerLocation
    refusals: Sequence[str] = ()
    advisories: Sequence[str] = ()
    """What the operator has to check first."""


def plan_move(location: LedgerLocation, contents: MovedContents, owners: Sequence[str]) -> MovePlan:
    """Return what prevents a move: in the ledger, in the database, and *owners* on the broker."""
    refusals = [owners_text(location.owned)] if location.owned else []
    if contents.incomplete_batches:
        missing = counted(contents.incomplete_batches, "batch does", "batches do")
        refusals.append(
            f"{missing} not have the rows that belong there (first: {contents.first_incomplete}), "
            "so this is not the complete former database: use `migrator db adopt` without --moved"
        )
    advisories = [
        f"{source} of {endpoint} does not exist here: unless it was dropped, its timeouts were "
        "left behind"
        for source, endpoint in contents.missing_tables
    ]
    if contents.in_both_places:
        both = counted(contents.in_both_places, "timeout is", "timeouts are")
        advisories.append(
            f"{both} both in a table and in the ledger (first: {contents.first_in_both}): unless "
            "that was so before, table and ledger were copied at different times, and timeouts put "
            "back in between are in neither"
        )
    return MovePlan(location=location, refusals=[*refusals, *owners], advisories=advisories)


def owners_on_broker(
    broker: BrokerFacts,
    ledger_id: str,
    lanes: Collection[Lane],
    timeouts_queues: Collection[str],
) -> Sequence[str]:
    """Return which processes work on the former database, as far as the broker shows.

    A daemon in mode direct is not seen.
    """
    guards = {guard_queue(ledger_id, lane): lane for lane in lanes}
    found = broker.queues([*guards, *timeouts_queues])
    owned = [
        f"a process owns lane {lane} on the broker ({name}), so it still works on the former "
        "database: stop it there"
        for name, lane in guards.items()
        if found[name] is not None
    ]
    consumed = [
        f"{queue.consumers} consume {name}: stop them, they may store timeouts in another database"
        for name in timeouts_queues
        if (queue := found[name]) is not None and queue.consumers
    ]
    return [*owned, *consumed]


class SqlAdoption(LedgerPart):
    """Decides about a ledger that is not where it was created."""

    def __init__(self, engine: Engine, tables: LedgerTables, runs: SqlRuns) -> None:
        super().__init__(engine, tables)
        self._runs = runs

    def locate(self) -> LedgerLocation:
        """Return where the ledger is, and what is under way in it; changes nothing.

        Raises:
            LedgerMissing: There is none.
        """
        with self._reading("finding out where the ledger is") as connection:
            return self._locate(connection)

    def adopt(self) -> str:
        """Make a cloned ledger this database's own: new id, no owners; return the new id.

        Batches beyond ``claimed`` become ``doubtful``: their outcome is known to the original only.
        What is half claimed from a document store, or half put back, is finished here: its batch
        keeps the former id, by which the store's evidence is found.

        Raises:
            PreflightRefused: A process works here, under the present id. Nothing was changed.
            LedgerError: A recall into a document store is half done. Its messages are known by
                the former id alone. Nothing was changed.
        """
        with self._writing("adopting the ledger") as connection:
            found = self._locate_alone(connection)
            self._demand_no_recall(connection)
            self._keep_former_id(connection, found.ledger_id)
            self._free_lanes(connection)
            self._doubt(connection)
            adopted = new_id()
            self._enter(connection, id=adopted, identity=found.present)
            self._record(connection, "ledger_adopted", {"ledger": adopted, **_event_detail(found)})
        return adopted

    def keep(self) -> LedgerLocation:
        """Have a moved ledger belong to this database under its own id; return what was found.

        Its batches stay as they are: the next owner of their lane finishes them, by what the
        broker has of them. Leases that ran out are ended, so that an owner that is merely paused
        writes nothing more. When the ledger is where it was created, nothing is changed.

        Raises:
            PreflightRefused: A process works here. Nothing was changed.
        """
        with self._writing("recording where the ledger is") as connection:
            found = self._locate_alone(connection)
            if found.is_moved:
                self._free_lanes(connection)
                self._enter(connection, identity=found.present)
                self._record(connection, "ledger_moved", _event_detail(found))
        return found

    def failover_reason(self) -> str | None:
        """Return how it shows that another server took over; None: it is the same server."""
        with self._reading("asking which server this is") as connection:
            try:
                demand_same_server(connection, self._tables)
            except DatabaseFailedOver as exc:
                return str(exc)
        return None

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _locate_alone(self, connection: Connection) -> LedgerLocation:
        """Locate the ledger, and lock every lane until the end of the transaction."""
        connection.execute(for_update(select(self._tables.lease.c.name), self._tables.lease))
        found = self._locate(connection)
        if found.owned:
            raise PreflightRefused(f"{owners_text(found.owned)}. Nothing was changed")
        return found

    def _locate(self, connection: Connection) -> LedgerLocation:
        row = connection.execute(select(self._tables.ledger)).first()
        if row is None:
            raise LedgerMissing("the ledger is empty; run `migrator db upgrade`")
        batch = self._tables.batch
        now = connection.execute(select(database_now())).scalar_one()
        lanes = lane_statuses(connection, self._tables, now)
        counting = (
            select(batch.c.state, func.count())
            .where(batch.c.state.in_(INCOMPLETE))
            .group_by(batch.c.state)
        )
        return LedgerLocation(
            ledger_id=row.id,
            created_in=row.identity,
            present=identity_of(connection),
            owned=[each for each in lanes if each.is_alive],
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

        A batch with its last owner's token would let that owner go on until the lane is taken.
        """
        lease, batch = self._tables.lease, self._tables.batch
        freed = {"owner": None, "token": lease.c.token + 1, "until": database_now(), "doing": None}
        connection.execute(update(lease).values(freed))
        connection.execute(
            update(batch)
            .where(batch.c.state.in_(INCOMPLETE))
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


def owners_text(owned: Sequence[LaneStatus]) -> str:
    """Return which processes work on a ledger, and what to do about it."""
    listed = ", ".join(
        f"lane {each.lane}: {each.owner} until {each.until:%Y-%m-%d %H:%M:%S} UTC" for each in owned
    )
    return (
        f"a process works on this ledger here ({listed}): stop it, or, if it is dead, wait until "
        "its lease expires"
    )


def _event_detail(found: LedgerLocation) -> dict[str, object]:
    return {
        "former_ledger": found.ledger_id,
        "from": found.created_in,
        "to": found.present,
        "batches": dict(found.batches),
    }
