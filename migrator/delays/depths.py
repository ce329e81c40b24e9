"""The delay levels as a ladder: what waits on each step, as far as anybody can tell.

``None`` is never a synonym of zero: it says that nobody could look.
Source: reference ``native-delays.md`` sections 2, 3 and 5.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from migrator.delays.routing import DelaysVersion, level_name
from migrator.errors import TargetError
from migrator.nservicebus.timeouts import BITS
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import QueueFacts, QueueState
from migrator.rabbitmq.server import find_queues

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi


FREEZING: Final = 32
"""Messages: the prefetch of the broker's own dead-letter worker; that many stop a level."""
_NO_API: Final = "only the management API tells; set broker.management_url"
_YOUNG: Final = "some levels are so new that the broker has no counts yet"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


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
class Totals:
    """Sums over all levels; None: not known for each of them."""

    ready: int | None
    unacknowledged: int | None
    held: int | None
    consumers: int | None


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
    def totals(self) -> Totals:
        """Return what is on all steps together."""
        there = [step for step in self.steps if step.exists]
        return Totals(
            ready=_sum(step.ready for step in there),
            unacknowledged=_sum(step.unacknowledged for step in there),
            held=_sum(step.held for step in there),
            consumers=_sum(step.consumers for step in there),
        )


def build_level_depths(
    version: DelaysVersion, steps: Iterable[LevelDepth], *, gap: str = ""
) -> LevelDepths:
    """Return a ladder of *steps* in any order; levels that are not among them do not exist."""
    by_level = {step.level: step for step in steps}
    levels = range(BITS - 1, -1, -1)
    whole = tuple(by_level.get(level, LevelDepth(level=level, exists=False)) for level in levels)
    return LevelDepths(version=version, steps=whole, gap=gap)


def span_text(seconds: int) -> str:
    """Return a span as its two largest units: ``8s``, ``17m 4s``, ``1553d 10h``."""
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0s"


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def read_level_depths(
    settings: ConnectionSettings, management: ManagementApi | None, version: DelaysVersion
) -> LevelDepths:
    """Return every level with what is known of it; without the API that is only what is ready.

    The API's counts lag by some seconds.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    names = {level_name(version, level): level for level in range(BITS)}
    if management is None:
        return build_level_depths(version, _plain(settings, names), gap=_NO_API)
    try:
        told = level_queues(management, version)
    except TargetError as exc:
        return build_level_depths(version, _plain(settings, names), gap=str(exc))
    steps = {names[queue.name]: _told(names[queue.name], queue) for queue in told if queue.is_told}
    young = {queue.name: names[queue.name] for queue in told if not queue.is_told}
    if young:
        steps |= {step.level: step for step in _plain(settings, young)}
    return build_level_depths(version, steps.values(), gap=_YOUNG if young else "")


def level_queues(management: ManagementApi, version: DelaysVersion) -> Sequence[QueueState]:
    """Return the level queues that exist, as the management API tells them.

    Raises:
        TargetError: It does not answer, or refuses.
    """
    names = {level_name(version, level) for level in range(BITS)}
    pattern = "^" + re.escape(level_name(version, 0)[:-2]) + "[0-9]{2}$"
    return [queue for queue in management.queues(pattern) if queue.name in names]


def _told(level: int, queue: QueueState) -> LevelDepth:
    return LevelDepth(
        level=level,
        ready=queue.ready,
        unacknowledged=queue.unacked,
        held=queue.held_back,
        consumers=queue.consumers,
    )


def _plain(settings: ConnectionSettings, names: dict[str, int]) -> Iterable[LevelDepth]:
    found = find_queues(settings, names)
    return [_counted(level, found[name]) for name, level in names.items()]


def _counted(level: int, queue: QueueFacts | None) -> LevelDepth:
    if queue is None:
        return LevelDepth(level=level, exists=False)
    return LevelDepth(level=level, ready=queue.ready, consumers=queue.consumers)
