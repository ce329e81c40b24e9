"""Destinations that take no messages now: their rows are parked until they are tried again.

``HeldDestinations`` keeps them in memory, for one endpoint's hand-over or dispatcher.
``SqlHeldDestinations`` keeps them in the ledger, for the next process and for operators. Source:
docs/adr/0013-parked-rows.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.portable import among
from migrator.delays.routing import Unreachable
from migrator.errors import LedgerError
from migrator.ledger.parking import SqlParking, Wanted
from migrator.ledger.report import HeldDestination
from migrator.ledger.states import Mode
from migrator.ledger.tables import LedgerPart
from migrator.ledger.work import Batch, Clock, FaultPoint, Lease, StoreEndpoint, no_fault
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BatchId, QueueName

_log = logging.getLogger(__name__)

_FIRST_WAIT: Final = timedelta(seconds=5)
_LONGEST_CHECK_WAIT: Final = timedelta(seconds=15)
"""Checks are cheap, a full queue drains, and operators who create a queue await its timeouts."""
LONGEST_WAIT: Final = timedelta(minutes=5)
"""Where only a message can show that the destination works again."""
CHECKED_AT_ONCE: Final = 10
"""Destinations checked at once; with many, each waits for its turn."""
_CHECK_EVERY_S: Final = 2.5
_FULL_CHECK_EVERY_S: Final = 11.0
"""After a check that had no room for every due destination, and found none reachable."""
_LOAD_EVERY_S: Final = 30.0
"""Rows that another process parked and no longer checks are taken over after so long."""
_IDLE: Final = timedelta(minutes=1)
_TRIES: Final = 50
"""Each failed one means that another process changed the same row meanwhile."""
_KEY: Final = ("source", "destination")
_MESSAGE_DECIDES: Final = frozenset({"unroutable", "refused", "no-answer"})
"""Reasons that no check of the broker rules out."""


class HeldDestinations:
    """One endpoint's parked destinations, in memory and in the ledger; used by any thread.

    *is_dispatched*: for the endpoint's dispatcher, which knows only what it parked itself.
    """

    def __init__(
        self,
        ledger: SqlHeldDestinations,
        parking: SqlParking,
        endpoint: StoreEndpoint,
        *,
        is_dispatched: bool = False,
        fault: FaultPoint = no_fault,
    ) -> None:
        self._ledger = ledger
        self._parking = parking
        self.endpoint = endpoint
        self._is_dispatched = is_dispatched
        self._fault = fault
        self._lock = threading.RLock()
        self._held: dict[str, HeldDestination] = {}
        self._ready: dict[str, None] = {}
        """Reachable destinations that may have parked rows; the next one first."""
        self._to_probe: dict[str, None] = {}
        self._probing: set[BatchId] = set()
        self._lost_with: dict[str, BatchId] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_ready(self) -> bool:
        return bool(self._ready or self._to_probe)

    def load(self, now: datetime) -> None:
        """Read the ledger's parked destinations; forget those without rows."""
        source, is_dispatched = self.endpoint.source, self._is_dispatched
        parked = self._parking.rows([source], is_dispatched=is_dispatched)
        waiting = {each.destination for each in parked}
        with self._lock:
            found = {each.destination: each for each in self._ledger.held(self.endpoint)}
            known = waiting | self._held.keys()
            self._held = {name: held for name, held in found.items() if name in known}
            self._ready |= dict.fromkeys(sorted(waiting - found.keys()))
        idle = {name for name, held in found.items() if held.next_try_at < now - _IDLE} - waiting
        if idle:
            idle -= {each.destination for each in self._parking.rows([source])}
            self._ledger.free(self.endpoint, idle)
            with self._lock:
                self._held = {name: held for name, held in self._held.items() if name not in idle}

    def unreachable(
        self, names: Collection[str], *, of: BatchId | None = None
    ) -> Mapping[str, Unreachable]:
        """Return the parked ones of *names*, with the reason; none if batch *of* is a probe."""
        with self._lock:
            if of in self._probing:
                return {}
            return {name: _why(self._held[name]) for name in names if name in self._held}

    def let_try(self, batch: BatchId) -> None:
        """Have *batch* sent to parked destinations too: an operator put it in, or it is a probe."""
        with self._lock:
            self._probing.add(batch)

    def to_try(self, now: datetime) -> Sequence[HeldDestination]:
        with self._lock:
            return [held for held in self._held.values() if not _waits(held, now)]

    def park(
        self,
        batch: Batch,
        lost: Mapping[int, tuple[str, Unreachable]],
        lease: Lease,
        *,
        now: datetime,
    ) -> Batch:
        """Record unreachable destinations, park their rows, and return *batch* without them.

        *lost*: by row index, the row's destination and why it cannot be reached.

        Raises:
            LeaseLost: The rows are where they were.
            StoreUnavailable, LedgerError: As above; repeating is harmless.
        """
        with self._lock:
            is_probe = batch.id in self._probing
            destinations = dict(lost.values())
            # what is held already was claimed before, or has just been written
            new = {n: why for n, why in destinations.items() if is_probe or n not in self._held}
            if new:
                for held in self.hold(new, now=now):
                    self._log_held(held)
            self._lost_with |= dict.fromkeys(destinations, batch.id)
            self._probing.discard(batch.id)
        self._fault("park.held")
        rows = {index: destination for index, (destination, _) in lost.items()}
        batch = self._parking.park(batch, rows, lease)
        self._fault("park.parked")
        return batch

    def hold(self, lost: Mapping[str, Unreachable], *, now: datetime) -> Sequence[HeldDestination]:
        with self._lock:
            found = [self._held_again(name, why, now) for name, why in lost.items()]
            self._ledger.hold(found)
            for held in found:
                self._held[held.destination] = held
                self._ready.pop(held.destination, None)
            return found

    def _held_again(self, destination: str, why: Unreachable, now: datetime) -> HeldDestination:
        before = self._held.get(destination)
        tries = 1 if before is None else before.tries + 1
        return HeldDestination(
            endpoint=self.endpoint.name,
            source=self.endpoint.source,
            destination=destination,
            reason=str(why.reason),
            detail=why.detail,
            tries=tries,
            since=now if before is None else before.since,
            next_try_at=now + _wait_for(str(why.reason), tries),
        )

    def _log_held(self, held: HeldDestination) -> None:
        _log.warning(
            "destination takes no messages; its timeouts are parked",
            extra={
                "action": "destination_held",
                "endpoint": self.endpoint.name,
                "destination": held.destination,
                "reason": held.reason,
                "detail": held.detail,
                "tries": held.tries,
                "next_try_at": held.next_try_at,
            },
        )

    def judge(
        self,
        checked: Collection[HeldDestination],
        lost: Mapping[QueueName, Unreachable],
        *,
        now: datetime,
    ) -> None:
        """Park *checked* destinations longer if *lost*; else free or probe them."""
        cured = list[HeldDestination]()
        with self._lock:
            # another thread may have tried one meanwhile
            known = [each for each in checked if self._held.get(each.destination) == each]
            still = {
                each.destination: lost[QueueName(each.destination)]
                for each in known
                if each.destination in lost
            }
            if still:
                self.hold(still, now=now)
            for each in known:
                if each.destination in still:
                    continue
                if each.reason in _MESSAGE_DECIDES:
                    self._have_probed(each, now)
                else:
                    cured.append(each)
            self.free(each.destination for each in cured)
        for each in cured:
            _log.info(
                "destination reachable again; its parked timeouts continue",
                extra={
                    "action": "destination_reached",
                    "endpoint": self.endpoint.name,
                    "destination": each.destination,
                },
            )

    def _have_probed(self, held: HeldDestination, now: datetime) -> None:
        later = replace(held, next_try_at=now + _wait_for(held.reason, held.tries))
        if self._ledger.postpone(held, later.next_try_at):  # else another process tries it
            self._to_probe[held.destination] = None
        self._held[held.destination] = later

    def reached(self, destinations: Collection[str], *, by: BatchId) -> None:
        """Free *destinations*, which took messages; one that also refused some *by* it is full."""
        with self._lock:
            self._probing.discard(by)
            self.free(name for name in destinations if self._lost_with.get(name) != by)

    def free(self, destinations: Iterable[str]) -> None:
        """Free *destinations*, whose parked rows then continue; harmless for others."""
        with self._lock:
            found = {name for name in destinations if name in self._held}
            if not found:
                return
            self._ledger.free(self.endpoint, found)
            for name in found:
                del self._held[name]
                self._to_probe.pop(name, None)
                self._lost_with.pop(name, None)
            self._ready |= dict.fromkeys(sorted(found))
        self._fault("unpark.freed")

    def next_batch(self, wanted: Wanted, *, now: datetime) -> Batch | None:
        """Claim parked rows of a free destination, or one row as a probe; None: there are none now.

        Rows due by *now* go ``direct``, unless the endpoint is dispatched.

        Raises:
            LeaseLost: Another process has the lane. Nothing was changed.
        """
        while (name := self._next_probe()) is not None:
            batch = self._unpark(name, replace(_due(wanted, now), most_rows=1))
            if batch is not None:
                self.let_try(batch.id)
                self._fault("unpark.taken")
                return batch
            with self._lock:  # it waits for rows that are due later: no message will tell soon
                held = self._held.get(name)
                if held is not None and now - held.since > LONGEST_WAIT:
                    self.free([name])
        while (name := next(iter(self._ready), None)) is not None:
            batch = self._unpark(name, _due(wanted, now)) or self._unpark(name, wanted)
            with self._lock:
                if self._ready.pop(name, name) is None and batch is not None:
                    self._ready[name] = None  # behind the others
            if batch is not None:
                self._fault("unpark.taken")
                return batch
        return None

    def _next_probe(self) -> str | None:
        with self._lock:
            name = next(iter(self._to_probe), None)
            if name is not None:
                del self._to_probe[name]
            return name

    def _unpark(self, name: str, wanted: Wanted) -> Batch | None:
        return self._parking.unpark(self.endpoint.source, name, wanted)


class HeldCheck(NamedTuple):
    """One destination to be checked, of one endpoint."""

    of: HeldDestinations
    held: HeldDestination


class HeldChecks:
    """When held destinations are checked again: one rule for hand-over and dispatchers.

    Those longest due come first, so many at a time; what another process parked, and checks no
    longer, is taken over now and then.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._load_at_s = self._check_at_s = float("-inf")
        self._is_full = False

    def load(self, endpoints: Collection[HeldDestinations]) -> None:
        """Take over what the ledger has of *endpoints*."""
        now = self._clock.now()
        for each in endpoints:
            each.load(now)
        self._load_at_s = self._clock.monotonic_s() + _LOAD_EVERY_S

    def take_due(self, endpoints: Collection[HeldDestinations]) -> Sequence[HeldCheck]:
        """Return what is to be checked now, longest due first; empty: nothing, or it is too soon.

        Raises:
            LedgerError, StoreUnavailable, ClockInDoubt: Nothing can be taken over now.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._load_at_s:
            self.load(endpoints)
        if now_s < self._check_at_s:
            return ()
        self._check_at_s = now_s + _CHECK_EVERY_S
        now = self._clock.now()
        due = [HeldCheck(of, held) for of in endpoints for held in of.to_try(now)]
        self._is_full = len(due) > CHECKED_AT_ONCE
        return sorted(due, key=attrgetter("held.next_try_at"))[:CHECKED_AT_ONCE]

    def judge(self, checked: Sequence[HeldCheck], lost: Mapping[QueueName, Unreachable]) -> None:
        """Hold *lost* of *checked* for longer; there is a way to the others."""
        now = self._clock.now()
        for of in {id(each.of): each.of for each in checked}.values():
            of.judge([each.held for each in checked if each.of is of], lost, now=now)
        if self._is_full and all(each.held.destination in lost for each in checked):
            self._check_at_s = self._clock.monotonic_s() + _FULL_CHECK_EVERY_S


class SqlHeldDestinations(LedgerPart):
    def held(self, endpoint: StoreEndpoint) -> Sequence[HeldDestination]:
        table = self._tables.held_destination
        query = select(table).where(table.c.source == endpoint.source).order_by(table.c.destination)
        doing = f"reading the parked destinations of {endpoint.name}"
        return held_rows(table, self._read(query, doing=doing))

    def hold(self, held: Sequence[HeldDestination]) -> None:
        doing = "parking destinations"
        # two processes that hold the same ones in another order would wait for each other
        in_order = sorted(held, key=attrgetter("source", "destination"))
        for _ in range(_TRIES):
            with translating(LedgerError, doing=doing):
                try:
                    with writing(self._engine) as connection:
                        for each in in_order:
                            self._write(connection, each)
                except IntegrityError:  # another process wrote the first row of one just now
                    continue
            return
        raise LedgerError(f"{doing} failed: other processes keep changing them; try again")

    def _write(self, connection: Connection, held: HeldDestination) -> None:
        table = self._tables.held_destination
        values = asdict(held) | {"detail": held.detail or "-"}  # on Oracle, nothing would be NULL
        del values["rows"]
        key = {name: values.pop(name) for name in _KEY}
        is_it = [table.c[name] == value for name, value in key.items()]
        if not connection.execute(update(table).where(*is_it).values(values)).rowcount:
            connection.execute(insert(table).values(key | values))

    def postpone(self, held: HeldDestination, until: datetime) -> bool:
        """Record that *held* is tried now, and again *until* then; False: it has changed."""
        table = self._tables.held_destination
        statement = (
            update(table)
            .where(
                table.c.source == held.source,
                table.c.destination == held.destination,
                table.c.next_try_at == held.next_try_at,
            )
            .values(next_try_at=until)
        )
        with self._writing(f"trying a destination of {held.endpoint}") as connection:
            return connection.execute(statement).rowcount == 1

    def free(self, endpoint: StoreEndpoint, destinations: Collection[str]) -> None:
        table = self._tables.held_destination
        statement = delete(table).where(
            table.c.source == endpoint.source, among(table.c.destination, destinations)
        )
        with self._writing(f"freeing destinations of {endpoint.name}") as connection:
            connection.execute(statement)


def held_rows(
    table: Table, rows: Iterable[Row[Any]], parked: Mapping[tuple[str, str], int] | None = None
) -> Sequence[HeldDestination]:
    """*parked*: rows by source and destination. A daemon at rest reads thousands."""
    names = table.c.keys()
    source, destination = map(names.index, _KEY)
    counts = parked or {}
    return [
        HeldDestination(
            **dict(zip(names, row, strict=True)),
            rows=counts.get((row[source], row[destination]), 0),
        )
        for row in rows
    ]


def _why(held: HeldDestination) -> Unreachable:
    # a reason of another release
    reason = next((each for each in Reason if each == held.reason), Reason.UNROUTABLE)
    return Unreachable(reason=reason, detail=held.detail)


def _waits(held: HeldDestination, now: datetime) -> bool:
    """Return False also if the next try is too far off: the clock was set back."""
    return timedelta(0) < held.next_try_at - now <= LONGEST_WAIT


def _wait_for(reason: str, tries: int) -> timedelta:
    most = LONGEST_WAIT if reason == Reason.UNROUTABLE else _LONGEST_CHECK_WAIT
    return min(wait_after(tries), most)


def wait_after(tries: int) -> timedelta:
    """From 5 s to 5 minutes."""
    doublings = min(tries - 1, 10)
    return min(_FIRST_WAIT * (1 << doublings), LONGEST_WAIT)


def _due(wanted: Wanted, now: datetime) -> Wanted:
    if wanted.mode is Mode.DISPATCH:
        return wanted
    return replace(wanted, mode=Mode.DIRECT, due_until=now)
