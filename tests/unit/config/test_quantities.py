"""Tests of ``migrator.config.quantities``."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.config.quantities import build_duration, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
        ("1m", timedelta(minutes=1)),
        ("90s", timedelta(seconds=90)),
        ("2h", timedelta(hours=2)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(weeks=2)),
        ("1h30m", timedelta(minutes=90)),
        (" 1h 30m ", timedelta(minutes=90)),
        ("1.5s", timedelta(milliseconds=1500)),
    ],
)
def test_durations_are_numbers_with_units(text: str, expected: timedelta) -> None:
    """Units may follow one another, and blanks do not matter."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "1y", "-1s", "1 month", "1m!", "1,5s", "PT1M", "1M", "\u0663s", "1e3s", "s1"],
)
def test_anything_else_is_no_duration(text: str) -> None:
    """A bare number's unit would be a guess."""
    with pytest.raises(ValueError, match="duration such as"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["999999999999w", "36501d", "36500d1ms"])
def test_a_duration_has_a_largest_value(text: str) -> None:
    """So that now plus or minus any of them is a time."""
    assert parse_duration("36500d") == timedelta(days=36_500)
    with pytest.raises(ValueError, match="at most 36500d"):
        parse_duration(text)


@given(us=st.integers(0, 10**15))
def test_a_duration_is_parsed_back(us: int) -> None:
    """What is shown can be written into the settings again."""
    span = timedelta(microseconds=us)
    assert abs(parse_duration(build_duration(span)) - span) <= timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(0), "0s"),
        (timedelta(days=30), "30d"),
        (timedelta(hours=25), "25h"),
        (timedelta(seconds=90), "90s"),
        (timedelta(milliseconds=250), "250ms"),
    ],
)
def test_durations_are_shown_in_the_largest_unit(span: timedelta, expected: str) -> None:
    """Whole numbers only."""
    assert build_duration(span) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1000", 1000), ("512KiB", 524_288), ("32 MiB", 33_554_432), ("1GiB", 2**30)],
)
def test_sizes_are_bytes_or_have_a_unit(text: str, expected: int) -> None:
    """Units are powers of 1024 and say so."""
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "1.5MiB", "32MB", "-1", "1 0", "x", "1e6"])
def test_anything_else_is_no_size(text: str) -> None:
    """Powers of 1000 are not guessed at."""
    with pytest.raises(ValueError, match="number of bytes"):
        parse_size(text)
