"""The thread of a dispatcher: standby, takeover, and what an outage leads to."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.errors import LeaseLost, LedgerAdopted, StoreUnavailable
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, Lane
from migrator.service.dispatchers import DispatcherThread, Outage
from migrator.service.worker import Stop

LANE = Lane(1000)


class OneLane:
    """Leases of which only one lane is ever asked for."""

    ledger_id = "test"

    def __init__(self, owner: str | None = None) -> None:
        self.owner = owner
        self.is_adopted = False
        self.evicted: list[str] = []
        self.looks = 0

    def dispatcher_lane(self, endpoint: StoreEndpoint) -> Lane:
        return LANE

    def owner_of(self, lane: Lane) -> str | None:
        self.looks += 1
        return self.owner

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        if self.is_adopted:
            raise LedgerAdopted("its id is another now")
        if self.owner not in (None, owner):
            return None
        self.owner = owner
        return Lease(lane=lane, owner=owner, token=1)

    def surrender(self, lease: Lease) -> None:
        if self.owner == lease.owner:
            self.owner = None

    def evict(self, lane: Lane, owner: str) -> None:
        self.evicted.append(owner)
        self.owner = None

    def renew(self, lease: Lease, duration: timedelta, *, doing: str) -> None:
        pass


class Session:
    """A session that does what the test says at each turn."""

    doing = "dispatching"
    has_polled = True
    problem = None
    blocked_reason = None

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn

    def turn(self, *, may_take: bool) -> bool:
        self._turn()
        time.sleep(0.005)
        return False

    def is_idle_for(self, seconds: float) -> bool:
        return True

    def close(self, *, at_once: bool) -> None:
        pass


class Bench:
    """One dispatcher thread and everything it asks."""

    def __init__(self, leases: OneLane, turn: Callable[[], None], **how: Any) -> None:
        self.stop = Stop()
        self.leases = leases
        self.sessions = 0
        self.beats = 0
        keeper = LeaseKeeper(leases, owner="me", duration=timedelta(seconds=20))  # type: ignore[arg-type]  # only what is asked

        self.plan = SimpleNamespace(
            endpoint=StoreEndpoint(name=EndpointName("Sales"), source="s"),
            finishes_only=how.pop("finishes_only", False),
        )
        self._turn = turn
        outage = Outage(
            critical_after=how.pop("critical_after", timedelta(minutes=2)),
            exits=how.pop("exits", False),
            patience=timedelta(seconds=0.2),
        )
        self.thread = DispatcherThread(
            self,  # type: ignore[arg-type]  # only what is asked
            leases=leases,  # type: ignore[arg-type]  # only what is asked
            keeper=keeper,
            is_surely_dead=how.pop("is_surely_dead", lambda _owner: False),
            outage=outage,
            stop=self.stop,
            once=how.pop("once", False),
        )
        self._beat = self.thread.beat
        self.thread.beat = self._count_beat  # type: ignore[method-assign]  # and it beats
        self.thread.start()

    def open(self, _lease: Lease, _guard: Callable[[], None]) -> Session:
        """Be the dispatcher that the thread opens sessions of."""
        self.sessions += 1
        return Session(self._turn)

    def _count_beat(self) -> None:
        self.beats += 1
        self._beat()

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 30
        while not is_so():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    def end(self) -> None:
        self.stop.draining.set()
        assert self.thread.join(30)


@pytest.fixture
def actions(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The actions that were logged so far."""
    with caplog.at_level(logging.INFO):
        yield lambda: [getattr(record, "action", "") for record in caplog.records]


def nothing() -> None:
    """A turn without trouble."""


def down() -> None:
    """A turn while the database is away."""
    raise StoreUnavailable("the database cannot be reached")


def test_a_standby_says_so_once_and_takes_over(
    actions: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks until the lease is free, without repeating itself; it waits, and does not hang."""
    monkeypatch.setattr("migrator.service.dispatchers._STANDBY_LOOK_S", 0.02)
    bench = Bench(OneLane("other"), nothing)
    bench.wait_for(lambda: bench.leases.looks >= 4)
    assert actions().count("dispatcher_standby") == 1
    assert bench.beats >= 4
    assert bench.sessions == 0
    bench.leases.owner = None
    bench.wait_for(lambda: bench.sessions == 1)
    assert "dispatcher_active" in actions()
    bench.end()
    assert bench.leases.owner is None


def test_the_lease_of_a_dead_process_is_taken_at_once() -> None:
    """A process that surely ended holds nothing any more."""
    bench = Bench(OneLane("dead"), nothing, is_surely_dead=lambda owner: owner == "dead")
    bench.wait_for(lambda: bench.sessions == 1)
    assert bench.leases.evicted == ["dead"]
    bench.end()


def test_with_once_a_standby_leaves_the_work_to_the_other() -> None:
    """A run that is to end does not wait for a daemon that never does."""
    bench = Bench(OneLane("other"), nothing, once=True)
    assert bench.thread.join(30)
    assert bench.thread.failure is None


def test_what_a_kill_left_open_is_finished_although_nothing_is_dispatched_any_more() -> None:
    """The mode was changed meanwhile; the thread ends when the rest is settled."""
    bench = Bench(OneLane(), nothing, finishes_only=True)
    assert bench.thread.join(30)
    assert (bench.sessions, bench.thread.failure) == (1, None)


def test_an_outage_is_critical_after_a_while_and_over_when_it_is(
    actions: Callable[[], list[str]],
) -> None:
    """The process stays up and says each of it once."""
    is_down = True

    def turn() -> None:
        if is_down:
            down()

    bench = Bench(OneLane(), turn, critical_after=timedelta(seconds=0.3))
    bench.wait_for(lambda: "dispatcher_critical" in actions())
    assert "dispatcher_degraded" in actions()
    is_down = False
    bench.wait_for(lambda: "dispatcher_recovered" in actions())
    assert actions().count("dispatcher_critical") == 1
    bench.end()
    assert bench.thread.failure is None


def test_a_critical_outage_ends_the_process_when_that_was_chosen() -> None:
    """Everything else is asked to stop, too, and the failure is the outage's."""
    bench = Bench(OneLane(), down, critical_after=timedelta(seconds=0.1), exits=True)
    assert bench.thread.join(30)
    assert isinstance(bench.thread.failure, StoreUnavailable)
    assert bench.stop.draining.is_set()


def test_a_lost_lease_makes_a_standby(actions: Callable[[], list[str]]) -> None:
    """It stops at once and begins to wait."""
    leases = OneLane()

    def turn() -> None:
        leases.owner = "other"
        raise LeaseLost("somebody else has it")

    bench = Bench(leases, turn)
    bench.wait_for(lambda: "dispatcher_standby" in actions())
    assert "dispatcher_lost" in actions()
    bench.end()


def test_a_standby_of_an_adopted_ledger_ends_the_service(
    actions: Callable[[], list[str]],
) -> None:
    """It could never take over: the ledger's id, which names its queues, is another now."""
    leases = OneLane("other")
    leases.is_adopted = True
    bench = Bench(leases, nothing)
    assert bench.thread.join(10)
    assert isinstance(bench.thread.failure, LedgerAdopted)
    assert bench.stop.draining.is_set()
    assert (actions().count("ledger_adopted"), bench.sessions) == (1, 0)


def test_a_bug_ends_the_service() -> None:
    """What nobody foresaw is not tried again."""

    def turn() -> None:
        raise ZeroDivisionError

    bench = Bench(OneLane(), turn)
    assert bench.thread.join(30)
    assert isinstance(bench.thread.crash, ZeroDivisionError)
    assert bench.stop.draining.is_set()


def test_a_turn_without_an_end_is_silence() -> None:
    """As opposed to turns that find nothing to do."""
    leave = threading.Event()
    is_hanging = threading.Event()

    def turn() -> None:
        if is_hanging.is_set():
            leave.wait(60)

    bench = Bench(OneLane(), turn)
    bench.wait_for(lambda: bench.sessions == 1)
    before = bench.beats
    bench.wait_for(lambda: bench.beats >= before + 4)
    is_hanging.set()
    bench.wait_for(lambda: bench.thread.silent_s > 0.3)
    leave.set()
    bench.end()
    assert bench.thread.silent_s == 0
