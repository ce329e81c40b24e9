"""The one walk over the delay levels, for all that look through them or take something out.

Rules of this file:

* from the highest level to the lowest: a message only moves down, so one walk meets each that was
  there when it began, unless it is just between two levels;
* a level is only borrowed: what nobody acknowledged goes back, with its original expiry, when its
  scan is closed, and that is before the caller hears of the level's end;
* a level that was not seen to its end is told, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.errors import DeliveryLimitNear, PreflightRefused

CHUNK: Final = 500
"""Messages handed over at a time."""

Meet = Callable[[int, LevelScan, Sequence[LevelMessage]], int]
"""Gets the level, its scan and some messages; may acknowledge; returns how many are done with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkTerms:
    """How near, how long and how deep a walk may go that changes something."""

    margin: timedelta
    """What is due within this, when it is found, is left to the broker."""
    hold: timedelta
    """How long messages of others are held at a time; they are late by it at most."""
    deepest: int
    """A level with more messages than this is refused, and with it the walk."""

    @property
    def limits(self) -> ScanLimits:
        """The same for one scan."""
        return ScanLimits(hold_s=self.hold.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkProgress:
    """How far a walk is."""

    level: int
    seen: int
    """Messages looked at so far, in all levels."""
    restored: int = 0
    """Rows that are back in their store so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPass:
    """One pass through one level."""

    level: int
    limits: ScanLimits
    done: int
    """What ``Meet`` returned, added up."""
    end: ScanEnd
    problem: DeliveryLimitNear | None = None
    """Why it was left at once, where ``leaves_worn`` allows that."""

    @property
    def is_whole(self) -> bool:
        """Whether all was seen, and nobody else consumes the level."""
        return self.end is ScanEnd.EMPTY and self.problem is None


def walk(
    levels: Levels,
    which: Iterable[int],
    limits: ScanLimits,
    meet: Meet,
    *,
    again: Callable[[LevelPass], ScanLimits | None] = lambda _found: None,
    at_most: int = CHUNK,
    leaves_worn: bool = False,
) -> Iterator[LevelPass]:
    """Show the messages of *which* levels to *meet*; yield each level's last pass, highest first.

    Args:
        levels: The queues of one generation.
        which: Levels, in any order; they have to exist.
        limits: Of the first pass through each level.
        meet: Called with the messages while they are held.
        again: Asked after each pass for the limits of one more; None: on to the next level.
        at_most: Messages that *meet* gets at a time.
        leaves_worn: Yield a level where ``DeliveryLimitNear`` is met, with the problem, and go on.

    Raises:
        DeliveryLimitNear: A message must not be held once more; all goes back.
        TargetError, and what *meet* raises: All that is held goes back.
    """
    for level in sorted(which, reverse=True):
        current = limits
        while True:
            found = _pass(levels, level, current, meet, at_most, leaves_worn=leaves_worn)
            more = again(found)
            if more is None:
                break
            current = more
        yield found


def _pass(
    levels: Levels, level: int, limits: ScanLimits, meet: Meet, at_most: int, *, leaves_worn: bool
) -> LevelPass:
    done, problem = 0, None
    scan = levels.scan(level, limits)
    try:
        while messages := scan.receive(at_most=at_most):
            done += meet(level, scan, messages)
    except DeliveryLimitNear as exc:
        if not leaves_worn:
            raise
        problem = exc
    finally:
        scan.close()
    end = scan.end or ScanEnd.HELD_LONG_ENOUGH
    return LevelPass(level=level, limits=limits, done=done, end=end, problem=problem)


def demand_shallow(waiting: Mapping[int, int], deepest: int) -> None:
    """Return when no level holds more messages than *deepest*.

    Raises:
        PreflightRefused: Some do; says which.
    """
    deep = {level: count for level, count in waiting.items() if count > deepest}
    if deep:
        listed = ", ".join(f"level {level:02d}: {count}" for level, count in deep.items())
        raise PreflightRefused(
            f"too many messages would have to be held ({listed}); --deepest allows more"
        )
