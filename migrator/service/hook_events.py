"""What programs of the operator's are told: events, and the document about one of them.

Rules of this file: pure; what is public here (events, keys) is listed in docs/hooks.md. Whether
anybody listens, and for how long, is ``daemon.hooks``' business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from migrator.ledger.report import EndpointProgress, Progress

SCHEMA: Final = "migrator/hook/1"


class HookEvent(StrEnum):
    """When a program is run. Public: codes are stable."""

    START = "start"
    """The work has begun: every check has passed."""
    THROTTLE = "throttle"
    """A reason to claim nothing came, or went."""
    QUARANTINE = "quarantine"
    """Rows went into quarantine since the last time."""
    DRAINED = "drained"
    """Everything that can be moved now has been."""
    ROLLBACK = "rollback"
    """``migrator rollback`` or ``recall`` put rows back."""
    FAILURE = "failure"
    """The process ends, and not well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event, as it is told."""

    event: HookEvent
    text: str
    """The event in one line, for people."""
    at: datetime
    """Aware, UTC."""
    facts: Mapping[str, object]
    """The event for programs; JSON can hold them."""


def document(happening: Happening, *, owner: str, version: str) -> str:
    """Return what a program reads about *happening*: one line of JSON.

    Args:
        happening: What is told.
        owner: The process that tells, as in the ledger's leases.
        version: Of migrator.
    """
    told = {
        "schema": SCHEMA,
        "event": str(happening.event),
        "at": happening.at.isoformat(),
        "text": happening.text,
        "owner": owner,
        "version": version,
        "facts": happening.facts,
    }
    return json.dumps(told, default=str) + "\n"


def set_aside(before: Progress, after: Progress) -> Mapping[str, int]:
    """Return endpoint → how many more rows of it are in quarantine *after* than *before*."""
    known = {each.endpoint: each.quarantined for each in before.endpoints}
    return {
        each.endpoint: more
        for each in after.endpoints
        if (more := each.quarantined - known.get(each.endpoint, 0)) > 0
    }


def counts(endpoints: Sequence[EndpointProgress]) -> Sequence[Mapping[str, object]]:
    """Return how many rows of each of *endpoints* are where, as facts."""
    return [
        {
            "endpoint": each.endpoint,
            "handed_over": each.handed_over,
            "dispatched": each.dispatched,
            "in_flight": each.in_flight,
            "quarantined": each.quarantined,
            "doubtful": each.doubtful,
        }
        for each in endpoints
    ]
