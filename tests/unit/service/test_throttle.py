"""Tests of ``migrator.service.throttle``."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.throttle import AGAIN_S, REFUSED_AGAIN_S, ClaimGuard, Throttle, is_over
from migrator.service.worker import Stop
from migrator.stores.due_times import DueTimeReading

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")


def hold(
    signal: Signal, endpoint: EndpointName | None = None, *, after_s: int = 0, observed: str = "so"
) -> PauseReason:
    """Return a hold that began so many seconds after ``NOW``."""
    return PauseReason(
        signal=signal,
        endpoint=endpoint,
        observed=observed,
        limit="",
        since=NOW + timedelta(seconds=after_s),
    )


def test_a_hold_for_all_is_one_for_each() -> None:
    """One of an endpoint holds that alone; the oldest is the one that is told."""
    throttle = Throttle()
    assert throttle.reason_for(None) is throttle.reason_for(SALES) is None
    throttle.pause(hold(Signal.VETO, SALES, after_s=2))
    throttle.pause(hold(Signal.PAUSED, after_s=5))
    assert [each.signal for each in throttle.reasons_for(SALES)] == [Signal.VETO, Signal.PAUSED]
    assert [each.signal for each in throttle.reasons_for(SHOP)] == [Signal.PAUSED]
    assert throttle.reason_for(SALES) == hold(Signal.VETO, SALES, after_s=2)
    assert throttle.reason_for(None) == hold(Signal.PAUSED, after_s=5)
    assert throttle.resume(Signal.PAUSED) is not None
    assert throttle.resume(Signal.PAUSED) is None
    assert throttle.reason_for(SHOP) is None


def test_a_hold_that_is_repeated_keeps_its_beginning() -> None:
    """What it says is brought up to date, and nobody is told again."""
    told: list[tuple[str, bool]] = []
    throttle = Throttle(lambda each, began: told.append((each.observed, began)))
    assert throttle.pause(hold(Signal.LEVEL_DEPTH, observed="5"))
    assert not throttle.pause(hold(Signal.LEVEL_DEPTH, observed="6", after_s=9))
    assert throttle.reasons() == [hold(Signal.LEVEL_DEPTH, observed="6")]
    throttle.resume(Signal.LEVEL_DEPTH)
    assert told == [("5", True), ("6", False)]
    assert throttle.changes == 2


def test_all_holds_of_one_signal_are_lifted_together() -> None:
    """Those of others stay."""
    throttle = Throttle()
    for each in (hold(Signal.PAUSED, SALES), hold(Signal.PAUSED), hold(Signal.VETO)):
        throttle.pause(each)
    assert len(throttle.resume_all(Signal.PAUSED)) == 2
    assert [each.signal for each in throttle.reasons()] == [Signal.VETO]


def test_the_reason_for_nothing_at_all() -> None:
    """There is one when all wait, each for its own; and it concerns whoever waits at all."""
    throttle = Throttle()
    throttle.pause(hold(Signal.PAUSED, SALES))
    assert throttle.reason_for_all([SALES, SHOP]) is None
    assert throttle.concerns([SALES, SHOP])
    assert not throttle.concerns([SHOP])
    throttle.pause(hold(Signal.LATENCY, SHOP))
    found = throttle.reason_for_all([SALES, SHOP])
    assert found is not None
    assert found.signal is Signal.PAUSED


def test_whoever_is_told_may_look() -> None:
    """Without a deadlock; and many threads at once lose nothing."""
    seen: list[int] = []
    throttle = Throttle(lambda _hold, _began: seen.append(len(throttle.reasons())))

    def hold_and_lift(name: EndpointName) -> None:
        for _ in range(200):
            throttle.pause(hold(Signal.PAUSED, name))
            throttle.resume(Signal.PAUSED, name)

    threads = [
        threading.Thread(target=hold_and_lift, args=[EndpointName(f"E{n}")]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert throttle.changes == len(seen) == 4 * 200 * 2
    assert throttle.reasons() == []


def test_a_value_over_its_limit_counts_until_it_is_a_good_deal_lower() -> None:
    """Between the two nothing changes, whatever it was."""
    was_over, found = False, []
    for value in [100, 101, 99, 81, 80, 81, 100, 100.5]:
        was_over = is_over(value, 100.0, was_over=was_over)
        found.append(was_over)
    assert found == [False, True, True, True, False, False, False, True]
    assert not is_over(0.0, 0.0, was_over=True)  # such as no replica that is behind at all


@given(st.lists(st.floats(min_value=80.1, max_value=100), min_size=1, max_size=30), st.booleans())
def test_in_the_gap_nothing_changes(values: list[float], before: bool) -> None:
    """Whether it was over before, or not."""
    was_over = before
    for value in values:
        was_over = is_over(value, 100.0, was_over=was_over)
        assert was_over is before


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
            now_s=lambda: self.at_s,
        )

    def _look(self, endpoint: StoreEndpoint) -> DueTimeReading:
        self.looks += 1
        return self.says[endpoint.name]


def test_the_first_claim_of_an_endpoint_is_held_alone_and_until_it_is_right() -> None:
    """The reason is named; it is looked at again soon."""
    world = World()
    world.says[SALES] = WRONG
    assert not world.guard.may_claim(SALES)
    assert world.guard.may_claim(SHOP)
    hold = world.throttle.reason_for(SALES)
    assert hold is not None
    assert (hold.signal, hold.text) == (Signal.TIME_ZONE, "time_zone: an hour (set it)")
    world.says[SALES] = FINE
    assert not world.guard.may_claim(SALES)
    world.at_s += REFUSED_AGAIN_S
    assert world.guard.may_claim(SALES)


def test_rows_are_not_read_before_every_claim() -> None:
    """Once they are known to be right, only now and then."""
    world = World()
    for _ in range(5):
        world.guard.may_claim(SALES)
    assert world.looks == 1
    world.at_s += AGAIN_S
    world.guard.may_claim(SALES)
    assert world.looks == 2


def test_as_long_as_no_row_tells_each_claim_is_preceded_by_a_look() -> None:
    """An empty table says nothing about the rows that come."""
    world = World()
    world.says[SALES] = DueTimeReading()
    assert world.guard.may_claim(SALES)
    world.says[SALES] = WRONG
    assert not world.guard.may_claim(SALES)


def test_nothing_is_claimed_while_everything_waits_or_the_process_ends() -> None:
    """Whichever endpoint it is; rows are not even read at the end."""
    world = World()
    assert world.guard.may_claim()
    reason = PauseReason(
        signal=Signal.PAUSED, endpoint=None, observed="x", limit="", since=datetime.now(UTC)
    )
    world.throttle.pause(reason)
    assert not world.guard.may_claim()
    assert not world.guard.may_claim(SALES)
    world.throttle.resume(Signal.PAUSED)
    assert world.guard.may_claim(SALES)
    looks = world.looks
    world.stop.draining.set()
    assert not world.guard.may_claim()
    assert not world.guard.may_claim(SHOP)
    assert world.looks == looks
