"""The checks that are about the native delays alone; ``migrator delays verify`` makes them.

They need no store, and may look for a while, so they are not part of preflight; those that are
in both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.preflight.checks import (
    bound_names,
    broker_alarms,
    broker_reachable,
    broker_version,
    delay_entities,
    frozen_levels,
    policies,
    ways_out,
)
from migrator.preflight.checks.registry import guarded
from migrator.preflight.findings import Finding
from migrator.preflight.ports import BrokerFacts, HandOvers


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysContext:
    """Everything that checks of the delays may ask."""

    broker: BrokerFacts
    version: DelaysVersion
    accepts_suffix_collisions: bool
    hand_overs: HandOvers | None
    """None: no store is configured."""
    wall_clock: Callable[[], datetime]
    """Aware, UTC."""
    watch: frozen_levels.Watch


Check = Callable[[DelaysContext], Iterable[Finding]]

DELAY_CHECKS: Final[Mapping[str, Check]] = {
    bound_names.NAME: lambda c: bound_names.check(
        c.broker, version=c.version, is_accepted=c.accepts_suffix_collisions
    ),
    broker_alarms.NAME: lambda c: broker_alarms.check(c.broker),
    broker_reachable.NAME: lambda c: broker_reachable.check(c.broker),
    broker_version.NAME: lambda c: broker_version.check(c.broker, version=c.version, mode=None),
    delay_entities.NAME: lambda c: delay_entities.check(c.broker, version=c.version),
    frozen_levels.NAME: lambda c: frozen_levels.check(
        c.broker, c.hand_overs, version=c.version, watch=c.watch, now=c.wall_clock()
    ),
    policies.NAME: lambda c: policies.check(c.broker, version=c.version, own_queues=()),
    ways_out.NAME: lambda c: ways_out.check(
        c.broker, c.hand_overs, version=c.version, now=c.wall_clock()
    ),
}
"""Every check of the delays, by its public name, in the order in which they run."""


def check_delays(context: DelaysContext) -> Sequence[Finding]:
    """Return what all checks of the delays found, in the order of their names.

    Whatever a check cannot ask becomes a finding; only bugs raise.
    """
    found: list[Finding] = []
    for name, check in DELAY_CHECKS.items():
        found += guarded(name, partial(check, context))
    return found
