"""Tests of ``migrator.throttle.reasons``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from migrator.nservicebus.timeouts import EndpointName
from migrator.throttle.reasons import Signal, Throttle

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
