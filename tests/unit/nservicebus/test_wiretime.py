"""Tests of ``migrator.nservicebus.wiretime``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.nservicebus.wiretime import NotAWireTime, build_wire_time, parse_wire_time

MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(moment=MOMENTS)
@example(datetime(1, 3, 15, 8, tzinfo=UTC))
def test_what_is_built_is_parsed_back(moment: datetime) -> None:
    """Every moment survives the round trip to the microsecond."""
    text = build_wire_time(moment)
    assert len(text) == 28
    assert parse_wire_time(text) == moment
    assert parse_wire_time(text).tzinfo is UTC


def test_other_zones_are_written_as_utc() -> None:
    """A moment given in another zone is the same moment on the wire."""
    warsaw = timezone(timedelta(hours=2))
    moment = datetime(2026, 7, 1, 1, 30, tzinfo=warsaw)
    assert build_wire_time(moment) == "2026-06-30 23:30:00:000000 Z"


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-03-15T08:00:00.123456Z", "2026-03-15 08:00:00:123456 z", "x" * 10_000_000),
        *("2026-03-15 08:00:00.123456 Z", "2026-03-15 08:00:00:12345 Z"),
        *("2026-03-15 08:00:00:1234567 Z", "2026-03-15 08:00:00:123456  Z"),
        *("2026-03-15 08:00:00:123456Z  ", " 2026-03-15 08:00:00:123456Z"),
        *("2026-02-30 08:00:00:123456 Z", "2026-03-15 24:00:00:000000 Z"),
        *("0000-03-15 08:00:00:123456 Z", "-026-03-15 08:00:00:123456 Z"),
        *("2026- 3-15 08:00:00:123456 Z", "2026-3-15 08:00:00:1234560 Z"),
        *("2026-03-15  8:00:00:123456 Z", "2026-03-15 08:00:00:+23456 Z"),
        *("2026-03-15 08:00:00:12345\uff16 Z", "2026-W11-7 08:00:00:123456 Z"),
        *("2026-03-15 08:00:00:123456\tZ", "2026-03-15\t08:00:00:123456 Z"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Other lengths, separators, digits and dates that do not exist are refused."""
    with pytest.raises(NotAWireTime) as caught:
        parse_wire_time(text)
    assert len(str(caught.value)) < 200
