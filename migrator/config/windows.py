"""Times of the day and week in which rows may be moved.

Rules of this file: pure, the local time is an argument; a window belongs to the day on which it
begins, so ``Fri 22:00-06:00`` ends on Saturday. Source: docs/throttling.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY: Final = "|".join(DAYS)
_FORM: Final = re.compile(
    rf"(?:(?P<first>{_DAY})(?:-(?P<last>{_DAY}))?\s+)?"
    r"(?P<start>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2})"
)
_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From one time of day to another, on some days."""

    text: str
    days: frozenset[int]
    """0: Monday; those on which it begins."""
    start: int
    """Minute of the day; included."""
    end: int
    """Minute of the day; not included; below *start*: of the next day."""

    def is_open(self, local: datetime) -> bool:
        """Return whether *local*, a time of the wanted zone, lies in it."""
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
    found = _FORM.fullmatch(text.strip())
    start, end = (_minute(found[key]) if found else -1 for key in ("start", "end"))
    if not found or not 0 <= start < _MINUTES or not 0 <= end <= _MINUTES or start == end:
        raise ValueError("must be times such as 22:00-06:00, or Sat-Sun 00:00-24:00")
    return Window(
        text=text.strip(), days=_days(found["first"], found["last"]), start=start, end=end
    )


class Opening(Protocol):
    """Times in which rows may be moved, however they are written."""

    @property
    def text(self) -> str:
        """As an operator wrote it."""
        ...

    def is_open(self, local: datetime, /) -> bool:
        """Return whether *local*, aware and of the wanted zone, lies in it."""
        ...


def is_open(windows: Collection[Opening], local: datetime) -> bool:
    """Return whether rows may be moved at *local*; without windows always."""
    return not windows or any(window.is_open(local) for window in windows)


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    start, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((start + more) % 7 for more in range((end - start) % 7 + 1))


def _minute(text: str) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    return hours * 60 + minutes if minutes < 60 else -1
