"""Does every message that waits in the delays find its way out?

A message for a destination that is not bound any more is lost in version 1, and in version 2
it is held for ever. Source: reference ``native-delays.md`` section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from migrator.delays.destinations import DestinationBinding
from migrator.delays.routing import DelaysVersion
from migrator.errors import MigratorError, NotChecked
from migrator.ledger.hand_overs import HandedOver
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "ways-out"
JUST_DUE: Final = timedelta(hours=1)
"""What was due longer ago has most probably arrived."""


class Waiting(Protocol):
    """Who knows where timeouts were handed over to."""

    def handed_over(self, *, due_from: datetime) -> Sequence[HandedOver]:
        """Return destinations of what is due from then on; see ``ports.HandOvers``."""
        ...


def check(
    broker: BrokerFacts, hand_overs: Waiting | None, *, version: DelaysVersion, now: datetime
) -> Iterator[Finding]:
    """Refuse destinations of handed-over timeouts that nothing leads to; warn of other dead ends.

    Args:
        broker: Whom to ask.
        hand_overs: What the ledger knows; None: no store is configured.
        version: Generation of the delays.
        now: Aware, UTC; what was due more than an hour ago is not looked at.
    """
    bound = broker.bound_names(version)
    if isinstance(bound, NotChecked):
        yield _finding(Level.NOT_CHECKED, "bindings", bound.reason)
        return
    rows = _handed_over(hand_overs, now)
    if isinstance(rows, NotChecked):
        yield _finding(Level.NOT_CHECKED, "handed-over timeouts", rows.reason)
        rows = {}
    ways = broker.ways(version, sorted({*bound, *rows}))
    if isinstance(ways, NotChecked):
        yield _finding(Level.NOT_CHECKED, "bindings", ways.reason)
        return
    closed = [way for _, way in sorted(ways.items()) if not way.is_open]
    for way in closed:
        yield _closed(way, rows.get(way.destination))
    if not closed:
        yield _finding(Level.OK, "destinations", f"{len(ways)} are known, each can be reached")


def _handed_over(
    hand_overs: Waiting | None, now: datetime
) -> Mapping[QueueName, HandedOver] | NotChecked:
    if hand_overs is None:
        return NotChecked(reason="no store is configured, so there is no ledger to ask")
    try:
        found: Sequence[HandedOver] = hand_overs.handed_over(due_from=now - JUST_DUE)
    except MigratorError as exc:  # the levels are looked at all the same
        return NotChecked(reason=str(exc))
    return {each.destination: each for each in found}


def _closed(way: DestinationBinding, handed_over: HandedOver | None) -> Finding:
    if handed_over is None:
        text = f"{way.problem}: delayed messages for it would not arrive"
        return _finding(Level.WARNING, way.destination, text, way.remedy)
    span = f"{handed_over.first_due:%Y-%m-%d %H:%M:%S} to {handed_over.last_due:%Y-%m-%d %H:%M:%S}"
    text = f"{way.problem}, and {handed_over.rows} timeouts handed over for it are due {span} UTC"
    return _finding(Level.REFUSED, way.destination, text, way.remedy)


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
