"""From a due time to whole seconds of delay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.delays.routing import delay_s
from migrator.errors import TargetUnavailable
from migrator.nservicebus.timeouts import BITS, MAX_DELAY_S
from migrator.nservicebus.wiretime import seconds_up

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
SPANS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(seconds=MAX_DELAY_S))


def test_the_longest_delay_is_what_28_bits_hold() -> None:
    """28 levels of doubling length hold 2^28 - 1 seconds."""
    assert (BITS, MAX_DELAY_S) == (28, 268_435_455)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(seconds=5), 5),
        (timedelta(seconds=5, microseconds=1), 6),
        (timedelta(seconds=4, microseconds=999_999), 5),
        (timedelta(microseconds=1), 1),
        (timedelta(0), 0),
        (-timedelta(microseconds=1), 0),
        (-timedelta(days=4000), 0),
        (timedelta(seconds=MAX_DELAY_S), MAX_DELAY_S),
        (timedelta(seconds=MAX_DELAY_S - 1, microseconds=1), MAX_DELAY_S),
    ],
)
def test_delays_are_rounded_up_and_never_negative(span: timedelta, expected: int) -> None:
    """A part of a second counts as a whole one; what is overdue waits no time."""
    assert delay_s(NOW + span, now=NOW) == expected


@pytest.mark.parametrize("beyond", [timedelta(microseconds=1), timedelta(days=365)])
def test_a_delay_of_more_than_28_bits_is_refused(beyond: timedelta) -> None:
    """Higher bits would be lost in silence, so there is no such delay."""
    with pytest.raises(TargetUnavailable, match="28 bits"):
        delay_s(NOW + timedelta(seconds=MAX_DELAY_S) + beyond, now=NOW)


@given(span=SPANS)
def test_a_message_is_never_early_and_less_than_a_second_late(span: timedelta) -> None:
    """Waiting the delay from now ends at the due time or within the second behind it."""
    waited = timedelta(seconds=delay_s(NOW + span, now=NOW))
    assert timedelta(0) <= waited - span < timedelta(seconds=1)


@given(span=st.timedeltas())
def test_seconds_up_is_exact_for_any_span(span: timedelta) -> None:
    """No floating point is involved, so even millennia are exact to the microsecond."""
    whole = timedelta(seconds=seconds_up(span)) if abs(span) < timedelta(days=10**8) else None
    assert whole is None or timedelta(0) <= whole - span < timedelta(seconds=1)
