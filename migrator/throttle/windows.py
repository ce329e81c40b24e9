"""Maintenance windows: from one time of day to another, on some days.

A window follows the local clock and belongs to the day on which it begins, so ``Fri 22:00-06:00``
ends on Saturday. Source: docs/throttling.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY: Final = "|".join(DAYS)
_WINDOW: Final = re.compile(
    rf"(?:(?P<first>{_DAY})(?:-(?P<last>{_DAY}))?\s+)?"
    r"(?P<start>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2})"
)
_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    text: str
    """As the operator wrote it."""
    days: frozenset[int]
    """Those on which it begins; 0: Monday."""
    start: int
    """Minute of the day; included."""
    end: int
    """Minute of the day; not included; below *start*: of the next day."""

    def is_open(self, local: datetime) -> bool:
        """*local* is a time of the configured zone."""
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        began_yesterday = (day - 1) % 7 in self.days and minute < self.end
        return began_yesterday or (day in self.days and minute >= self.start)


def parse_window(text: str) -> Window:
    """Return the window that *text* names: ``22:00-06:00``, ``Sat-Sun 00:00-24:00``.

    Raises:
        ValueError: Anything else.
    """
    found = _WINDOW.fullmatch(text.strip())
    start, end = (_minute(found[key]) if found else -1 for key in ("start", "end"))
    if not found or not 0 <= start < _MINUTES or not 0 <= end <= _MINUTES or start == end:
        raise ValueError("must be times such as 22:00-06:00, or Sat-Sun 00:00-24:00")
    days = _days(found["first"], found["last"])
    return Window(text=text.strip(), days=days, start=start, end=end)


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    start, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((start + more) % 7 for more in range((end - start) % 7 + 1))


def _minute(text: str) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    return hours * 60 + minutes if minutes < 60 else -1
