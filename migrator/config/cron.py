"""Cron expressions, as people write them in settings: ``0 3 * * *``, ``30 22 * * mon-fri``.

Rules of this file: APScheduler decides when; weekdays are names, because it counts them from
Monday and everybody else from Sunday. A time that daylight saving leaves out comes as much later,
and one that comes twice comes twice. Source: docs/throttling.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

from migrator.config.quantities import build_duration, parse_duration

_FIELDS: Final = 5
_TICK: Final = timedelta(microseconds=1)
_LONGEST: Final = timedelta(days=31)
"""A window."""
_LEFT_OUT: Final = timedelta(hours=2)
"""The trigger only tells of a time that does not exist when asked from before the clocks went."""
_LONGEST_GAP: Final = timedelta(days=9 * 365)
"""Between two leap days there are eight years, once in a century."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Times at which something happens, to the minute."""

    text: str
    trigger: Any = field(repr=False, compare=False)
    """Of APScheduler."""

    def first_after(self, at: datetime) -> datetime | None:
        """Return the first of its times after *at*, which is aware, in UTC; None: there is none."""
        found = self.trigger.get_next_fire_time(None, at.astimezone(UTC) + _TICK)
        return None if found is None else found.astimezone(UTC)

    def between(self, after: datetime, before: datetime) -> Iterator[datetime]:
        """Yield its times between two, neither included."""
        at = self.first_after(after)
        while at is not None and at < before:
            yield at
            at = self.first_after(at)


@dataclass(frozen=True, slots=True)
class CronWindow:
    """Opens at the times of a cron expression, and closes so much later."""

    cron: Cron
    lasts: timedelta
    """Time that passes, whatever clocks on the wall do meanwhile."""

    @property
    def text(self) -> str:
        """As it was written."""
        return f"{self.cron.text} {build_duration(self.lasts)}"

    def is_open(self, at: datetime) -> bool:
        """Return whether *at*, which is aware, lies in it; the end does not."""
        now = at.astimezone(UTC)  # on a wall clock, an hour ago is not always an hour ago
        begin = now - self.lasts
        return any(begin < opened for opened in self.cron.between(begin - _LEFT_OUT, now + _TICK))


def parse_cron(text: str, zone: tzinfo = UTC) -> Cron:
    """Return the times that *text* names in *zone*: minute, hour, day, month, weekday.

    Raises:
        ValueError: It is none, or has no time at all.
    """
    from apscheduler.triggers.cron import CronTrigger

    words = text.split()
    if len(words) != _FIELDS or re.search(r"[0-9]", words[-1]):
        raise ValueError(_not_cron())
    try:
        trigger = CronTrigger.from_crontab(" ".join(words), timezone=zone)
        bounded = CronTrigger.from_crontab(" ".join(words), timezone=zone)
    except (ValueError, LookupError) as exc:
        raise ValueError(_not_cron()) from exc
    now = datetime.now(UTC)
    bounded.end_date = now + _LONGEST_GAP
    if bounded.get_next_fire_time(None, now) is None:
        raise ValueError(f"{text!r} never comes; {_not_cron()}")
    return Cron(" ".join(words), trigger)


def parse_cron_window(text: str, zone: tzinfo = UTC) -> CronWindow:
    """Return the window that *text* names: a cron expression, then how long it is open.

    Raises:
        ValueError: It is none.
    """
    expression, _, span = text.strip().rpartition(" ")
    cron, lasts = parse_cron(expression, zone), parse_duration(span)
    if not timedelta(0) < lasts <= _LONGEST:
        raise ValueError(f"must be open for some time, and at most {build_duration(_LONGEST)}")
    return CronWindow(cron, lasts)


def parse_rhythm(text: str) -> timedelta | Cron:
    """Return how often something happens: a duration between two, or a cron expression in UTC.

    Raises:
        ValueError: It is neither.
    """
    if len(text.split()) == _FIELDS:
        return parse_cron(text)
    try:
        span = parse_duration(text)
    except ValueError as exc:
        raise ValueError(f"{exc}, or {_not_cron().removeprefix('must be ')}") from exc
    if span <= timedelta(0):
        raise ValueError("must be longer than 0s")
    return span


def _not_cron() -> str:
    return (
        "must be minute, hour, day, month and weekday with spaces between, weekdays by name, such "
        "as 30 22 * * mon-fri"
    )
