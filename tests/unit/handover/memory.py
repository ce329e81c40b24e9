"""A ledger and a broker in memory, faithful in what a crash leaves behind.

The broker keeps what was published, gives back what a dead link held, and dead-letters an attempt
whole or not at all. The ledger keeps exactly what was committed. Everything else (sessions,
hand-overs, claims ahead) is lost when a test kills the "process".
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import ParamSpec, TypeVar

from migrator.delays.destinations import Destinations
from migrator.delays.routing import Unreachable
from migrator.errors import HandOverDoubtful, LeaseLost, TargetUnavailable
from migrator.handover.ports import Delayed, UnackedAttempt
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.ledger.parking import ParkedRows, SqlParking, Wanted
from migrator.ledger.report import HeldDestination
from migrator.ledger.states import OPEN, RAISES_ATTEMPT, BatchState, Event, Mode, next_state
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import (
    BatchId,
    EncodedTimeout,
    EndpointName,
    Lane,
    QueueName,
    RunId,
    StoredTimeout,
    TimeoutId,
)
from migrator.rabbitmq.messages import PublishResult
from migrator.stores.requests import Claim, ClaimRequest, Cursor

START = datetime(2026, 3, 1, tzinfo=UTC)
ENDPOINT = StoreEndpoint(name=EndpointName("Sales"), source="public.Sales_TimeoutData")
LEASE = Lease(lane=Lane(0), owner="test", token=1)


P = ParamSpec("P")
T = TypeVar("T")


class Killed(BaseException):
    """The process was killed; nothing in it may run any further."""


class MemoryClock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.elapsed = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic_s(self) -> float:
        return self.elapsed


class MemoryHeld(SqlHeldDestinations):
    """Destinations that wait, by name."""

    def __init__(self) -> None:
        self.now: dict[str, HeldDestination] = {}

    def held(self, endpoint: StoreEndpoint) -> Sequence[HeldDestination]:
        return list(self.now.values())

    def hold(self, held: Sequence[HeldDestination]) -> None:
        self.now |= {each.destination: each for each in held}

    def free(self, endpoint: StoreEndpoint, destinations: Collection[str]) -> None:
        for name in destinations:
            del self.now[name]

    def postpone(self, held: HeldDestination, until: datetime) -> bool:
        self.now[held.destination] = dataclasses.replace(held, next_try_at=until)
        return True


class MemoryParking(SqlParking):
    """Parked rows of a ledger in memory, by destination."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger = ledger

    def park(self, batch: Batch, rows: Mapping[int, str], lease: Lease) -> Batch:
        ledger = self.ledger
        ledger.fence(lease)
        mine = ledger.batch_rows[batch.id]
        for row in mine:
            if row.row_index in rows:
                ledger.parked.setdefault(rows[row.row_index], []).append(row)
        left = [row for row in mine if row.row_index not in rows]
        ledger.batch_rows[batch.id] = left
        ledger.batches[batch.id] = dataclasses.replace(batch, size=len(left))
        return ledger.batches[batch.id]

    def unpark(self, source: str, destination: str, wanted: Wanted) -> Batch | None:
        ledger = self.ledger
        ledger.fence(wanted.lease)
        until = wanted.due_until or datetime.max.replace(tzinfo=UTC)
        waiting = sorted(ledger.parked.get(destination, ()), key=lambda row: row.due_at)
        taken = [row for row in waiting if row.due_at <= until][: wanted.most_rows]
        if not taken:
            return None
        ids = {row.id for row in taken}
        ledger.parked[destination] = [row for row in waiting if row.id not in ids]
        if not ledger.parked[destination]:
            del ledger.parked[destination]
        return ledger.add_batch(taken, wanted.run, ENDPOINT, wanted.lease, wanted.mode)

    def rows(
        self, sources: Collection[str], *, is_dispatched: bool | None = None
    ) -> Sequence[ParkedRows]:
        return [
            ParkedRows(
                endpoint=ENDPOINT.name, source=ENDPOINT.source, destination=name, rows=len(rows)
            )
            for name, rows in self.ledger.parked.items()
        ]

    def destinations_of_runs(self, source: str) -> Collection[tuple[RunId, str]]:
        return [(RunId(1), name) for name in self.ledger.parked]


class MemoryLedger:
    """Store and ledger: rows are in the store or in a batch, never in both."""

    def __init__(self, stored: Sequence[StoredTimeout]) -> None:
        self.stored = {row.id: row for row in stored}
        self.batches: dict[BatchId, Batch] = {}
        self.batch_rows: dict[BatchId, list[StoredTimeout]] = {}
        self.quarantined: dict[BatchId, set[int]] = {}
        self.held = MemoryHeld()
        self.parked: dict[str, list[StoredTimeout]] = {}
        self.parking = MemoryParking(self)
        self.token = LEASE.token
        self.claims_in_vain = 0

    can_seek = True
    is_atomic = True

    def promising(self, requests: Sequence[ClaimRequest]) -> Sequence[ClaimRequest]:
        return [request for request in requests if self._wanted(request)]

    def _wanted(self, request: ClaimRequest) -> list[StoredTimeout]:
        floor = request.due_after or datetime.min.replace(tzinfo=UTC)
        cursor = request.cursor or Cursor(due_at=floor, id=TimeoutId("~"))
        return [
            row
            for row in sorted(self.stored.values(), key=lambda each: (each.due_at, each.id))
            if floor < row.due_at <= request.due_until
            and (request.only is None or row.id in request.only)
            and (row.due_at, row.id) > (cursor.due_at, cursor.id)
        ][: request.max_rows]

    def claim(self, request: ClaimRequest) -> Claim | None:
        self.fence(request.lease)
        rows = self._wanted(request)
        if not rows:
            self.claims_in_vain += 1
            return None
        batch = self.add_batch(rows, request.run, request.endpoint, request.lease, request.mode)
        for row in rows:
            del self.stored[row.id]
        batch = dataclasses.replace(batch, fresh=tuple(self.batch_rows[batch.id]))
        return Claim(batch=batch, cursor=Cursor(due_at=rows[-1].due_at, id=rows[-1].id))

    def add_batch(
        self,
        rows: Sequence[StoredTimeout],
        run: RunId,
        endpoint: StoreEndpoint,
        lease: Lease,
        mode: Mode,
    ) -> Batch:
        batch = Batch(
            id=BatchId(len(self.batches) + 1),
            run=run,
            endpoint=endpoint.name,
            source=endpoint.source,
            lane=lease.lane,
            mode=mode,
            state=BatchState.CLAIMED,
            attempt=0,
            size=len(rows),
            body_bytes=sum(len(r.body) for r in rows),
        )
        self.batches[batch.id] = batch
        self.batch_rows[batch.id] = [
            dataclasses.replace(row, row_index=index) for index, row in enumerate(rows)
        ]
        return batch

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        raise NotImplementedError

    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        self.fence(lease)
        return [batch for batch in self.batches.values() if batch.state in OPEN]

    def put_in(self, lease: Lease, *, not_of: Collection[RunId] = ()) -> Sequence[Batch]:
        return []

    def pass_on(self, batch: Batch, lease: Lease) -> None:
        self.fence(lease)  # there is one lane, which finds it again

    def find(self, batch: BatchId) -> Batch | None:
        return self.batches.get(batch)

    def rows(self, batch: Batch) -> Sequence[StoredTimeout]:
        gone = self.quarantined.get(batch.id, set())
        return [row for row in self.batch_rows[batch.id] if row.row_index not in gone]

    def readable(self, batch: Batch) -> tuple[Sequence[StoredTimeout], Sequence[Quarantine]]:
        return batch.fresh or self.rows(batch), ()

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        self.fence(lease)
        known = self.batches[batch.id]
        if (known.state, known.attempt) != (batch.state, batch.attempt):
            raise LeaseLost(f"batch {batch.id} is {known.state}, attempt {known.attempt}")
        raised = 1 if event in RAISES_ATTEMPT else 0
        after = dataclasses.replace(
            known, state=next_state(known.state, event), attempt=known.attempt + raised
        )
        self.batches[batch.id] = after
        return after

    def quarantine(self, batch: Batch, findings: Collection[Quarantine], lease: Lease) -> None:
        self.fence(lease)
        self.quarantined.setdefault(batch.id, set()).update(f.row_index for f in findings)

    def fence(self, lease: Lease) -> None:
        if lease.token != self.token:
            raise LeaseLost("stale token")


Message = tuple[Attempt, int | None, str]
"""Attempt, row index (None: the receipt), timeout id."""


class MemoryBroker:
    """The queues, which survive every process."""

    def __init__(self, clock: MemoryClock, chance: random.Random) -> None:
        self.clock = clock
        self.chance = chance
        self.staging: list[Message] = []
        self.outgoing: dict[tuple[Attempt, int], Delayed] = {}
        """What is or was in it."""
        self.receipts: list[Attempt] = []
        self.unrouted: list[Attempt] = []
        """Receipts on their way."""
        self.arrived_s: dict[Attempt, float] = {}
        self.is_routed = True
        self.hop_s_per_row = 0.0
        self.delivered: Counter[str] = Counter()
        self.earliest: dict[str, datetime] = {}
        self.silent: frozenset[str] = frozenset()
        """Destinations that take messages, and answer nothing."""
        self.failure_rate = 0.0
        self.seconds_per_pass = 0.0
        self.split_rate = 0.0
        """How often the queue takes back what is held and delivers it again."""

    def arrive(self, message: EncodedTimeout, delay_s: int) -> None:
        """A message is in the levels: note when it will be over, at the earliest."""
        self.delivered[message.timeout_id] += 1
        self.earliest[message.timeout_id] = self.clock.now() + timedelta(seconds=delay_s)

    def try_again(self) -> None:
        """Bring receipts to their queue, unless it cannot be reached or they are on their way."""
        for each in tuple(self.unrouted):
            if self.is_routed and self.arrived_s[each] <= self.clock.elapsed:
                self.receipts.append(each)
                self.unrouted.remove(each)

    def cut(self) -> bool:
        return self.chance.random() < self.failure_rate

    def split(self) -> bool:
        return self.chance.random() < self.split_rate


class MemoryLink:
    """One process's connections; what it holds goes back when it dies."""

    def __init__(
        self,
        broker: MemoryBroker,
        unroutable: frozenset[str] = frozenset(),
        full: frozenset[str] = frozenset(),
    ) -> None:
        self.broker = broker
        self.unroutable = unroutable
        self.full = full
        self.frame_max_bytes = 131_072
        self.silent_s = 0.0
        self.blocked_reason: str | None = None
        self.staged_queue: MemoryStaging | None = None
        self.unanswered: list[tuple[PublishResult, int]] = []
        self.on_serve: Callable[[], None] = lambda: None
        """Called when the broker is served while background work is awaited."""

    def publish(
        self,
        attempt: Attempt,
        chunks: Iterable[Sequence[Delayed]],
        result: PublishResult,
        *,
        silence_s: float = math.inf,
    ) -> Collection[int]:
        silent: set[int] = set()
        for message, delay_s in chain.from_iterable(chunks):
            if self.broker.cut():
                if self.broker.chance.random() < 0.5:
                    self.broker.arrive(message, delay_s)  # it arrived, its confirm did not
                raise TargetUnavailable("cut while publishing")
            index = message.row_index
            if delay_s == 0 and message.destination in self.unroutable:
                result.returned.add(index)
                continue
            is_refused = delay_s == 0 and message.destination in self.full
            if is_refused or self.broker.cut():
                result.refused.add(index)
                continue
            self.broker.arrive(message, delay_s)
            if delay_s == 0 and message.destination in self.broker.silent:
                self.unanswered.append((result, index))
                silent.add(index)
                continue
            result.confirmed.add(index)
        return silent

    def answer(self) -> None:
        """What was silent answers all that it took."""
        for result, index in self.unanswered:
            result.confirmed.add(index)
        self.unanswered.clear()

    def staging(self) -> MemoryStaging:
        self.staged_queue = self.staged_queue or MemoryStaging(self.broker)
        return self.staged_queue

    def idle(self, wait_s: float) -> None:
        self.broker.clock.elapsed += wait_s

    def serve(self) -> None:
        self.on_serve()

    def close(self) -> None:
        for result, index in self.unanswered:
            result.unknown.add(index)
        if self.staged_queue is not None:
            self.staged_queue.die()


class MemoryStaging:
    """The lane's staging queue as one consumer sees it."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.deliveries: list[Message] = []
        self.is_void = False
        """What is held has been delivered again, so whatever is said of it has no effect."""

    def publish(self, attempt: Attempt, chunks: Iterable[Sequence[Delayed]]) -> None:
        for message, delay_s in chain.from_iterable(chunks):
            assert delay_s >= 1, "a delay of 0 must never be staged"
            if self.broker.cut():
                raise TargetUnavailable("cut while staging")
            index = message.row_index
            self.broker.outgoing[attempt, index] = message, delay_s
            self.broker.staging.append((attempt, index, message.timeout_id))
        self.broker.staging.append((attempt, None, ""))
        self.broker.clock.elapsed += self.broker.seconds_per_pass
        if self.broker.cut():
            raise TargetUnavailable("cut before the last confirm")

    def unacked(self) -> Mapping[Attempt, UnackedAttempt]:
        return {
            attempt: UnackedAttempt(
                rows=frozenset(i for p, i, _ in self.deliveries if p == attempt and i is not None),
                has_receipt=any(p == attempt and i is None for p, i, _ in self.deliveries),
            )
            for attempt in {p for p, _, _ in self.deliveries}
        }

    def receipts(self) -> Mapping[Attempt, float]:
        self.broker.try_again()
        now_s, arrived_s = self.broker.clock.elapsed, self.broker.arrived_s
        return {each: now_s - arrived_s.get(each, now_s) for each in self.broker.receipts}

    def wait_for_event(self, timeout_s: float) -> None:
        if self.broker.cut():
            raise TargetUnavailable("cut while waiting")
        if self.is_void or (self.deliveries and self.broker.split()):
            raise TargetUnavailable("delivered again")
        if self.broker.staging:
            take = self.broker.chance.randint(1, len(self.broker.staging))
            self.deliveries += self.broker.staging[:take]
            del self.broker.staging[:take]
        else:
            self.broker.clock.elapsed += max(timeout_s / 4, 0.001)

    def discard(self, attempt: Attempt) -> None:
        self.deliveries = [m for m in self.deliveries if m[0] != attempt]

    def disown(self, attempt: Attempt) -> None:
        raise AssertionError("no stray was sent")

    def move_strays(self) -> None:
        pass  # there are none

    def commit(self, attempt: Attempt, rows: frozenset[int]) -> None:
        if {(p, i) for p, i, _ in self.deliveries} != {(attempt, i) for i in (*rows, None)}:
            raise HandOverDoubtful("the nack would cover something else")
        if self.broker.cut():
            if self.broker.chance.random() < 0.5:
                self._dead_letter(attempt)
            raise TargetUnavailable("cut around the nack")
        self.is_void = self.broker.split()
        if not self.is_void:
            self._dead_letter(attempt)

    def _dead_letter(self, attempt: Attempt) -> None:
        for _, index, _ in self.deliveries:
            if index is not None:
                self.broker.arrive(*self.broker.outgoing[attempt, index])
        hop_s = self.broker.hop_s_per_row * (len(self.deliveries) - 1)
        self.broker.arrived_s[attempt] = self.broker.clock.elapsed + hop_s
        self.broker.unrouted.append(attempt)
        self.broker.try_again()
        self.deliveries = []

    def bind_again(self) -> None:
        self.broker.is_routed = True

    def ack_receipt(self, attempt: Attempt) -> None:
        if attempt in self.broker.receipts:
            self.broker.receipts.remove(attempt)

    def die(self) -> None:
        self.broker.staging[:0] = self.deliveries
        self.deliveries = []


class MemoryDestinations(Destinations):
    """Every destination is fine but the ones named."""

    def __init__(self, lost: Mapping[str, Unreachable] | None = None) -> None:
        self.lost = lost or {}

    def unreachable(self, names: Collection[QueueName]) -> Mapping[QueueName, Unreachable]:
        return {name: self.lost[name] for name in names if name in self.lost}

    def forget_refusals(self) -> None:
        pass  # nothing is remembered


class AtOnce(Executor):
    """Does background work on the spot, and remembers what it raised."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        future = Future[T]()
        try:
            future.set_result(work(*args, **options))
        except Exception as exc:
            future.set_exception(exc)
        return future


def timeout(number: int, due_in_s: float, destination: str = "Billing") -> StoredTimeout:
    """Return one stored timeout, due so many seconds after START."""
    return StoredTimeout(
        id=TimeoutId(f"id-{number:05d}"),
        row_index=0,
        destination=destination,
        due_at=START + timedelta(seconds=due_in_s),
        body=b"{}",
        headers_text='{"NServiceBus.MessageId": "m"}',
    )


RUN = RunId(1)
STAGED = Mode.STAGED
