"""Tests of ``migrator.delays.releases``: the model, held to measurements."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.releases import (
    BROKER_CORES,
    EXCHANGE_COST_S,
    HORIZON_S,
    RANGES,
    forecast_late_s,
    late_at_full_speed_s,
    load,
    paced_s,
    range_from_s,
    range_level,
    range_of,
    releases,
)
from migrator.nservicebus.timeouts import MAX_DELAY_S


@pytest.mark.parametrize(
    ("delay_s", "expected"),
    [
        (0, []),
        (1, [(0, 1, 1)]),
        (32, [(5, 32, 6)]),
        (96, [(6, 64, 1), (5, 96, 6)]),
        (15, [(3, 8, 1), (2, 12, 1), (1, 14, 1), (0, 15, 1)]),
        (2**22 + 5, [(22, 2**22, 20), (2, 2**22 + 4, 2), (0, 2**22 + 5, 1)]),
    ],
)
def test_a_message_passes_the_exchanges_of_every_bit(
    delay_s: int, expected: list[tuple[int, int, int]]
) -> None:
    """Each set bit is a level that lets go; the exchanges in between are the zeros below it."""
    assert list(releases(delay_s)) == expected


@given(st.integers(1, MAX_DELAY_S))
def test_a_message_is_let_go_of_when_its_delay_is_over(delay_s: int) -> None:
    """All exchanges below the entry level are passed once, and the last release is in time."""
    found = list(releases(delay_s))
    assert found[-1][1] == delay_s
    assert sum(exchanges for _, _, exchanges in found) == found[0][0] + 1


def test_a_range_is_a_level_or_a_quarter_of_a_high_one() -> None:
    """They follow each other without a gap, from the shortest delay to the longest."""
    begins_s = [range_from_s(each) for each in range(RANGES)]
    assert begins_s[:4] == [1, 2, 4, 8]
    assert begins_s[15:21] == [2**15, 2**16, 5 * 2**14, 6 * 2**14, 7 * 2**14, 2**17]
    assert [range_of(each) for each in begins_s] == list(range(RANGES))
    assert range_of(0) == 0
    assert [range_of(each - 1) for each in begins_s[1:]] == list(range(RANGES - 1))
    assert range_of(MAX_DELAY_S) == RANGES - 1
    assert [range_level(each) for each in range(RANGES)] == [
        each.bit_length() - 1 for each in begins_s
    ]


@pytest.mark.parametrize(
    ("delays_s", "measured_per_s"),
    [
        ([1], (8_700, 11_400)),
        ([8], (2_390, 2_440)),
        ([32], (1_300, 2_330)),
        ([64], (1_630, 1_940)),
        ([15], (3_600, 3_770)),
        ([63], (3_500, 3_590)),
        ([32, 64], (2_470, 2_470)),
    ],
    ids=str,
)
def test_the_model_tells_what_was_measured(
    delays_s: list[int], measured_per_s: tuple[int, int]
) -> None:
    """Within a factor of 1.5 of either generation, on RabbitMQ 3.10 and two cores."""
    found, by_level = load(delays_s), Counter[int]()
    for passed in found.passing.values():
        by_level.update({level: int(exchanges) for level, exchanges in passed.items()})
    most = max(max(by_level.values()), by_level.total() / BROKER_CORES)
    told = found.rows / (most * EXCHANGE_COST_S)
    assert all(each / 1.5 <= told <= each * 1.5 for each in measured_per_s)


def test_a_load_is_counted_by_entry_level_and_by_second() -> None:
    """What has no delay counts nothing; each message may stand for several."""
    found = load([0, 96, 64, 64, 2**20], weight=2.0)
    assert found.rows == 8.0
    assert found.entering == {6: 2.0 + 28.0, 20: 42.0}
    assert load([2**20, 2**20 + 2**19]).entering == {20: 22.0}
    assert found.after == {64: 30.0, 96: 12.0}
    assert load([0, 0]).entering == {}
    busy = load([96, 64], receiving=0.5)  # of a level, not of a second
    assert busy.passing == {6: {6: 1.5 + 7.5, 5: 6.5}}
    assert busy.after == {64: 8.0, 96: 6.0}


def test_the_busiest_level_of_a_stream_need_not_be_where_it_enters() -> None:
    """All of 96 s passes one exchange out of level 6, and six out of level 5."""
    found = load([96] * 10)
    assert found.passing == {6: {6: 10.0, 5: 60.0}}


@given(st.lists(st.integers(0, MAX_DELAY_S), max_size=30))
def test_no_release_beyond_the_horizon_is_counted_one_by_one(delays_s: list[int]) -> None:
    """The rest is: a process that runs for months keeps at most an entry per second of it."""
    assert all(0 < after_s <= HORIZON_S for after_s in load(delays_s).after)


def test_what_a_level_is_filled_with_too_fast_comes_out_late() -> None:
    """40 000 of 32 s were up to 14.7 s late at 10 300/s, and 0.1 s at 1 200/s."""
    late = {}
    for per_s in (1_200, 10_300):
        sent = [(n * 10 / per_s, 32, 10.0, 0.0) for n in range(4_000)]
        late[per_s] = forecast_late_s(sent)[-1]
    assert late[1_200] < 0.1
    assert 14.7 / 1.5 <= late[10_300] <= 14.7 * 1.5


def test_what_is_late_in_one_level_is_late_in_the_next() -> None:
    """One message behind a thousand: 0.7 s out of level 6, and as much at the end."""
    late = forecast_late_s([(0.0, 64, 1000.0, 0.0), (0.0, 64 + 8, 1.0, 0.0)])
    assert late == pytest.approx([0.7 - 0.0, 0.7 + 0.0003 + 0.0004], abs=1e-3)


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        ({}, 0.0),
        ({22: 25_000}, 10.0),  # 2 500 a second
        ({0: 25_000}, 5.0),
        ({21: 25_000, 22: 25_000}, 13.33),  # both share the machine
        ({5: 100, 22: 25_000}, 10.0),
    ],
)
def test_the_pace_says_how_long_a_hand_over_takes_at_least(
    rows: dict[int, int], seconds: float
) -> None:
    """Levels fill side by side."""
    assert paced_s(rows, exchange_cost_s=EXCHANGE_COST_S) == pytest.approx(seconds, abs=0.01)
    alone = {level: count for level, count in rows.items() if level > 20}
    longer_s = paced_s(alone, exchange_cost_s=EXCHANGE_COST_S, receiving=0.5)
    assert longer_s == pytest.approx(1.25 * paced_s(alone, exchange_cost_s=EXCHANGE_COST_S))


@pytest.mark.parametrize(
    ("due", "most_s", "least_s"),
    [
        ([(60.0, 180.0, 60_000)], 20.0, 5.0),
        ([(60.0, 120.0, 20_000)], 4.0, 1.0),
        ([(2.0**22, 2.0**23, 500_000)], 40.0, 15.0),
        ([(60.0, 4_000.0, 2_000)], 0.1, 0.0),
        ([(0.0, 0.0, 9_000)], 0.0, 0.0),
        ([], 0.0, 0.0),
    ],
)
def test_a_bulk_at_full_speed_is_as_late_as_its_dues_are_close(
    due: list[tuple[float, float, int]], most_s: float, least_s: float
) -> None:
    """Measured for the first: 12 to 20 s, on a machine that had more to do; due rows wait not."""
    assert least_s <= late_at_full_speed_s(due, rows_per_s=6_000) <= most_s
