"""Threads of lanes and their pool: what is held is not claimed, and lanes join and leave."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.errors import (
    ExitCode,
    HandOverDoubtful,
    LedgerAdopted,
    MigratorError,
    SourceGone,
    TargetUnavailable,
)
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, Lane
from migrator.service.lanes import Adopter, LaneContext, LaneThread
from migrator.service.throttle import ClaimGuard, Throttle
from migrator.service.worker import Stop, WorkerPool, WorkerThread
from migrator.stores.due_times import DueTimeReading

WaitFor = Callable[[Callable[[], bool]], None]
SALES = StoreEndpoint(name=EndpointName("Sales"), source="public.Sales_TimeoutData")


def pause(endpoint: EndpointName | None = None) -> PauseReason:
    """Return a hold by an operator."""
    return PauseReason(
        signal=Signal.PAUSED,
        endpoint=endpoint,
        observed="x",
        limit="",
        since=datetime.now(UTC),
    )


class Lanes:
    """Leases that are all free."""

    ledger_id = "test"

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.renewed = threading.Event()
        self.is_adopted = False

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        if self.is_adopted:
            raise LedgerAdopted("its id is another now")
        self.held.add(lane)
        return Lease(lane=lane, owner=owner, token=1)

    def surrender(self, lease: Lease) -> None:
        self.held.discard(lease.lane)

    def renew(self, lease: Lease, duration: timedelta, *, doing: str) -> None:
        self.renewed.set()

    def owner_of(self, lane: Lane) -> str | None:
        return None

    def holders(self) -> Sequence[tuple[Lane, str]]:
        return []

    def orphaned_lanes(self) -> Sequence[Lane]:
        return []

    def lanes_with_work(self, sources: Collection[str]) -> Sequence[Lane]:
        return []


class Orphaned(Lanes):
    """Once a lane is taken, lane 7 has a batch that is left open, whoever takes that as well."""

    def orphaned_lanes(self) -> Sequence[Lane]:
        return [Lane(7)] if self.held and 7 not in self.held else []

    def lanes_with_work(self, sources: Collection[str]) -> Sequence[Lane]:
        return [Lane(7)]


class LeftOpen(Orphaned):
    """Lane 7 is left open until somebody finishes it."""

    is_finished = False

    def orphaned_lanes(self) -> Sequence[Lane]:
        return [] if self.is_finished else super().orphaned_lanes()

    def lanes_with_work(self, sources: Collection[str]) -> Sequence[Lane]:
        return [] if self.is_finished else super().lanes_with_work(sources)


class Opened:
    """A lane's session, and a link that is none: each turn that may claim does a batch."""

    blocked_reason: str | None = None
    stuck: MigratorError | None = None

    def __init__(self, left: list[int], claimed: list[float], bench: Bench, lane: Lane) -> None:
        self.session: Any = self
        self.lane = lane
        self._bench = bench
        self._left = left
        self._claimed = claimed

    def recover(self) -> None:
        pass

    def turn(self, *, may_claim: bool) -> bool:
        if not (may_claim and self._left):
            return False
        self._left.pop()
        self._claimed.append(time.monotonic())
        time.sleep(0.002)
        return True

    def pick_up(self) -> bool:
        self._bench.looked += 1
        return False

    def idle(self, wait_s: float) -> None:
        time.sleep(0.002)

    def doing(self) -> str:
        return "idle"

    def close(self) -> None:
        pass


class Bench:
    """A pool of lanes that works on one heap of batches."""

    def __init__(
        self,
        *,
        batches: int,
        once: bool = False,
        stuck: MigratorError | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self.stop, self.throttle = Stop(), Throttle()
        self.lanes = lanes or (Lanes() if stuck is None else Orphaned())
        self.opened, self._stuck = list[Lane](), stuck
        self.left, self.claimed, self.closed = list(range(batches)), list[float](), list[str]()
        self.looked = 0
        self.doubt: HandOverDoubtful | None = None
        keeper = LeaseKeeper(self.lanes, owner="me", duration=timedelta(minutes=1))  # type: ignore[arg-type]  # only what is asked
        self.context = LaneContext(
            leases=self.lanes,  # type: ignore[arg-type]  # only what is asked
            keeper=keeper,
            stop=self.stop,
            throttle=self.throttle,
            claims=ClaimGuard(
                self.throttle, self.stop, [SALES], read_due_times=lambda _: DueTimeReading()
            ),
            endpoints=[SALES],
            once=once,
            patience_s=1.0,
            is_surely_dead=lambda _owner: False,
        )
        self.adopter = Adopter(
            self.context,
            self._open_lane,
            lanes_have_ended=lambda: self.workers.lanes_have_ended(),
        )
        self.workers = WorkerPool([self.adopter], new_lane=self._new_lane, lanes=1)

    def _new_lane(self, name: str, ends: ExitStack) -> WorkerThread:
        ends.callback(self.closed.append, name)
        return LaneThread(name, self.context, self._open_lane)

    def _open_lane(self, held: HeldLease, *_: object) -> Any:
        assert held.lease.owner == "me"
        if self.doubt is not None:
            raise self.doubt
        self.opened.append(held.lease.lane)
        opened = Opened(self.left, self.claimed, self, held.lease.lane)
        opened.stuck = self._stuck if held.lease.lane == 7 else None
        return opened

    def end(self) -> None:
        self.stop.draining.set()
        self.workers.wake()
        deadline_s = time.monotonic() + 30
        while not self.workers.has_ended(0.05):
            assert time.monotonic() < deadline_s
        self.workers.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Bench]]:
    """Makes benches, and ends them."""
    made: list[Bench] = []

    def build(**how: Any) -> Bench:
        made.append(Bench(**how))
        return made[-1]

    yield build
    for bench in made:
        bench.end()


def test_a_lane_claims_nothing_while_everything_is_held(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """From the very moment on, but for the batch that is being claimed; then it goes on."""
    bench = make(batches=100_000)
    bench.workers.start()
    wait_for(lambda: len(bench.claimed) > 3)
    bench.throttle.pause(pause())
    count = len(bench.claimed) + 1
    time.sleep(0.1)
    assert len(bench.claimed) <= count
    bench.throttle.resume(Signal.PAUSED)
    bench.workers.wake()
    wait_for(lambda: len(bench.claimed) > count)


@pytest.mark.parametrize("endpoint", [None, SALES.name])
def test_once_is_not_done_while_anything_of_ours_is_held(
    make: Callable[..., Bench], wait_for: WaitFor, endpoint: EndpointName | None
) -> None:
    """Nobody can tell what would have been claimed."""
    bench = make(batches=0, once=True)
    bench.throttle.pause(pause(endpoint))
    bench.workers.start()
    assert not bench.workers.has_ended(0.2)
    bench.throttle.resume(Signal.PAUSED, endpoint)
    bench.workers.wake()
    wait_for(lambda: bench.workers.has_ended(0.01))


def test_a_lane_in_which_only_a_person_can_go_on_is_looked_into_once(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """All else is done, and that it is not all is known at the end."""
    stuck = SourceGone("there is no such table")
    bench = make(batches=3, once=True, stuck=stuck)
    bench.workers.start()
    wait_for(lambda: bench.workers.has_ended(0.01))
    assert bench.left == []
    assert bench.opened.count(Lane(7)) == 1
    assert bench.stop.stuck == {Lane(7): stuck}


@pytest.mark.parametrize("when", ["at_its_start", "while_it_works"])
def test_a_lane_of_an_adopted_ledger_ends_all_others(
    make: Callable[..., Bench],
    wait_for: WaitFor,
    lines: Callable[[str], list[logging.LogRecord]],
    when: str,
) -> None:
    """Trying again would change nothing: the ledger's id names the queues of them all."""
    bench = make(batches=0)
    bench.lanes.is_adopted = when == "at_its_start"
    bench.workers.start()
    if when == "while_it_works":
        wait_for(lambda: bench.lanes.held == {0})
        bench.lanes.is_adopted = True
        bench.workers.set_lanes(2)
    wait_for(lambda: bench.workers.has_ended(0.01))
    assert bench.stop.draining.is_set()
    (failure,) = [worker.failure for worker in bench.workers if worker.failure]
    assert failure.exit_code is ExitCode.PREFLIGHT_REFUSED
    assert len(lines("ledger_adopted")) == 1
    assert bench.lanes.held == set()


def test_a_lane_of_a_dead_owner_is_adopted_beside_the_lanes_own_work(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """It is given back when it is finished, and the lane never stops."""
    bench = make(batches=100_000, stuck=SourceGone("there is no such table"))
    bench.workers.start()
    wait_for(lambda: Lane(7) in bench.opened)
    count = len(bench.claimed)
    wait_for(lambda: bench.lanes.held == {0})
    wait_for(lambda: len(bench.claimed) > count)


def test_once_is_not_done_before_a_lane_of_a_dead_owner_is(
    make: Callable[..., Bench], wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor while it is being finished: a lost link leaves it as it was, and it is tried again."""
    monkeypatch.setattr("migrator.service.lanes._ADOPT_AGAIN_S", 0.0)
    lanes, tries, is_cut = LeftOpen(), list[Lane](), threading.Event()

    def recover(opened: Opened) -> None:
        if opened.lane == 7:
            tries.append(opened.lane)
            if len(tries) == 1:
                is_cut.wait(30)
                raise TargetUnavailable("the connection was lost")
            lanes.is_finished = True

    monkeypatch.setattr(Opened, "recover", recover)
    bench = make(batches=0, once=True, lanes=lanes)
    bench.workers.start()
    wait_for(lambda: bool(tries))
    before = bench.looked

    def goes_on() -> bool:
        bench.workers.wake()
        return bench.looked >= before + 2

    wait_for(goes_on)
    is_cut.set()
    wait_for(lambda: bench.workers.has_ended(0.01))
    assert lanes.is_finished


def test_nobody_adopts_when_every_lane_has_stopped(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """The process is to end then, and to say why."""
    bench = make(batches=0)
    bench.doubt = HandOverDoubtful("nobody can tell")
    bench.workers.start()
    wait_for(lambda: bench.workers.has_ended(0.01))
    assert [worker.failure for worker in bench.workers] == [bench.doubt, None]


def test_nothing_is_adopted_while_everything_is_held(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """What is claimed in it would be handed over."""
    bench = make(batches=0, stuck=SourceGone("there is no such table"))
    bench.throttle.pause(pause())
    bench.workers.start()
    wait_for(lambda: bench.lanes.held == {0})
    time.sleep(0.1)
    assert bench.opened == [Lane(0)]
    bench.throttle.resume(Signal.PAUSED)
    wait_for(lambda: Lane(7) in bench.opened)


def test_a_lane_looks_for_what_is_put_into_it_whether_it_works_or_rests(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """An operator's batch waits neither for the next start nor for the end of all other work."""
    for batches in (0, 100_000):
        bench = make(batches=batches)
        bench.workers.start()
        wait_for(lambda: bench.looked >= 2)  # noqa: B023 - awaited at once
        bench.end()


def test_lanes_join_and_leave_while_others_go_on(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """Whoever leaves gives its lane back, and what it needed is closed; the others never stop."""
    bench = make(batches=0)
    bench.workers.start()
    assert bench.workers.set_lanes(3)
    wait_for(lambda: bench.lanes.held == {0, 1, 2})
    assert (bench.workers.lanes, len(list(bench.workers))) == (3, 3 + 1)
    assert bench.workers.set_lanes(1)
    wait_for(lambda: len(bench.lanes.held) == 1)
    wait_for(lambda: all(worker.join(0) for worker in list(bench.workers)[1:-1]))
    assert bench.workers.lanes == 1
    assert bench.workers.set_lanes(2)
    wait_for(lambda: len(bench.lanes.held) == 2)
    assert bench.closed == ["lane-worker-1", "lane-worker-2"]
    assert [worker.name for worker in bench.workers] == [
        "lane-worker-0",
        "lane-worker-3",
        "adopter",
    ]


def test_nobody_joins_a_pool_that_has_ended(make: Callable[..., Bench]) -> None:
    """Nor one that has nothing to hand over."""
    bench = make(batches=0)
    bench.workers.start()
    bench.end()
    assert not bench.workers.set_lanes(2)
    assert not WorkerPool().set_lanes(2)
    assert not WorkerPool().moves


def test_a_lease_is_renewed_at_once_when_there_is_something_to_tell() -> None:
    """The ledger then shows what is held, within moments."""
    lanes = Lanes()
    keeper = LeaseKeeper(lanes, owner="me", duration=timedelta(minutes=1))  # type: ignore[arg-type]  # only what is asked
    assert keeper.acquire(Lane(0), doing=lambda: "held: x") is not None
    keeper.start()
    keeper.renew_soon()
    assert lanes.renewed.wait(30)
    keeper.stop()
