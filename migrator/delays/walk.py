"""The one walk over the delay levels, for all that look through them or take something out.

``LevelAccess`` is how they reach them, and know that nothing is underway to them.

Rules of this file:

* from the highest level to the lowest: a message only moves down, so one walk meets each that was
  there when it began, unless it is just between two levels;
* a level is only borrowed: what nobody acknowledged goes back, with its original expiry, when its
  scan is closed, and that is before the caller hears of the level's end;
* a level that was not seen to its end is told, never passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import DelaysVersion, level_name
from migrator.delays.scan import (
    LevelMessage,
    Levels,
    LevelScan,
    Now,
    ScanEnd,
    ScanLimits,
    keep_ours,
    utc_now,
)
from migrator.delays.topology import delivery_limit, held_levels, read_level_depths
from migrator.errors import DeliveryLimitNear, PreflightRefused, TargetError
from migrator.nservicebus.timeouts import BITS
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import open_link
from migrator.rabbitmq.frames import ChooseKeep
from migrator.rabbitmq.server import find_queues
from migrator.text import counted

if TYPE_CHECKING:
    from migrator.rabbitmq.management import ManagementApi


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
    fewer: ScanLimits | None = None
    """Limits for bodies as large as those met, where the memory for them was used up."""

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
    choose: ChooseKeep = keep_ours,
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
        choose: What is kept of a message.
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
            found = _pass(levels, level, current, meet, at_most, choose, leaves_worn=leaves_worn)
            more = again(found)
            if more is None:
                break
            current = more
        yield found


def _pass(
    levels: Levels,
    level: int,
    limits: ScanLimits,
    meet: Meet,
    at_most: int,
    choose: ChooseKeep,
    *,
    leaves_worn: bool,
) -> LevelPass:
    done, problem = 0, None
    scan = levels.scan(level, limits, choose)
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
    return LevelPass(
        level=level,
        limits=limits,
        done=done,
        end=end,
        problem=problem,
        fewer=scan.fewer if end is ScanEnd.LARGE else None,
    )


def demand_shallow(waiting: Mapping[int, int], deepest: int) -> None:
    """Return when no level holds more messages than *deepest*.

    Raises:
        PreflightRefused: Some do; says which.
    """
    deep = {level: count for level, count in waiting.items() if count > deepest}
    if deep:
        listed = ", ".join(f"level {level:02d}: {count}" for level, count in deep.items())
        raise PreflightRefused(
            f"too many messages would have to be held ({listed}); --max-depth allows more"
        )


# ── how the levels are reached ────────────────────────────────────────────────────────────────────

_SETTLE_S: Final = 2.0
"""How long dead-lettering is given when nobody tells whether it is done."""


@dataclass(frozen=True, kw_only=True)
class LevelAccess:
    """The delay levels of one broker; nothing is opened yet."""

    connection: ConnectionSettings
    """Where the levels are."""
    management: ManagementApi | None
    """Its management API; None: there is none."""
    purpose: str
    """What connections are called by, as the broker lists them."""
    staging_queues: Callable[[], Sequence[str]]
    """Names of our queues from which messages come into the levels."""
    now: Now = utc_now
    """What ``seen_at`` of messages is read from."""
    patience_s: float = 60.0
    """After so many seconds what does not come to rest is refused."""

    @contextmanager
    def open(self, version: DelaysVersion) -> Iterator[Levels]:
        """Connect anew to the levels of *version*.

        Raises:
            TargetUnavailable, AccessRefused: As connections do.
        """
        limit = delivery_limit(self.connection, self.management, version)
        with open_link(self.connection, consume=self.purpose) as link:
            yield Levels(link.consuming, version, limit=limit, now=self.now)

    def depths(self) -> Sequence[LevelDepths]:
        """Return what waits in each level of each generation, by the broker's counts."""
        return [read_level_depths(self.connection, self.management, each) for each in DelaysVersion]

    def ready(self, version: DelaysVersion) -> Mapping[int, int]:
        """Return how many messages wait in each level that exists, as the queues tell it now.

        The lowest level first: a message moves down only, so one that does meanwhile may be
        missed, and none is counted twice. What is held back or consumed is not among them.
        """
        names = {level_name(version, level): level for level in range(BITS)}
        found = find_queues(self.connection, names)
        return {names[name]: facts.ready for name, facts in found.items() if facts is not None}

    def still_staged(self) -> int | None:
        """Return how many messages are on their way out of our staging queues; None: unknown.

        A receipt proves a commit, not that each message has reached its level already. What
        was staged and never committed stays where it is until its lane has an owner again; it is
        what the broker counts as ready at once, while the management API's count lags.
        """
        management = self.management
        if management is None:
            return None
        names = self.staging_queues()
        told = [management.queue(name) for name in names]
        counted = find_queues(self.connection, names)
        return sum(
            state.held_back + abs(state.total - (facts.ready if facts else 0))
            for state, facts in zip(told, counted.values(), strict=True)
            if state is not None
        )

    def wait_until_routed(self) -> None:
        """Return once the staging queues are empty: a receipt may be ahead of its messages.

        Raises:
            PreflightRefused: Messages stay in them.
        """
        until_s = time.monotonic() + self.patience_s
        while (staged := self.still_staged()) != 0:
            if staged is None:
                time.sleep(_SETTLE_S)
                return
            if time.monotonic() > until_s:
                raise PreflightRefused(
                    f"{counted(staged, 'message is', 'messages are')} still in migrator's staging "
                    "queues; `migrator delays show` says why"
                )
            time.sleep(_SETTLE_S / 4)

    def wait_until_passed_on(self, version: DelaysVersion) -> None:
        """Return once no message hangs between two levels, where nobody sees it; or nobody tells.

        Raises:
            PreflightRefused: Some do all the time; nothing was changed.
        """
        until_s = time.monotonic() + self.patience_s
        while hanging := self._hanging(version):
            if time.monotonic() > until_s:
                listed = ", ".join(f"level {n:02d}: {hanging[n]}" for n in sorted(hanging))
                raise PreflightRefused(
                    "messages are stuck on their way out of a level, where they cannot be seen "
                    f"({listed}); after a broker node failed they continue within 6 minutes, "
                    "otherwise `migrator delays show` says why; nothing was changed: run this "
                    "again"
                )
            time.sleep(min(_SETTLE_S, self.patience_s))

    def _hanging(self, version: DelaysVersion) -> Mapping[int, int]:
        """Return how many messages hang in each level, as far as anybody tells."""
        if self.management is None:
            return {}
        try:
            return held_levels(self.management, version) or {}
        except TargetError:
            return {}

    def existing(self, queues: Collection[str]) -> Sequence[str]:
        """Return those of *queues* that exist."""
        found = find_queues(self.connection, queues)
        return [name for name in queues if found[name] is not None]
