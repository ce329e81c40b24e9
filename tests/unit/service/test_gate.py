"""Tests of ``migrator.service.gate``."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from migrator.ledger.pause_reasons import Hold, Signal
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.gate import Gate

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")


def hold(
    signal: Signal, endpoint: EndpointName | None = None, *, after_s: int = 0, observed: str = "so"
) -> Hold:
    """Return a hold that began so many seconds after ``NOW``."""
    return Hold(
        signal=signal,
        endpoint=endpoint,
        observed=observed,
        limit="",
        since=NOW + timedelta(seconds=after_s),
    )


def test_a_hold_for_all_is_one_for_each() -> None:
    """One of an endpoint holds that alone; the oldest is the one that is told."""
    gate = Gate()
    assert gate.hold_for(None) is gate.hold_for(SALES) is None
    gate.hold(hold(Signal.VETO, SALES, after_s=2))
    gate.hold(hold(Signal.PAUSED, after_s=5))
    assert [each.signal for each in gate.holds_for(SALES)] == [Signal.VETO, Signal.PAUSED]
    assert [each.signal for each in gate.holds_for(SHOP)] == [Signal.PAUSED]
    assert gate.hold_for(SALES) == hold(Signal.VETO, SALES, after_s=2)
    assert gate.hold_for(None) == hold(Signal.PAUSED, after_s=5)
    assert gate.lift(Signal.PAUSED) is not None
    assert gate.lift(Signal.PAUSED) is None
    assert gate.hold_for(SHOP) is None


def test_a_hold_that_is_repeated_keeps_its_beginning() -> None:
    """What it says is brought up to date, and nobody is told again."""
    told: list[tuple[str, bool]] = []
    gate = Gate(lambda each, began: told.append((each.observed, began)))
    assert gate.hold(hold(Signal.LEVEL_DEPTH, observed="5"))
    assert not gate.hold(hold(Signal.LEVEL_DEPTH, observed="6", after_s=9))
    assert gate.holds() == [hold(Signal.LEVEL_DEPTH, observed="6")]
    gate.lift(Signal.LEVEL_DEPTH)
    assert told == [("5", True), ("6", False)]
    assert gate.changes == 2


def test_all_holds_of_one_signal_are_lifted_together() -> None:
    """Those of others stay."""
    gate = Gate()
    for each in (hold(Signal.PAUSED, SALES), hold(Signal.PAUSED), hold(Signal.VETO)):
        gate.hold(each)
    assert len(gate.lift_all(Signal.PAUSED)) == 2
    assert [each.signal for each in gate.holds()] == [Signal.VETO]


def test_the_reason_for_nothing_at_all() -> None:
    """There is one when all wait, each for its own; and it concerns whoever waits at all."""
    gate = Gate()
    gate.hold(hold(Signal.PAUSED, SALES))
    assert gate.reason([SALES, SHOP]) is None
    assert gate.concerns([SALES, SHOP])
    assert not gate.concerns([SHOP])
    gate.hold(hold(Signal.LATENCY, SHOP))
    found = gate.reason([SALES, SHOP])
    assert found is not None
    assert found.signal is Signal.PAUSED


def test_whoever_is_told_may_look() -> None:
    """Without a deadlock; and many threads at once lose nothing."""
    seen: list[int] = []
    gate = Gate(lambda _hold, _began: seen.append(len(gate.holds())))

    def hold_and_lift(name: EndpointName) -> None:
        for _ in range(200):
            gate.hold(hold(Signal.PAUSED, name))
            gate.lift(Signal.PAUSED, name)

    threads = [
        threading.Thread(target=hold_and_lift, args=[EndpointName(f"E{n}")]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert gate.changes == len(seen) == 4 * 200 * 2
    assert gate.holds() == []
