"""Tests of ``migrator.config.values``."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.config.values import parse_size
from migrator.text import build_duration, parse_duration
from migrator.throttle.windows import parse_window


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("250ms", timedelta(milliseconds=250), "250ms"),
        ("0s", timedelta(0), "0s"),
        ("90s", timedelta(seconds=90), "90s"),
        ("120m", timedelta(hours=2), "2h"),
        ("2w", timedelta(weeks=2), "14d"),
        (" 1h 30m ", timedelta(minutes=90), "90m"),
        ("1.5s", timedelta(milliseconds=1500), "1500ms"),
    ],
)
def test_durations_are_numbers_with_units(text: str, expected: timedelta, shown: str) -> None:
    """Units may follow one another, blanks do not matter; shown in the largest that divides it."""
    assert parse_duration(text) == expected
    assert build_duration(expected) == shown


@pytest.mark.parametrize("text", ["", "5", "m", "1y", "-1s", "1m!", "1,5s", "PT1M", "\u0663s"])
def test_anything_else_is_no_duration(text: str) -> None:
    """A bare number's unit would be a guess."""
    with pytest.raises(ValueError, match="duration such as"):
        parse_duration(text)


def test_a_duration_has_a_largest_value() -> None:
    """So that now plus or minus any of them is a time."""
    assert parse_duration("36500d") == timedelta(days=36_500)
    for text in ("999999999999w", "36500d1ms"):
        with pytest.raises(ValueError, match="at most 36500d"):
            parse_duration(text)


@given(us=st.integers(0, 10**15))
def test_a_duration_is_parsed_back(us: int) -> None:
    """What is shown can be written into the settings again."""
    span = timedelta(microseconds=us)
    assert abs(parse_duration(build_duration(span)) - span) <= timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1000", 1000), ("512KiB", 524_288), ("32 MiB", 33_554_432), ("1GiB", 2**30)],
)
def test_sizes_are_bytes_or_have_a_unit(text: str, expected: int) -> None:
    """Units are powers of 1024 and say so."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "1.5MiB", "32MB", "-1", "1e6"])
def test_anything_else_is_no_size(text: str) -> None:
    """Powers of 1000 are not guessed at."""
    with pytest.raises(ValueError, match="number of bytes"):
        parse_size(text)


MONDAY = "2026-03-02"
SATURDAY = "2026-03-07"
SUNDAY = "2026-03-08"


@pytest.mark.parametrize(
    ("window", "local", "expected"),
    [
        ("22:00-06:00", f"{MONDAY} 21:59", False),
        ("22:00-06:00", f"{MONDAY} 22:00", True),
        ("22:00-06:00", f"{MONDAY} 05:59", True),
        ("22:00-06:00", f"{MONDAY} 06:00", False),
        ("08:30-17:00", f"{MONDAY} 08:30", True),
        ("08:30-17:00", f"{MONDAY} 17:00", False),
        ("00:00-24:00", f"{MONDAY} 23:59", True),
        ("Sat-Sun 00:00-24:00", f"{SUNDAY} 12:00", True),
        ("Sat-Sun 00:00-24:00", f"{MONDAY} 12:00", False),
        ("Fri 22:00-06:00", f"{SATURDAY} 05:59", True),
        ("Sat 22:00-06:00", f"{SATURDAY} 05:59", False),
        ("Sun 22:00-06:00", f"{MONDAY} 01:00", True),
        ("Fri-Mon 08:00-09:00", f"{SUNDAY} 08:00", True),
        ("Tue-Thu 08:00-09:00", f"{SUNDAY} 08:00", False),
    ],
)
def test_a_window_is_open_from_its_first_to_before_its_last_minute(
    window: str, local: str, expected: bool
) -> None:
    """One that ends on the next day belongs to the day on which it begins."""
    assert parse_window(window).is_open(datetime.fromisoformat(local)) is expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "always", "22-6", "22:00", "25:00-06:00", "22:00-24:01", "24:00-06:00"),
        *("22:61-06:00", "22:00-22:00", "Mo 22:00-06:00", "Mon,Tue 22:00-06:00"),
        "22:00-06:00 Mon",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """With an example of what would do."""
    with pytest.raises(ValueError, match="22:00-06:00"):
        parse_window(text)
