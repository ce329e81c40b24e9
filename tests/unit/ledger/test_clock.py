"""Tests of ``migrator.ledger.clock`` with a database that says what it is told to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.errors import ClockInDoubt
from tests.unit.ledger.told_clock import START, ToldClock


@pytest.fixture
def clock() -> ToldClock:
    """One that has been read."""
    made = ToldClock()
    assert made.now() == START
    return made


@pytest.mark.parametrize("jump_s", [1.2, 300.0, -1.2, -300.0])
def test_a_jump_is_doubted_until_it_is_gone(clock: ToldClock, jump_s: float) -> None:
    """There is no time meanwhile; the earlier of the two is told."""
    clock.ahead_s = jump_s
    with pytest.raises(ClockInDoubt, match=f"it is {abs(jump_s):.1f} s") as found:
        clock.after(6)
    assert found.value.earliest == START + timedelta(seconds=6 + min(0, jump_s))
    with pytest.raises(ClockInDoubt):
        clock.after(1)
    clock.ahead_s = 0.0
    assert clock.after(6) == 0


@pytest.mark.parametrize("jump_s", [300.0, -300.0])
def test_a_jump_may_be_believed(clock: ToldClock, jump_s: float) -> None:
    """But only the one that was looked at."""
    clock.ahead_s = 50.0
    clock.elapsed_s += 6
    clock.sample(older_than_s=0)
    first = clock.doubt
    assert first is not None
    clock.ahead_s = jump_s
    clock.elapsed_s += 6
    clock.sample(older_than_s=0)
    assert not clock.trust(first)
    second = clock.doubt
    assert second is not None
    assert clock.trust(second)
    assert clock.after(1) == pytest.approx(jump_s)


def test_less_than_a_second_is_followed_and_never_overtaken(clock: ToldClock) -> None:
    """Ahead little by little, back at once."""
    clock.ahead_s = 0.9
    seen = [clock.after(6) for _ in range(10)]
    assert seen[:2] == pytest.approx([0.12, 0.24])
    assert seen[-1] == pytest.approx(0.9)
    clock.ahead_s = 0.2
    assert clock.after(6) == pytest.approx(0.2)


def test_a_slow_answer_is_no_jump(clock: ToldClock) -> None:
    """It says nothing against the time as it was, and the next good one is no jump either."""
    clock.round_trip_s = 5.0
    assert clock.after(6) == 0
    clock.round_trip_s = 0.0
    assert clock.after(6) == 0
    slow = ToldClock()
    slow.round_trip_s = 5.0
    assert slow.after(0) == -5
    slow.round_trip_s = 0.0
    assert slow.after(6) == 0
