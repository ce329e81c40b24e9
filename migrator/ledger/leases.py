"""Lanes as leases, in database time. The owner of a lease owns all open batches of its lane.

Rules of this file: the token grows with every change of owner and never returns to an old value.
Taking over a lane with its batches is one transaction. It waits for a claim in progress, which
locks the row ``FOR KEY SHARE``. Renewing waits for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Row, func, select, update
from sqlalchemy.exc import IntegrityError

from migrator.database.engine import reading, writing
from migrator.database.failures import retrying, translating
from migrator.database.portable import flag, for_update
from migrator.database.types import database_now
from migrator.errors import LeaseLost, LedgerAdopted, LedgerError
from migrator.ledger.claims import take_over
from migrator.ledger.failover import FailoverDetector, insert_lane
from migrator.ledger.states import OPEN, BatchState
from migrator.ledger.tables import NO_TOKEN, LedgerPart, LedgerTables
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import (
    FIRST_DISPATCHER_LANE,
    RECALL_LANE,
    BatchId,
    Lane,
    RunId,
)

_TRIES: Final = 50
"""Each failed one means that another process took a lane meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatch:
    id: BatchId
    run: RunId
    source: str
    lane: Lane
    state: BatchState
    has_owner: bool
    is_put_in: bool = False
    """Any lane may take it, whether or not this one has an owner."""


class SqlLeases(LedgerPart):
    def __init__(
        self,
        engine: Engine,
        tables: LedgerTables,
        ledger_id: str,
        detector: FailoverDetector | None = None,
    ) -> None:
        super().__init__(engine, tables)
        self.ledger_id = ledger_id
        self._detector = detector or FailoverDetector(engine, tables)

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        """Take a lane that is free, expired or already *owner*'s, with all its open batches.

        The token grows, and these batches carry it. None: another owner has the lane.

        Raises:
            LedgerAdopted: This process uses a former id of the ledger. Nothing was changed.
        """
        self._ensure(lane)
        self._ensure(RECALL_LANE)
        if not self._look_at_owner(lane, owner):
            return None
        with self._writing(f"taking lane {lane}") as connection:
            if lane < RECALL_LANE and self._is_recalling(connection):
                return None
            row = self._locked(connection, lane)
            self._demand_same_ledger(connection)
            if row.is_alive and row.owner != owner:
                return None
            lease = Lease(lane=lane, owner=owner, token=row.token + 1)
            self._detector.note_lease(lease)
            table, position = self._tables.lease, self._detector.position
            # accepting a failover begins with owning the lane of recall
            kept = {} if position is None or lane == RECALL_LANE else {"position": position}
            connection.execute(
                update(table)
                .where(table.c.name == row.name)
                .values(
                    owner=owner,
                    token=lease.token,
                    until=row.now + duration,
                    renewed_at=row.now,
                    doing=None,
                    **kept,
                )
            )
            take_over(connection, self._tables, lease)
        return lease

    def renew(self, lease: Lease, duration: timedelta, *, doing: str) -> None:
        """Prolong *lease*, and record its owner's activity; ``LeaseLost`` if it was taken."""

        def work() -> None:
            table = self._tables.lease
            with self._writing(f"renewing lane {lease.lane}") as connection:
                # should we be stopped between the two statements, the lease ends earlier
                now = connection.execute(select(database_now())).scalar_one()
                changed = connection.execute(
                    update(table)
                    .where(self._is_of(lease.lane), table.c.token == lease.token)
                    .values(until=now + duration, renewed_at=now, doing=doing)
                )
                if changed.rowcount != 1:
                    raise LeaseLost(f"lane {lease.lane} no longer belongs to {lease.owner}")

        retrying(work)

    def release(self, lease: Lease) -> None:
        """Without effect when *lease* is no longer current."""
        self._end(lease.lane, self._tables.lease.c.token == lease.token)

    def evict(self, lane: Lane, owner: str) -> None:
        self._end(lane, self._tables.lease.c.owner == owner)

    def _end(self, lane: Lane, is_whose: ColumnElement[bool]) -> None:
        table = self._tables.lease
        freed = {"owner": None, "token": table.c.token + 1, "until": database_now(), "doing": None}
        with self._writing(f"ending the lease of lane {lane}") as connection:
            connection.execute(update(table).where(self._is_of(lane), is_whose).values(freed))

    def abandoned_lanes(self) -> Sequence[Lane]:
        """Return lanes with open batches and no living owner, dispatchers' too, ascending."""
        opened = self._lanes_with_open_batches()
        # at rest nothing is open, and every process asks this every few seconds
        return sorted(opened - {lane for lane, _ in self.holders()}) if opened else ()

    def open_batches(self) -> Sequence[OpenBatch]:
        """By lane and number, in lanes of hand-over: only a dispatcher may send a dispatcher's."""
        batch = self._tables.batch.c
        lanes = self._lanes_with_open_batches(batch.lane < FIRST_DISPATCHER_LANE)
        if not lanes:  # at rest nothing is open, and every process asks this every few seconds
            return []
        query = (
            select(batch.id, batch.run_id, batch.source, batch.lane, batch.state, batch.lease_token)
            .where(batch.lane.in_(sorted(lanes)), batch.state.in_(OPEN))
            .order_by(batch.lane, batch.id)
        )
        rows = self._read(query, doing="listing open batches")
        owned = {lane for lane, _ in self.holders()}
        return [
            OpenBatch(
                id=BatchId(row.id),
                run=RunId(row.run_id),
                source=row.source,
                lane=Lane(row.lane),
                state=BatchState(row.state),
                has_owner=row.lane in owned,
                is_put_in=row.state == BatchState.CLAIMED and row.lease_token == NO_TOKEN,
            )
            for row in rows
        ]

    def next_end_s(self) -> float | None:
        """None: no lease runs."""
        table = self._tables.lease.c
        now: ColumnElement[Any] = database_now().label("now")
        query = select(func.min(table.until).label("ends_at"), now).where(
            table.owner.is_not(None), self._is_alive()
        )
        (row,) = self._read(query, doing="looking for the next end of a lease")
        return None if row.ends_at is None else float((row.ends_at - row.now).total_seconds())

    def owners_with_work(self) -> set[str]:
        busy = self._lanes_with_open_batches(self._tables.batch.c.lane < FIRST_DISPATCHER_LANE)
        return {owner for lane, owner in self.holders() if lane in busy}

    def _lanes_with_open_batches(self, *which: ColumnElement[bool]) -> set[Lane]:
        batch = self._tables.batch.c
        query = select(batch.lane).where(batch.state.in_(OPEN), *which).distinct()
        rows = self._read(query, doing="looking for lanes with open batches")
        return {Lane(row.lane) for row in rows}

    def holders(self) -> Sequence[tuple[Lane, str]]:
        """Return every lane whose lease runs, with its owner; dispatchers' lanes are included."""
        table = self._tables.lease
        query = select(table.c.name, table.c.owner).where(
            table.c.owner.is_not(None), self._is_alive()
        )
        rows = self._read(query, doing="listing the lanes' owners")
        return sorted((self._tables.lane_of(row.name), row.owner) for row in rows)

    def owner_of(self, lane: Lane) -> str | None:
        return dict(self.holders()).get(lane)

    def dispatcher_lane(self, endpoint: StoreEndpoint) -> Lane:
        """Return the lane of the endpoint's dispatcher; it serves this source for ever."""
        doing = f"finding the lane of the dispatcher of {endpoint.name}"
        for _ in range(_TRIES):
            with translating(LedgerError, doing=doing):
                found = self._lane_of(endpoint) or self._new_lane(endpoint)
            if found is not None:
                return found
        raise LedgerError(f"{doing} failed: other processes keep taking lanes; try again")

    def _lane_of(self, endpoint: StoreEndpoint) -> Lane | None:
        table = self._tables.lease
        query = select(table.c.name).where(table.c.serves == endpoint.source)
        with reading(self._engine) as connection:
            name = connection.scalar(query)
        return None if name is None else self._tables.lane_of(name)

    def _new_lane(self, endpoint: StoreEndpoint) -> Lane | None:
        """None: another process wrote this source or number first."""
        names = select(self._tables.lease.c.name)
        try:
            with writing(self._engine) as connection:
                used = {self._tables.lane_of(name) for name in connection.scalars(names)}
                lane = Lane(FIRST_DISPATCHER_LANE)
                while lane in used:
                    lane = Lane(lane + 1)
                insert_lane(connection, self._tables, lane, serves=endpoint.source)
        except IntegrityError:
            return None
        return lane

    def _ensure(self, lane: Lane) -> None:
        query = select(self._tables.lease.c.name).where(self._is_of(lane))
        if not self._read(query, doing=f"looking at lane {lane}"):
            with (
                translating(LedgerError, doing=f"making lane {lane}"),
                suppress(IntegrityError),  # another process was first
                writing(self._engine) as connection,
            ):
                insert_lane(connection, self._tables, lane)

    def _look_at_owner(self, lane: Lane, owner: str) -> bool:
        """Return, without a lock, whether *owner* may have the lane: its owner must not notice.

        A standby process with the former ledger id fails here, not only when it is needed.
        """
        table = self._tables.lease
        query = select(table.c.owner, flag(self._is_alive()).label("is_alive")).where(
            self._is_of(lane)
        )
        with self._reading(f"looking at lane {lane}") as connection:
            self._demand_same_ledger(connection)
            row = connection.execute(query).one()
        return row.owner in (None, owner) or not row.is_alive

    def _is_recalling(self, connection: Connection) -> bool:
        table = self._tables.lease
        query = select(flag(table.c.owner.is_not(None) & self._is_alive())).where(
            self._is_of(RECALL_LANE)
        )
        return bool(connection.scalar(for_update(query, table, shared=True)))

    def _locked(self, connection: Connection, lane: Lane) -> Row[Any]:
        table = self._tables.lease
        locked = select(table.c.name).where(self._is_of(lane))
        connection.execute(for_update(locked, table)).one()
        # read again behind the lock, with the time as it is now
        owned = table.c.owner.is_not(None) & self._is_alive()
        query = select(
            table.c.name,
            table.c.owner,
            table.c.token,
            database_now().label("now"),
            flag(owned).label("is_alive"),
        ).where(self._is_of(lane))
        return connection.execute(query).one()

    def _demand_same_ledger(self, connection: Connection) -> None:
        """Raise unless the ledger still has the id that this process uses.

        Adopting a ledger changes its id while no lease runs. A process that was suspended meanwhile
        would continue with queues, and leave evidence in a store, that no other process looks for.
        """
        present = connection.scalar(select(self._tables.ledger.c.id))
        if present != self.ledger_id:
            raise LedgerAdopted(
                "the ledger was adopted meanwhile (`migrator db adopt`): its id is now "
                f"{present}, and this process uses {self.ledger_id}; it owns no lane and "
                "changed nothing. `migrator db resolve` lists the batches that are in doubt "
                "since; resolve them, then restart this process"
            )

    def _is_alive(self) -> ColumnElement[bool]:
        return self._tables.lease.c.until > database_now()

    def _is_of(self, lane: Lane) -> ColumnElement[bool]:
        return self._tables.lease.c.name == self._tables.lease_name(lane)
