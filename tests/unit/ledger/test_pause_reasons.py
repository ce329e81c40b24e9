"""Tests of ``migrator.ledger.pause_reasons``."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.ledger.pause_reasons import Gauge, Hold, Limit, Signal, limit_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def gauge(most: float = 100.0) -> Gauge:
    """Return one that began at second 0."""
    return Gauge(limit_of(most, stale_after_s=30.0), began_s=0.0)


def test_it_holds_above_the_limit_and_resumes_a_good_deal_below() -> None:
    """Between the two nothing changes, whatever it was."""
    found = gauge()
    taken = []
    for at_s, value in enumerate([100, 101, 99, 81, 80, 81, 100, 100.5]):
        found.take(value, at_s=at_s)
        taken.append(found.holds(now_s=at_s))
    assert taken == [False, True, True, True, False, False, False, True]
    assert found.value == 100.5


@given(st.lists(st.floats(min_value=80.1, max_value=100), min_size=1, max_size=30))
def test_in_the_gap_it_never_changes_its_mind(values: list[float]) -> None:
    """Whether it held before, or not."""
    for first, expected in ((101.0, True), (0.0, False)):
        found = gauge()
        for value in [first, *values]:
            found.take(value, at_s=0.0)
            assert found.holds(now_s=0.0) is expected


@pytest.mark.parametrize(("now_s", "expected"), [(30.0, False), (30.1, True)])
def test_what_is_too_old_is_not_believed(now_s: float, expected: bool) -> None:
    """Neither before the first sample, nor after the last."""
    never = gauge()
    assert (never.is_stale(now_s=now_s), never.holds(now_s=now_s)) == (expected, expected)
    once = gauge()
    once.take(1.0, at_s=5.0)
    assert once.holds(now_s=now_s + 5.0) is expected
    assert never.value is None


def test_a_limit_of_zero_resumes_at_zero() -> None:
    """Such as no replica that is behind at all."""
    assert limit_of(0.0, stale_after_s=1.0) == Limit(
        hold_above=0.0, resume_below=0.0, stale_after_s=1.0
    )


def test_a_hold_is_one_line() -> None:
    """With what would be fine, where there is such a thing."""
    facts = {"signal": Signal.VETO, "endpoint": None, "observed": "no", "since": NOW}
    assert Hold(limit="", **facts).text == "veto: no"  # type: ignore[arg-type]  # a plain mapping
    assert Hold(limit="yes", **facts).text == "veto: no (yes)"  # type: ignore[arg-type]  # as above
