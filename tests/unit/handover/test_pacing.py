"""Tests of ``migrator.handover.pacing``: no level and no second gets more than its room."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.delays.releases import (
    BROKER_CORES,
    EXCHANGE_COST_S,
    FRACTION,
    HORIZON_S,
    RECEIVING,
    load,
    range_of,
)
from migrator.delays.routing import DelaysVersion
from migrator.handover.pacing import BURST_S, ExchangeCost, Pacer

NEVER_S = 1e12
ROOM = BROKER_CORES * FRACTION


def fill(pacer: Pacer, delays_s: list[int], *, seconds: float) -> int:
    """Hand over batches of these delays as fast as the pacer lets; return how many in *seconds*."""
    batches, now_s = 0, 100.0
    while now_s < 100.0 + seconds:
        now_s = pacer.book(load(delays_s), now_s=now_s, latest_s=NEVER_S).start_s
        batches += 1
    return batches


@pytest.mark.parametrize(("delay_s", "per_s"), [(32, 833), (64, 714), (2**20, 238)])
def test_a_level_is_filled_at_a_part_of_what_it_lets_go_of(delay_s: int, per_s: int) -> None:
    """At 0.1 ms for each exchange; native messages find the rest of it free."""
    assert fill(Pacer(), [delay_s] * 50, seconds=20) * 50 / 20 == pytest.approx(per_s, rel=0.02)


def test_a_stream_through_a_narrow_level_below_is_as_slow_as_that() -> None:
    """96 s passes one exchange when it leaves level 6, and six when it leaves level 5."""
    rate = FRACTION / (6 * EXCHANGE_COST_S)
    assert fill(Pacer(), [96] * 50, seconds=40) * 50 / 40 == pytest.approx(rate, rel=0.05)


def test_a_level_makes_up_for_a_moment_in_which_it_stood_empty() -> None:
    """For one batch: that is through its levels when the next one comes."""
    pacer, batch, step_s = Pacer(), load([64] * 50), 50 * 7 * EXCHANGE_COST_S / FRACTION
    starts_s = [
        pacer.book(batch, now_s=now_s, latest_s=NEVER_S).start_s for now_s in (0.0, 9.0, 9.0, 9.0)
    ]
    made_up_s = 9.0 + step_s - BURST_S
    assert starts_s == pytest.approx([0.0, 9.0, made_up_s, made_up_s + step_s])


def test_what_a_level_takes_in_meanwhile_is_counted() -> None:
    """In v1 a level that passes one exchange for each message is filled half as fast."""
    for delay_s, exchanges in ((96, 6), (127, 1)):
        batch = load([delay_s] * 50, receiving=RECEIVING[DelaysVersion.V1])
        pacer, now_s, rows = Pacer(receiving=RECEIVING[DelaysVersion.V1]), 0.0, 0
        while now_s < 30.0:
            now_s = pacer.book(batch, now_s=now_s, latest_s=NEVER_S).start_s
            rows += 50
        rate = FRACTION / ((exchanges + 1) * EXCHANGE_COST_S)
        assert rows / 30 == pytest.approx(rate, rel=0.05)


def test_a_level_far_below_is_counted_for_each_level_that_rows_enter() -> None:
    """Beyond the seconds that are booked one by one; a moment's run of the same bits is let be."""
    delay_s = 2**22 + 2**21 + 2**15  # one exchange out of level 22, six out of 21
    rate = FRACTION / (16 * EXCHANGE_COST_S)  # and sixteen out of 15
    assert fill(Pacer(), [delay_s] * 50, seconds=40) * 50 / 40 == pytest.approx(rate, rel=0.05)
    assert Pacer().book(load([delay_s] * 50), now_s=0.0, latest_s=NEVER_S).start_s == 0.0
    pacer = Pacer()
    pacer.book(load([delay_s] * 50), now_s=0.0, latest_s=NEVER_S)
    soon = pacer.book(load([delay_s] * 50), now_s=0.0, latest_s=NEVER_S)
    assert soon.start_s == pytest.approx(50 * EXCHANGE_COST_S / FRACTION)


def test_levels_fill_side_by_side() -> None:
    """Batches of two levels, in turns, are handed over at the rate of both together."""
    pacer, now_s, rows = Pacer(), 0.0, 0
    while now_s < 20.0:
        for delay_s in (2**20, 2**21):
            now_s = pacer.book(load([delay_s] * 50), now_s=now_s, latest_s=NEVER_S).start_s
            rows += 50
    assert rows / 20 == pytest.approx(500 / 2.1 + 500 / 2.2, rel=0.05)


@given(
    batches=st.lists(
        st.tuples(st.integers(0, 27), st.integers(1, 60), st.floats(0.0, 2.0)), max_size=80
    )
)
@settings(max_examples=200, deadline=None)
def test_no_second_of_any_level_and_of_the_broker_gets_more_than_its_room(
    batches: list[tuple[int, int, float]],
) -> None:
    """Whatever comes when: a level's releases are spread, but for what an idle moment left over."""
    pacer, now_s = Pacer(), 0.0
    started: dict[int, list[tuple[float, float]]] = {}
    by_second = Counter[int]()
    largest = Counter[int]()
    for level, rows, wait_s in batches:
        now_s += wait_s
        found = load([2**level] * rows)
        start_s = pacer.book(found, now_s=now_s, latest_s=NEVER_S).start_s
        assert start_s >= now_s
        work_s = found.entering[level] * EXCHANGE_COST_S
        started.setdefault(level, []).append((start_s, work_s))
        if 2**level <= HORIZON_S:
            second = int(start_s + 2**level)
            by_second[second] += round(work_s * 1e6)
            largest[second] = max(largest[second], round(work_s * 1e6))
    for each in started.values():
        for first, (before_s, _) in enumerate(each):
            works_s = accumulate(work_s for _, work_s in each[first:])
            for (after_s, _), work_s in zip(each[first + 1 :], works_s, strict=False):
                assert after_s - before_s >= work_s / FRACTION - BURST_S - 1e-6
    assert all(us <= max(ROOM * 1e6, largest[second]) + 1 for second, us in by_second.items())


def test_a_full_second_is_left_out() -> None:
    """Whichever levels fill it, the broker has to do it all."""
    pacer = Pacer()
    pacer.book(load([64] * 1000), now_s=0.0, latest_s=NEVER_S)  # 0.7 s of work in second 64
    found = pacer.book(load([32] * 500), now_s=32.5, latest_s=NEVER_S)
    assert (found.start_s, found.reason) == (
        33.0,
        "all levels together release as fast as the broker can",
    )


def test_nothing_waits_until_it_is_late_and_what_is_due_waits_for_nothing() -> None:
    """Rows without a delay enter no level."""
    pacer = Pacer()
    pacer.book(load([8] * 10_000), now_s=0.0, latest_s=NEVER_S)
    assert pacer.book(load([8] * 10), now_s=0.5, latest_s=2.0).start_s == 2.0
    assert pacer.book(load([8] * 10), now_s=3.0, latest_s=2.5).start_s == 3.0
    assert pacer.book(load([0] * 10), now_s=0.5, latest_s=NEVER_S).start_s == 0.5


def test_a_wait_has_its_reason() -> None:
    """As the status tells it."""
    pacer = Pacer()
    pacer.book(load([64] * 100), now_s=0.0, latest_s=NEVER_S)
    found = pacer.book(load([64] * 100), now_s=0.0, latest_s=NEVER_S)
    assert found.reason == "level 06 releases 1429/s"
    assert found.start_s == pytest.approx(100 * 7 * EXCHANGE_COST_S / FRACTION)


def test_several_processes_and_slow_levels_count_at_once() -> None:
    """Two processes have half each; levels that turned out twice as slow halve it again."""
    alone = fill(Pacer(), [2**20] * 50, seconds=20)
    pacer = Pacer()
    pacer.processes = 2
    assert fill(pacer, [2**20] * 50, seconds=20) == pytest.approx(alone / 2, rel=0.05)
    cost = ExchangeCost()
    pacer = Pacer(cost=cost)
    pacer.slowness, cost.seconds = 2.0, 2 * EXCHANGE_COST_S
    assert fill(pacer, [2**20] * 50, seconds=40) == pytest.approx(alone / 2, rel=0.05)


def test_rows_at_a_time_are_learned_from_the_last_batch() -> None:
    """A batch goes through its levels at once, and must leave each of them soon."""
    pacer = Pacer()
    assert pacer.rows_at_once(6) == pytest.approx(BURST_S / (2 * EXCHANGE_COST_S))
    pacer.book(load([64] * 100), now_s=0.0, latest_s=NEVER_S)
    assert pacer.rows_at_once(6) == pytest.approx(BURST_S / (7 * EXCHANGE_COST_S))
    pacer.book(load([96] * 100), now_s=9.0, latest_s=NEVER_S)  # six of them out of level 5
    assert pacer.rows_at_once(6) == pytest.approx(BURST_S / (6 * EXCHANGE_COST_S))
    assert pacer.rows_at_once(7) == pytest.approx(BURST_S / (2 * EXCHANGE_COST_S))


def test_rows_at_a_time_are_those_of_a_range() -> None:
    """A few rows of the next quarter at the end of a batch say as much of it as many."""
    quarter_s = 2**22 // 4
    pacer, low_s = Pacer(), 2**22 + 3 * quarter_s + 2**19  # one exchange, one, then nineteen
    pacer.book(load([2**22 + quarter_s] * 297 + [low_s] * 3), now_s=0.0, latest_s=NEVER_S)
    first, last = range_of(2**22 + quarter_s), range_of(low_s)
    assert pacer.rows_at_once(first) == pytest.approx(BURST_S / (21 * EXCHANGE_COST_S))
    assert pacer.rows_at_once(last) == pytest.approx(BURST_S / (20 * EXCHANGE_COST_S))
    unknown = Pacer(receiving=0.5).rows_at_once(last)
    assert unknown == pytest.approx(BURST_S / (2.5 * EXCHANGE_COST_S))


def test_a_level_is_free_once_what_is_claimed_for_it_has_gone() -> None:
    """Booked or only planned; room comes back with time."""
    pacer = Pacer()
    assert pacer.free_s(6, now_s=0.0) == 0.0
    pacer.plan(6, 100, now_s=0.0)
    pacer.plan(6, 1000, now_s=0.0)
    assert pacer.free_s(6, now_s=0.0) == pytest.approx(1100 * 2 * EXCHANGE_COST_S / FRACTION)
    assert pacer.free_s(7, now_s=0.0) == 0.0
    assert pacer.free_s(6, now_s=1.0) == 1.0
    pacer.book(load([128] * 1000), now_s=1.0, latest_s=NEVER_S)
    free_s = 1.0 + 1000 * 8 * EXCHANGE_COST_S / FRACTION
    assert pacer.free_s(7, now_s=1.0) == pytest.approx(free_s)


def test_at_full_speed_nothing_is_booked_and_nothing_waits() -> None:
    """For a maintenance window; turned on again, it begins anew."""
    is_on = False
    pacer = Pacer(is_on=lambda: is_on)
    assert fill(pacer, [64] * 1000, seconds=0.0) == 0
    assert pacer.book(load([64] * 9000), now_s=5.0, latest_s=NEVER_S).start_s == 5.0
    pacer.plan(6, 100_000, now_s=5.0)
    assert pacer.free_s(6, now_s=5.0) == 5.0
    assert pacer.rows_at_once(6) == float("inf")
    is_on = True
    assert pacer.book(load([64]), now_s=5.0, latest_s=NEVER_S).start_s == 5.0
