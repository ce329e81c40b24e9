"""What a daemon does at intervals, as values: how often it was done and missed, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What came of a job the last time."""

    at: datetime
    """Aware, UTC, by this machine's clock."""
    outcome: str
    """In a word; public: docs/control.md has them all."""
    is_fine: bool
    """Nobody has to look."""
    text: str
    """The same in a line."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """As the ledger's event has it; plain values, no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job of this process."""

    name: str
    when: str
    """A duration between two of them, or a cron expression: ``10s``, ``0 3 * * *``."""
    runs: int
    """How often it was begun."""
    missed: int
    """How often it was not, or too late, when it should have been."""
    last: JobReport | None = None
    """None: not done yet, or nothing to tell."""
