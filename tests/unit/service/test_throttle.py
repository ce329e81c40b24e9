"""Tests of ``migrator.service.throttle``."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from migrator.handover.prepare import QuarantineLimit
from migrator.ledger.report import Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.throttle import (
    AGAIN_S,
    REFUSED_AGAIN_S,
    ClaimGuard,
    Throttle,
)
from migrator.service.throttle_signals import Sample, threshold
from migrator.service.worker import Stop
from migrator.stores.due_times import DueTimeReading

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")


def hold(throttle: Throttle, signal: Signal, name: EndpointName | None, after_s: int) -> bool:
    """Hold since so many seconds after ``NOW``; return whether that is new."""
    since = NOW + timedelta(seconds=after_s)
    return throttle.pause(signal, name, f"after {after_s}", since=since)


def test_a_hold_for_all_is_one_for_each() -> None:
    """One of an endpoint holds that alone; the oldest is the one that is told."""
    throttle = Throttle()

    def signals(name: EndpointName | None) -> list[Signal]:
        return [each.signal for each in throttle.reasons_for(name)]

    assert throttle.reason_for(None) is throttle.reason_for(SALES) is None
    hold(throttle, Signal.HTTP, SALES, 2)
    assert throttle.reason_for_all([SALES, SHOP]) is None
    assert (throttle.concerns([SALES, SHOP]), throttle.concerns([SHOP])) == (True, False)
    hold(throttle, Signal.PAUSED, None, 5)
    assert (signals(SALES), signals(SHOP)) == ([Signal.HTTP, Signal.PAUSED], [Signal.PAUSED])
    found = throttle.reason_for_all([SALES, SHOP])
    assert found is throttle.reason_for(SALES)
    assert found is not None
    assert (found.signal, found.since) == (Signal.HTTP, NOW + timedelta(seconds=2))
    hold(throttle, Signal.PAUSED, SALES, 6)
    assert len(throttle.resume_all(Signal.PAUSED)) == 2
    assert throttle.resume(Signal.PAUSED) is None
    assert signals(SHOP) == []


def test_a_hold_that_is_repeated_keeps_its_beginning() -> None:
    """What it says is brought up to date, and nobody is told again."""
    told: list[tuple[str, bool]] = []
    throttle = Throttle(lambda each, began: told.append((each.observed, began)))
    assert hold(throttle, Signal.LEVEL_DEPTH, None, 0)
    assert not hold(throttle, Signal.LEVEL_DEPTH, None, 9)
    (found,) = throttle.reasons()
    assert (found.since, found.observed) == (NOW, "after 9")
    throttle.resume(Signal.LEVEL_DEPTH)
    assert told == [("after 0", True), ("after 9", False)]


def test_whoever_is_told_may_look() -> None:
    """Without a deadlock; and many threads at once lose nothing."""
    seen: list[int] = []
    throttle = Throttle(lambda _hold, _began: seen.append(len(throttle.reasons())))

    def hold_and_lift(name: EndpointName) -> None:
        for _ in range(200):
            throttle.pause(Signal.PAUSED, name, "")
            throttle.resume(Signal.PAUSED, name)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hold_and_lift, [EndpointName(f"E{n}") for n in range(4)]))
    assert throttle.changes == len(seen) == 4 * 200 * 2
    assert throttle.reasons() == []


def waits_after(*values: float, critical_above: float = 0) -> tuple[list[bool], list[str]]:
    """Return after which of these values one waits with a limit of 100, and what was critical."""
    left, critical = iter(values), list[str]()
    look = threshold(
        Signal.LATENCY,
        lambda: {SALES: Sample(next(left), "much")},
        (100.0, critical_above),
        critical.append,
    )
    return [SALES in look() for _ in values], critical


def test_a_value_over_its_limit_counts_until_it_is_a_good_deal_lower() -> None:
    """Between the two nothing changes, whatever it was."""
    found, _ = waits_after(100, 101, 99, 81, 80, 81, 100, 100.5)
    assert found == [False, True, True, True, False, False, False, True]


def test_far_out_of_bounds_it_is_critical() -> None:
    """Except what cannot be measured for one endpoint: that only makes it wait."""
    found, critical = waits_after(math.inf, 500, 501, critical_above=500)
    assert found == [True, True, True]
    assert critical == ["database_latency: much, above the limit of 500 at which the daemon ends"]


# ── before each claim ────────────────────────────────────────────────────────────────────────────


FINE = DueTimeReading(comparable=3)
WRONG = DueTimeReading(comparable=3, shifted=3, is_refused=True, text="an hour", remedy="set it")


class World:
    """A store of two endpoints, a throttle, and the time."""

    def __init__(self) -> None:
        self.throttle, self.at_s, self.looks = Throttle(), 0.0, 0
        self.says = {SALES: FINE, SHOP: FINE}
        self.stop = Stop()
        self.guard = ClaimGuard(
            self.throttle,
            self.stop,
            [StoreEndpoint(name=name, source=name) for name in self.says],
            read_due_times=self._look,
            quarantine_limit=QuarantineLimit(0, ()),
            now_s=lambda: self.at_s,
        )

    def _look(self, endpoint: StoreEndpoint) -> DueTimeReading:
        self.looks += 1
        return self.says[endpoint.name]


def test_the_first_claim_of_an_endpoint_is_held_alone_and_until_it_is_right() -> None:
    """The reason is named; it is looked at again soon."""
    world = World()
    world.says[SALES] = WRONG
    assert not world.guard.admit(SALES)
    assert world.guard.admit(SHOP)
    hold = world.throttle.reason_for(SALES)
    assert hold is not None
    assert (hold.signal, hold.text) == (Signal.TIME_ZONE, "time_zone: an hour (set it)")
    world.says[SALES] = FINE
    assert not world.guard.admit(SALES)
    world.at_s += REFUSED_AGAIN_S
    assert world.guard.admit(SALES)


def test_rows_are_read_now_and_then_once_they_are_known_to_be_right() -> None:
    """As long as none tells, each claim is preceded by a look: an empty table says nothing."""
    world = World()
    world.says[SALES] = DueTimeReading()
    assert [world.guard.admit(SALES) for _ in range(3)] == [True] * 3
    assert world.looks == 3
    world.says[SALES] = FINE
    for _ in range(5):
        world.guard.admit(SALES)
    assert world.looks == 4
    world.at_s += AGAIN_S
    world.says[SALES] = WRONG
    assert not world.guard.admit(SALES)


def test_nothing_is_claimed_while_everything_waits_or_the_process_ends() -> None:
    """Whichever endpoint it is; rows are not even read at the end."""
    world = World()
    assert world.guard.may_claim()
    world.throttle.pause(Signal.PAUSED, None, "x")
    assert not world.guard.may_claim()
    assert not world.guard.admit(SALES)
    world.throttle.resume(Signal.PAUSED)
    assert world.guard.admit(SALES)
    looks = world.looks
    world.stop.draining.set()
    assert not world.guard.may_claim()
    assert not world.guard.admit(SHOP)
    assert world.looks == looks
