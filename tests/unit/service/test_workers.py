"""Threads of lanes and dispatchers: which lease they take, and what makes them wait or end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.errors import (
    ExitCode,
    HandOverDoubtful,
    Interrupted,
    LaneGuarded,
    LeaseLost,
    LedgerAdopted,
    MigratorError,
    ReceiptMissing,
    SourceGone,
    StoreUnavailable,
    TargetUnavailable,
)
from migrator.handover.sources import FailingSources
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.leases import OpenBatch
from migrator.ledger.run_terms import BrokerPlace
from migrator.ledger.states import BatchState
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import (
    RECALL_LANE,
    SCAN_LANE,
    BatchId,
    EndpointName,
    Lane,
    RunId,
)
from migrator.rabbitmq.late import LateAnswers
from migrator.service import dispatchers, lanes
from migrator.service.daemon import obeying_signals
from migrator.service.dispatchers import DispatcherThread
from migrator.service.lanes import Adopter, LaneThread
from migrator.service.worker import Stop, WorkerContext, WorkerPool
from migrator.throttle.guard import ClaimGuard, QuarantineLimit
from migrator.throttle.reasons import Signal, Throttle
from tests.support.due_times import KnownDueTimes
from tests.unit.handover.memory import MemoryClock
from tests.unit.service.conftest import Lines, WaitFor

SALES = StoreEndpoint(name=EndpointName("Sales"), source="public.Sales_TimeoutData")
DISPATCHER = Lane(1000)
STUCK = SourceGone("there is no such table")
ELSEWHERE = RunId(2)
BILLING = BrokerPlace(cluster="one", vhost="billing", delays="v2")


def open_batch(lane: int, number: int = 0) -> OpenBatch:
    """Return a claimed batch in a lane without an owner."""
    return OpenBatch(
        id=BatchId(100 * lane + number),
        run=RunId(1),
        source=SALES.source,
        lane=Lane(lane),
        state=BatchState.CLAIMED,
        has_owner=False,
    )


class Leases:
    """Leases by lane, and lanes in which something is left open."""

    ledger_id = "test"

    def __init__(self, owners: dict[int, str] | None = None, left_open: Sequence[int] = ()) -> None:
        self.owners = owners or {}
        self.left_open = [Lane(lane) for lane in left_open]
        self.is_adopted = False
        self.evicted: list[tuple[int, str]] = []
        self.looks = 0

    @property
    def ours(self) -> set[int]:
        return {lane for lane, owner in self.owners.items() if owner == "me"}

    def dispatcher_lane(self, _endpoint: StoreEndpoint) -> Lane:
        return DISPATCHER

    def acquire(self, lane: Lane, owner: str, _duration: timedelta) -> Lease | None:
        if self.is_adopted:
            raise LedgerAdopted("its id is another now")
        if lane in self.owners:
            return None
        self.owners[lane] = owner
        return Lease(lane=lane, owner=owner, token=1)

    def release(self, lease: Lease) -> None:
        if self.owners.get(lease.lane) == lease.owner:
            del self.owners[lease.lane]

    def evict(self, lane: Lane, owner: str) -> None:
        self.evicted.append((lane, owner))
        del self.owners[lane]

    def owner_of(self, lane: Lane) -> str | None:
        self.looks += 1
        return self.owners.get(lane)

    def holders(self) -> Sequence[tuple[Lane, str]]:
        return [(Lane(lane), owner) for lane, owner in self.owners.items()]

    def open_batches(self) -> Sequence[OpenBatch]:
        return [replace(open_batch(lane), has_owner=lane in self.owners) for lane in self.left_open]

    def next_end_s(self) -> float | None:
        return None


class LeftLater(Leases):
    """Its lane 7 is left open only once a lane is taken, so that a lane's thread takes another."""

    def open_batches(self) -> Sequence[OpenBatch]:
        return super().open_batches() if self.owners else []


def context_of(leases: Leases, stop: Stop, *, once: bool = False) -> WorkerContext:
    """Return what workers share; only the process "dead" is known to be gone."""
    return WorkerContext(
        leases=leases,  # type: ignore[arg-type]  # only what is asked
        keeper=LeaseKeeper(leases, owner="me", duration=timedelta(minutes=1)),  # type: ignore[arg-type]  # the same
        stop=stop,
        once=once,
        patience_s=0.2,
        is_surely_dead=lambda owner: owner == "dead",
    )


def claims_of(throttle: Throttle, stop: Stop) -> ClaimGuard:
    """Return what allows claims whose due times are never wrong."""
    return ClaimGuard(
        throttle,
        stop.draining,
        [SALES],
        due_times=KnownDueTimes(),
        clock=MemoryClock(),
        quarantine_limit=QuarantineLimit(0, ()),
    )


# ── which lane ──────────────────────────────────────────────────────────────────────────────────


def lane_thread(leases: Leases, stop: Stop) -> LaneThread:
    """Return a thread that is never started."""
    unused: Any = None
    setup: Any = SimpleNamespace(elsewhere={ELSEWHERE: BILLING}.get)
    context, claims = context_of(leases, stop), claims_of(Throttle(), stop)
    return LaneThread("lane", context, claims, unused, lambda _ends: setup)


@pytest.mark.parametrize(
    ("owners", "left_open", "taken", "evicted"),
    [
        ({0: "other"}, [], 1, []),
        ({0: "other", 4: "dead"}, [4], 4, [(4, "dead")]),
        ({RECALL_LANE: "dead"}, [], 0, [(RECALL_LANE, "dead")]),
    ],
    ids=["the first that is free", "what a dead owner left comes first", "a dead recall is over"],
)
def test_a_lane_is_taken(
    owners: dict[int, str], left_open: list[int], taken: int, evicted: list[tuple[int, str]]
) -> None:
    """What is another's is left alone, and the lease of a dead owner is ended at once."""
    leases = Leases(owners, left_open)
    assert lane_thread(leases, Stop())._acquire().lease.lane == taken
    assert leases.evicted == evicted


@pytest.mark.parametrize("end", ["stop", "retire"])
@pytest.mark.parametrize(
    ("owned", "why"),
    [(range(SCAN_LANE), "every lane is taken"), ([RECALL_LANE], "waiting for a recall")],
)
def test_no_lane_is_taken_but_those_of_hand_over_and_none_beside_a_recall(
    owned: Sequence[int], why: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, until the thread is to end."""
    monkeypatch.setattr(lanes, "_LOOK_AGAIN_S", 0.01)
    leases, stop = Leases(dict.fromkeys(owned, "other")), Stop()
    thread = lane_thread(leases, stop)
    (stop.draining.set if end == "stop" else thread.retire)()
    with pytest.raises(Interrupted, match=why):
        thread._acquire()
    assert set(leases.owners) == set(owned)


def test_what_waits_for_a_person_is_neither_an_orphan_nor_waited_for() -> None:
    """Nobody here can go on with a lane that is doubtful, or has a stuck batch."""
    stop = Stop(doubtful={Lane(2)}, stuck={Lane(3): STUCK})
    thread = lane_thread(Leases(left_open=[2, 3, 5]), stop)
    assert thread._left_open().adoptable == [5]
    assert thread.lanes_of_others() == {5}
    assert thread._acquire().lease.lane == 5
    assert thread.lanes_of_others() == set()


COMMIT, OTHERS = {"state": BatchState.COMMITTING}, {"run": ELSEWHERE}


@pytest.mark.parametrize(
    ("left_open", "adoptable", "ready"),
    [
        ({2: [COMMIT], 5: [{}]}, [5, 2], [5]),
        ({2: [{}, COMMIT], 5: [{"state": BatchState.CLAIMING}]}, [2, 5], []),
        ({2: [OTHERS], 3: [OTHERS, {}], 5: [{"has_owner": True}]}, [3], []),
    ],
    ids=["what may have to wait comes later", "none is ready", "others' is left to them"],
)
def test_lanes_are_adopted_in_which_something_can_be_finished_here(
    left_open: dict[int, list[dict[str, Any]]], adoptable: list[int], ready: list[int]
) -> None:
    """A lane's own thread takes one only if nothing in it may have to wait."""
    leases = Leases()
    opened = [
        replace(open_batch(lane, number), **how)
        for lane, batches in left_open.items()
        for number, how in enumerate(batches)
    ]
    leases.open_batches = lambda: opened  # type: ignore[method-assign]  # what is told
    thread = lane_thread(leases, Stop())
    found = thread._left_open()
    assert (found.adoptable, found.ready) == (adoptable, ready)
    thread._note_elsewhere()
    assert set(thread._stop.elsewhere) == {each.id for each in opened if each.run == ELSEWHERE}
    assert thread._acquire().lease.lane == (ready or [0])[0]


# ── threads of lanes ────────────────────────────────────────────────────────────────────────────


class Opened:
    """A lane's session and its link: each turn that may claim does a batch."""

    blocked_reason: str | None = None
    silent_s = 0.0
    frame_max_bytes = 131_072
    activity = "idle"
    passed_on = 0
    unfinished = None

    def __init__(self, bench: Bench, lane: Lane) -> None:
        self.lane = lane
        self.stuck = bench.stuck if lane == 7 else None
        self._bench = bench

    def recover(self) -> None:
        pass

    def turn(self, *, may_claim: bool) -> bool:
        if not (may_claim and self._bench.left):
            return False
        self._bench.left -= 1
        time.sleep(0.002)
        return True

    def pick_up(self) -> bool:
        self._bench.looked += 1
        return False

    def idle(self, _wait_s: float) -> bool:
        time.sleep(0.002)
        return False

    def close(self) -> None:
        pass


class Bench:
    """A pool of lanes that works on one heap of batches."""

    def __init__(self, batches: int = 0, *, leases: Leases | None = None, **how: Any) -> None:
        self.left, self.looked, self.batches = batches, 0, batches
        self.leases = leases or Leases()
        self.stop, self.throttle = Stop(), Throttle()
        claimable = SimpleNamespace(rest_s=60.0, forget=lambda: None)
        self.claimer = SimpleNamespace(claimable=claimable)
        self.direct = SimpleNamespace(holding=SimpleNamespace(late=LateAnswers()))
        self.stuck: MigratorError | None = how.get("stuck")
        self.fails: Exception | None = None
        self.opened, self.closed = list[Lane](), list[str]()
        self.context = context_of(self.leases, self.stop, once=how.get("once", False))
        self.claims = claims_of(self.throttle, self.stop)
        links: Any = SimpleNamespace(
            connection_of=lambda _lane: SimpleNamespace(nodes=["one"]), open=self.open
        )
        self.parts = (self.context, self.claims, links, self._new_setup)
        self.adopter = Adopter(*self.parts)
        self.workers = WorkerPool([self.adopter], new_lane=self._new_lane, lanes=1)
        self.adopter.serve(self.workers)

    def elsewhere(self, _run: RunId) -> None:
        return None

    @property
    def claimed(self) -> int:
        return self.batches - self.left

    def _new_setup(self, _ends: ExitStack) -> Any:
        return self

    def _new_lane(self, name: str) -> LaneThread:
        lane = LaneThread(name, *self.parts)
        lane.ends.callback(self.closed.append, name)
        return lane

    def limit_frames(self, _frame_max_bytes: int) -> None:
        pass

    def open(self, lease: Lease, _guard: Callable[[], None]) -> Opened:
        if self.fails is not None:
            raise self.fails
        self.opened.append(lease.lane)
        return Opened(self, lease.lane)

    def pause(self, endpoint: EndpointName | None = None) -> None:
        self.throttle.pause(Signal.PAUSED, endpoint, "")

    def resume(self, endpoint: EndpointName | None = None) -> None:
        self.throttle.resume(Signal.PAUSED, endpoint)
        self.workers.wake()

    def end(self) -> None:
        self.stop.draining.set()
        self.workers.wake()
        deadline_s = time.monotonic() + 30
        while not self.workers.await_end(0.05):
            assert time.monotonic() < deadline_s


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Makes benches and starts them, and ends them."""
    monkeypatch.setattr(lanes, "_LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(lanes, "_SLICE_S", 0.02)
    monkeypatch.setattr(lanes, "_LONGEST_REST_S", 0.05)
    monkeypatch.setattr(lanes, "LaneSession", lambda _setup, *, link, **_: link)
    made: list[Bench] = []

    def build(*args: Any, begins: Callable[[Bench], None] = lambda _: None, **how: Any) -> Bench:
        made.append(Bench(*args, **how))
        begins(made[-1])
        made[-1].workers.start()
        return made[-1]

    yield build
    for bench in made:
        bench.end()


def test_nothing_is_claimed_or_adopted_while_everything_is_held(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """From the very moment on, but for the batch that is being claimed; then both go on.

    What a dead owner left is finished beside the lane's own work, and given back.
    """
    bench = make(100_000)
    wait_for(lambda: bench.claimed > 3)
    bench.pause()
    count = bench.claimed + 1
    bench.leases.left_open = [Lane(7)]
    time.sleep(0.1)
    assert bench.claimed <= count
    assert bench.opened == [0]
    bench.resume()
    wait_for(lambda: Lane(7) in bench.opened)
    wait_for(lambda: bench.leases.ours == {0})
    count = bench.claimed
    wait_for(lambda: bench.claimed > count)


@pytest.mark.parametrize("endpoint", [None, SALES.name])
def test_once_is_not_done_while_anything_of_ours_is_held(
    make: Callable[..., Bench], wait_for: WaitFor, endpoint: EndpointName | None
) -> None:
    """Nobody can tell what would have been claimed."""
    bench = make(once=True, begins=lambda bench: bench.pause(endpoint))
    assert not bench.workers.await_end(0.2)
    bench.resume(endpoint)
    wait_for(lambda: bench.workers.await_end(0.01))


def test_a_lane_in_which_only_a_person_can_go_on_is_looked_into_once(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """All else is done, and that it is not all is known at the end."""
    bench = make(3, once=True, stuck=STUCK, leases=LeftLater(left_open=[7]))
    wait_for(lambda: bench.workers.await_end(0.01))
    assert (bench.left, bench.opened.count(Lane(7))) == (0, 1)
    assert bench.stop.stuck == {Lane(7): STUCK}


def test_a_thread_that_learns_of_an_adopted_ledger_ends_all_others(
    make: Callable[..., Bench], wait_for: WaitFor, lines: Lines
) -> None:
    """Trying again would change nothing: the ledger's id names the queues of them all."""
    bench = make()
    wait_for(lambda: bench.leases.ours == {0})
    bench.leases.is_adopted = True
    bench.workers.set_lanes(2)
    wait_for(lambda: bench.workers.await_end(0.01))
    assert bench.stop.draining.is_set()
    (failure,) = [worker.failure for worker in bench.workers if worker.failure]
    assert failure.exit_code is ExitCode.PREFLIGHT_REFUSED
    assert (len(lines("ledger_adopted")), bench.leases.ours) == (1, set())


def test_once_is_not_done_before_a_lane_of_a_dead_owner_is(
    make: Callable[..., Bench], wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor while it is being finished: a lost link leaves it as it was, and it is tried again."""
    monkeypatch.setattr(lanes, "_ADOPT_AGAIN_S", 0.0)
    leases, tries, is_cut = LeftLater(left_open=[7]), list[Lane](), threading.Event()

    def recover(opened: Opened) -> None:
        if opened.lane == 7:
            tries.append(opened.lane)
            if len(tries) == 1:
                is_cut.wait(30)
                raise TargetUnavailable("the connection was lost")
            leases.left_open = []

    monkeypatch.setattr(Opened, "recover", recover)
    bench = make(once=True, leases=leases)
    wait_for(lambda: bool(tries))
    before = bench.looked

    def goes_on() -> bool:
        bench.workers.wake()
        return bench.looked >= before + 2

    wait_for(goes_on)
    is_cut.set()
    wait_for(lambda: bench.workers.await_end(0.01))
    assert leases.left_open == []


def test_nobody_adopts_when_every_lane_has_stopped(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """The process is to end then, and to say why; a doubtful lane stays ours."""
    doubt = HandOverDoubtful("nobody can tell")
    bench = make(begins=lambda bench: setattr(bench, "fails", doubt))
    wait_for(lambda: bench.workers.await_end(0.01))
    assert [worker.failure for worker in bench.workers] == [doubt, None]
    assert bench.leases.ours == bench.stop.doubtful == {0}


def test_a_lane_that_another_connection_has_is_left_for_the_next_one(
    make: Callable[..., Bench], wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless something of it was published: only this process knows what was answered."""
    monkeypatch.setattr("migrator.service.worker._FIRST_BACKOFF_S", 0.01)

    def recover(opened: Opened) -> None:
        if opened.lane == 0:
            raise LaneGuarded("another process still owns lane 0 on the broker")

    monkeypatch.setattr(Opened, "recover", recover)
    bench = make(5)
    wait_for(lambda: bench.claimed == 5)
    assert (bench.opened[:2], bench.leases.ours) == ([0, 1], {1})
    published = replace(open_batch(0), state=BatchState.PUBLISHING)
    bench.leases.open_batches = lambda: [published]  # type: ignore[method-assign]  # what is told
    thread = next(each for each in bench.workers if isinstance(each, LaneThread))
    thread._leave_guarded(Lease(lane=Lane(0), owner="me", token=1), LaneGuarded("held"))


def test_a_lane_goes_on_after_a_receipt_that_does_not_come(
    make: Callable[..., Bench], wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch alone is doubtful; over the next link, commits go one by one at first."""
    monkeypatch.setattr("migrator.service.worker._FIRST_BACKOFF_S", 0.01)
    missing = [ReceiptMissing("no receipt for batch 1")]

    def recover(_opened: Opened) -> None:
        if missing:
            raise missing.pop()

    monkeypatch.setattr(Opened, "recover", recover)
    bench = make(5)
    wait_for(lambda: bench.claimed == 5)
    (thread,) = [each for each in bench.workers if isinstance(each, LaneThread)]
    assert (bench.opened, bench.stop.doubtful, thread._max_commits) == ([0, 0], set(), 1)


def test_a_bug_ends_the_service(make: Callable[..., Bench], wait_for: WaitFor) -> None:
    """What nobody foresaw is not tried again."""
    bench = make(begins=lambda bench: setattr(bench, "fails", ZeroDivisionError()))
    wait_for(lambda: bench.workers.await_end(0.01))
    assert [type(worker.crash) for worker in bench.workers] == [ZeroDivisionError, type(None)]
    assert bench.stop.draining.is_set()


@pytest.mark.parametrize("batches", [0, 100_000], ids=["it rests", "it works"])
def test_a_lane_looks_for_what_is_put_into_it(
    make: Callable[..., Bench], wait_for: WaitFor, batches: int
) -> None:
    """An operator's batch waits neither for the next start nor for the end of all other work."""
    bench = make(batches)
    wait_for(lambda: bench.looked >= 2)


def test_lanes_join_and_leave_while_others_go_on(
    make: Callable[..., Bench], wait_for: WaitFor
) -> None:
    """Whoever leaves gives its lane back, and what it needed is closed; the others never stop."""
    bench = make()
    workers = bench.workers
    assert workers.set_lanes(3)
    wait_for(lambda: bench.leases.ours == {0, 1, 2})
    assert (workers.lanes, len(list(workers))) == (3, 3 + 1)
    assert workers.set_lanes(1)
    wait_for(lambda: all(worker.join(0) for worker in list(workers)[1:-1]))
    assert (workers.lanes, len(bench.leases.ours)) == (1, 1)
    assert workers.set_lanes(2)
    wait_for(lambda: len(bench.leases.ours) == 2)
    assert sorted(bench.closed) == ["lane-worker-1", "lane-worker-2"]
    names = [worker.name for worker in workers]
    assert names == ["lane-worker-0", "lane-worker-3", "adopter"]
    bench.end()
    assert not workers.set_lanes(2)
    assert not WorkerPool().set_lanes(2)


def test_lanes_can_be_set_before_the_work_begins(make: Callable[..., Bench]) -> None:
    """The daemon obeys from before its threads start; a lane that is to leave never began."""

    def begins(bench: Bench) -> None:
        for wanted in (3, 1, 2):
            assert bench.workers.set_lanes(wanted)

    assert make(begins=begins).workers.lanes == 2


# ── threads of dispatchers ──────────────────────────────────────────────────────────────────────


class Dispatching:
    """One dispatcher's thread, and sessions that do at each turn what the test says."""

    activity, has_polled, problem, blocked_reason = "dispatching", True, None, None
    silent_s = 0.0

    def __init__(self, leases: Leases, turn: Callable[[], None] = lambda: None, **how: Any) -> None:
        self.stop, self.leases, self.sessions = Stop(), leases, 0
        finishes_only = how.get("finishes_only", False)
        self.plan = SimpleNamespace(endpoint=SALES, finishes_only=finishes_only)
        self._turn = turn
        self.thread = DispatcherThread(
            self,  # type: ignore[arg-type]  # only what is asked
            context_of(leases, self.stop, once=how.get("once", False)),
            failing=FailingSources(MemoryClock()),
            critical_s=how.get("critical_s", 120),
            exits=how.get("exits", False),
        )
        self.thread.start()

    def open(self, _lease: Lease, _guard: Callable[[], None]) -> Dispatching:
        self.sessions += 1
        return self

    def turn(self, *, may_take: bool) -> bool:
        self._turn()
        time.sleep(0.005)
        return False

    def is_idle_for(self, _seconds: float) -> bool:
        return True

    def close(self, *, at_once: bool) -> None:
        pass

    def end(self) -> None:
        self.stop.draining.set()
        assert self.thread.join(30)


@pytest.mark.parametrize("owner", ["other", "dead"])
def test_a_standby_says_so_once_and_takes_over(
    lines: Lines, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    """When the lease is free, or at once from a process that surely ended; it gives it back."""
    monkeypatch.setattr(dispatchers, "_STANDBY_LOOK_S", 0.02)
    leases = Leases({DISPATCHER: owner})
    bench = Dispatching(leases)
    if owner == "other":
        wait_for(lambda: leases.looks >= 4)
        assert (len(lines("dispatcher_standby")), bench.sessions) == (1, 0)
        leases.owners.clear()
    wait_for(lambda: bench.sessions == 1)
    assert len(lines("dispatcher_active")) == 1
    bench.end()
    assert (leases.owners, bool(leases.evicted)) == ({}, owner == "dead")


@pytest.mark.parametrize(
    ("owners", "how", "sessions"),
    [({DISPATCHER: "other"}, {"once": True}, 0), ({}, {"finishes_only": True}, 1)],
    ids=["once, beside another that dispatches", "the mode is another now, something was left"],
)
def test_a_dispatcher_ends_when_nothing_is_left_for_it(
    owners: dict[int, str], how: dict[str, Any], sessions: int
) -> None:
    """A run that is to end does not wait for a daemon that never does."""
    bench = Dispatching(Leases(owners), **how)
    assert bench.thread.join(30)
    assert (bench.sessions, bench.thread.failure) == (sessions, None)


def test_an_outage_is_critical_after_a_while_and_over_when_it_is(
    lines: Lines, wait_for: WaitFor
) -> None:
    """The process stays up and says each of it once."""
    is_down = threading.Event()
    is_down.set()

    def turn() -> None:
        if is_down.is_set():
            raise StoreUnavailable("the database cannot be reached")

    bench = Dispatching(Leases(), turn, critical_s=0.3)
    wait_for(lambda: bool(lines("dispatcher_critical")))
    assert lines("dispatcher_degraded")
    is_down.clear()
    wait_for(lambda: bool(lines("dispatcher_recovered")))
    assert len(lines("dispatcher_critical")) == 1
    bench.end()
    assert bench.thread.failure is None


@pytest.mark.parametrize("how", [{"critical_s": 0.1, "exits": True}, {"once": True}])
def test_a_critical_outage_ends_the_process_when_that_was_chosen(how: dict[str, Any]) -> None:
    """The failure is the outage's; a run to the end leaves the others to end by themselves."""

    def down() -> None:
        raise StoreUnavailable("the database cannot be reached")

    bench = Dispatching(Leases(), down, **how)
    assert bench.thread.join(30)
    assert isinstance(bench.thread.failure, StoreUnavailable)
    assert bench.stop.draining.is_set() == ("exits" in how)


def test_a_lost_lease_makes_a_standby(lines: Lines, wait_for: WaitFor) -> None:
    """It stops at once and begins to wait."""
    leases = Leases()

    def turn() -> None:
        leases.owners[DISPATCHER] = "other"
        raise LeaseLost("somebody else has it")

    bench = Dispatching(leases, turn)
    wait_for(lambda: bool(lines("dispatcher_standby")))
    assert len(lines("dispatcher_lost")) == 1
    bench.end()


# ── signals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_draining", [False, True], ids=["at work", "after a drain"])
def test_only_a_second_signal_stops_between_two_steps(is_draining: bool) -> None:
    """``systemctl stop`` after ``migrator stop`` waits for the batch in hand as any first one."""
    stop, wants_reload = Stop(), threading.Event()
    if is_draining:
        stop.draining.set()
    with obeying_signals(stop, wants_reload):
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        assert (stop.draining.is_set(), stop.at_once.is_set()) == (True, False)
        signal.raise_signal(signal.SIGTERM)
    assert stop.at_once.is_set()
    assert wants_reload.is_set()


def test_a_stop_waits_for_answers_and_not_for_ever() -> None:
    """5 seconds for the broker that answers nothing, 25 for all that it answers."""
    stop, now_s = Stop(), time.monotonic()
    stop.check(silent_s=60.0)
    stop.draining.set()
    stop.check(silent_s=60.0)
    stop.drains_since_s = now_s - 6.0
    stop.check(silent_s=4.0)
    with pytest.raises(Interrupted, match="no answer of the broker"):
        stop.check(silent_s=6.0)
    stop.drains_since_s = now_s - 26.0
    with pytest.raises(Interrupted, match="25 s ago"):
        stop.check()
