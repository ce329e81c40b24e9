"""Do messages stay held in a level, so that it stands still?

Version 2 keeps expired messages that find no queue, and tries again every three minutes; from
32 on nothing else passes that level. One look cannot tell them from messages that are just
being passed on, so this check looks for a while.
Source: reference ``native-delays.md`` section 5.3 (measured).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from migrator.delays.depths import FREEZING
from migrator.delays.routing import DelaysVersion, delivery_exchange, level_name
from migrator.errors import MigratorError, NotChecked
from migrator.ledger.hand_overs import HandedOver
from migrator.preflight.checks.ways_out import JUST_DUE
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts, HandOvers

NAME: Final = "frozen-levels"
_NAMED: Final = 3
"""Destinations in one remedy."""

Held = Mapping[int, int]
"""Messages that are held, by level; no zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How long levels are looked at, and how one waits."""

    span_s: float
    every_s: float = 2.0
    wait: Callable[[float], None]


def check(
    broker: BrokerFacts,
    hand_overs: HandOvers | None,
    *,
    version: DelaysVersion,
    watch: Watch,
    now: datetime,
) -> Iterator[Finding]:
    """Refuse levels in which messages stay held; name the destinations that are to blame.

    Nobody waits when nothing is held at first.

    Args:
        broker: Whom to ask.
        hand_overs: What the ledger knows; None: no store is configured.
        version: Generation of the delays.
        watch: How long.
        now: Aware, UTC.
    """
    samples = _samples(broker, version, watch)
    if isinstance(samples, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="levels", text=samples.reason)
        return
    stayed = {
        level: min(counts)
        for level in sorted(samples[0])
        if min(counts := [sample.get(level, 0) for sample in samples])
    }
    if not stayed:
        yield Finding(
            check=NAME, level=Level.OK, subject="levels", text="nothing stays held in them"
        )
        return
    remedy = _remedy(broker, hand_overs, version, now)
    for level, count in stayed.items():
        is_certain = count >= FREEZING or all(s[level] >= samples[0][level] for s in samples)
        yield Finding(
            check=NAME,
            level=Level.REFUSED if is_certain else Level.WARNING,
            subject=level_name(version, level),
            text=_text(count, watch.span_s),
            remedy=remedy,
        )


def _samples(
    broker: BrokerFacts, version: DelaysVersion, watch: Watch
) -> Sequence[Held] | NotChecked:
    first = broker.stuck(version)
    if isinstance(first, NotChecked) or not first:
        return first if isinstance(first, NotChecked) else [{}]
    samples: list[Held] = [first]
    looks = max(1, math.ceil(watch.span_s / watch.every_s))
    for _ in range(looks):
        watch.wait(watch.span_s / looks)
        next_one = broker.stuck(version)
        if isinstance(next_one, NotChecked):
            return next_one
        samples.append(next_one)
    return samples


def _text(count: int, span_s: float) -> str:
    text = f"at least {count} expired messages stayed held for {span_s:g} s: they find no queue"
    if count >= FREEZING:
        return f"{text}; the level stands still for every endpoint"
    return f"{text}; from {FREEZING} on the level stands still for every endpoint"


def _remedy(
    broker: BrokerFacts, hand_overs: HandOvers | None, version: DelaysVersion, now: datetime
) -> str:
    """Return what mends the destinations to blame, or how to find them."""
    rows = _just_due(hand_overs, now)
    ways = broker.ways(version, [each.destination for each in rows])
    if not isinstance(ways, NotChecked):
        blamed = [each for each in rows if not ways[each.destination].is_open]
        fixes = [
            f"{each.rows} timeouts for {each.destination} were due in the past hour, "
            f"and {ways[each.destination].problem}: {ways[each.destination].remedy}"
            for each in sorted(blamed, key=lambda each: (-each.rows, each.destination))[:_NAMED]
        ]
        if fixes:
            return "; ".join(fixes)
    return (
        "find the queue that was deleted or never bound; create it, then bind exchange "
        f"{delivery_exchange(version)} to it with key #.<its name>"
    )


def _just_due(hand_overs: HandOvers | None, now: datetime) -> Sequence[HandedOver]:
    if hand_overs is None:
        return ()
    try:
        return hand_overs.handed_over(due_from=now - JUST_DUE, due_until=now)
    except MigratorError:  # ways-out says that it could not be asked
        return ()
