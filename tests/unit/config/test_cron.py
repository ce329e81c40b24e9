"""Tests of ``migrator.config.cron``: when a window is open, also where clocks are put."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from migrator.config.cron import Cron, parse_cron, parse_cron_window, parse_rhythm

VIENNA = ZoneInfo("Europe/Vienna")
"""Clocks go from 2:00 to 3:00 on 29 March 2026, and from 3:00 to 2:00 on 25 October."""


def utc(text: str) -> datetime:
    """Return a moment of 2026, such as ``03-29 01:30``, in UTC."""
    return datetime.fromisoformat(f"2026-{text}:00+00:00")


@pytest.mark.parametrize(
    ("text", "at", "is_open"),
    [
        # Friday 22:00 for eight hours, in winter: 21:00 to 5:00 UTC
        ("0 22 * * fri 8h", "01-09 20:59", False),
        ("0 22 * * fri 8h", "01-09 21:00", True),
        ("0 22 * * fri 8h", "01-10 04:59", True),
        ("0 22 * * fri 8h", "01-10 05:00", False),
        ("0 22 * * fri 8h", "01-10 21:00", False),
        # clocks are put forward within it: it closes at 7:00 instead of 6:00, eight hours later
        ("0 22 * * * 8h", "03-28 21:00", True),
        ("0 22 * * * 8h", "03-29 04:59", True),
        ("0 22 * * * 8h", "03-29 05:00", False),
        # put back: at 5:00
        ("0 22 * * * 8h", "10-24 20:00", True),
        ("0 22 * * * 8h", "10-25 03:59", True),
        ("0 22 * * * 8h", "10-25 04:00", False),
        # 2:30 is left out: it is 3:30
        ("30 2 * * * 30m", "03-29 00:45", False),
        ("30 2 * * * 30m", "03-29 01:29", False),
        ("30 2 * * * 30m", "03-29 01:30", True),
        ("30 2 * * * 30m", "03-29 02:00", False),
        # 2:30 comes twice, and so does the window
        ("30 2 * * * 30m", "10-25 00:30", True),
        ("30 2 * * * 30m", "10-25 01:00", False),
        ("30 2 * * * 30m", "10-25 01:30", True),
        ("30 2 * * * 30m", "10-25 02:00", False),
        # longer than the time between two: always
        ("0 0 * * * 2d", "03-29 01:00", True),
        ("*/15 * * * * 5m", "06-01 10:19", True),
        ("*/15 * * * * 5m", "06-01 10:20", False),
    ],
)
def test_a_window_is_open_for_its_time(text: str, at: str, is_open: bool) -> None:
    """From its beginning, included, to its end, which is not; the clock is the zone's."""
    moment = utc(at)
    window = parse_cron_window(text, VIENNA)
    assert window.is_open(moment) is is_open
    assert window.is_open(moment.astimezone(VIENNA)) is is_open
    assert window.text == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "0 22 * *", "0 22 * * *", "60 22 * * * 1h", "0 24 * * * 1h", "0 22 * * 1 1h"),
        *("0 22 * * mon-5 1h", "0 22 31 2 * 1h", "0 22 * * * 0s", "0 22 * * * 32d"),
        *("0 22 * * someday 1h", "0 22 * * * 8", "0 0 22 * * * 8h", "a b c d e 1h"),
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    """Weekdays in numbers as well: half of the world begins to count at another day."""
    with pytest.raises(ValueError, match="must be"):
        parse_cron_window(text, UTC)


def test_a_leap_day_comes() -> None:
    """Though not soon."""
    found = parse_cron("0 0 29 2 *").first_after(utc("03-01 00:00"))
    assert found == datetime(2028, 2, 29, tzinfo=UTC)


def test_a_rhythm_is_a_duration_or_a_cron_expression() -> None:
    """The latter in UTC; what lies between two moments can be counted."""
    assert parse_rhythm("10m") == timedelta(minutes=10)
    cron = parse_rhythm("0 3 * * *")
    assert isinstance(cron, Cron)
    between = [*cron.between(utc("01-01 03:00"), utc("01-04 03:00"))]
    assert between == [utc("01-02 03:00"), utc("01-03 03:00")]
    for text in ("", "0s", "daily", "0 3 * *"):
        with pytest.raises(ValueError, match="must be"):
            parse_rhythm(text)
