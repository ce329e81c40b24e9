"""What waits in the delay levels, as far as anybody can tell; pure.

``None`` is never a synonym of zero: it says that nobody could look.
Source: reference ``native-delays.md`` sections 2, 3 and 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from migrator.delays.routing import DelaysVersion, level_name
from migrator.nservicebus.timeouts import BITS

FREEZING: Final = 32
"""Messages: the prefetch of the broker's own dead-letter worker; that many stop a level."""
_COUNTS: Final = ("ready", "unacknowledged", "held", "consumers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDepth:
    """One level queue."""

    level: int
    exists: bool = True
    ready: int | None = None
    """Messages whose time in this level is not over."""
    unacknowledged: int | None = None
    """Messages that somebody consumes; nobody should."""
    held: int | None = None
    """Expired messages that wait for a place to be dead-lettered to (``messages_dlx``)."""
    consumers: int | None = None

    @property
    def wait_s(self) -> int:
        """Seconds that each message waits in this level."""
        return int(2**self.level)

    @property
    def longest_delay_s(self) -> int:
        """The longest delay, in seconds, whose message enters at this level."""
        return int(2 ** (self.level + 1)) - 1

    @property
    def known(self) -> int:
        """Messages that are known to be in this level."""
        return sum(count or 0 for count in (self.ready, self.unacknowledged, self.held))

    @property
    def may_freeze(self) -> bool:
        """Whether enough is held to stop the level for every endpoint, if it stays held."""
        return (self.held or 0) >= FREEZING


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelDepths:
    """All levels of one generation, highest first."""

    version: DelaysVersion
    steps: tuple[LevelDepth, ...]
    gap: str = ""
    """Why something is not known; empty when everything is."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of level queues that do not exist."""
        return tuple(level_name(self.version, s.level) for s in self.steps if not s.exists)

    @property
    def is_absent(self) -> bool:
        """Whether there is no level queue at all."""
        return not any(step.exists for step in self.steps)

    @property
    def totals(self) -> Mapping[str, int | None]:
        """Return each count, summed over all levels; None: not known for each of them."""
        there = [step for step in self.steps if step.exists]
        counts = {name: [getattr(step, name) for step in there] for name in _COUNTS}
        return {name: None if None in found else sum(found) for name, found in counts.items()}


def build_level_depths(
    version: DelaysVersion, steps: Iterable[LevelDepth], *, gap: str = ""
) -> LevelDepths:
    """Return the depths of *steps* in any order; levels that are not among them do not exist."""
    by_level = {step.level: step for step in steps}
    levels = range(BITS - 1, -1, -1)
    whole = tuple(by_level.get(level, LevelDepth(level=level, exists=False)) for level in levels)
    return LevelDepths(version=version, steps=whole, gap=gap)
