"""Tests of ``migrator.config.windows``."""

from __future__ import annotations

from datetime import datetime

import pytest

from migrator.config.windows import is_open, parse_window

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


def test_without_windows_it_is_always_open() -> None:
    """With several, one is enough."""
    night = datetime.fromisoformat(f"{MONDAY} 23:00")
    assert is_open([], night)
    assert is_open([parse_window("08:00-09:00"), parse_window("22:00-06:00")], night)
    assert not is_open([parse_window("08:00-09:00")], night)


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
