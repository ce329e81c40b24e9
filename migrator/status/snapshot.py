"""One look at a running daemon, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from migrator.delays.depths import LevelDepths
from migrator.ledger.report import AuditEvent, Progress
from migrator.nservicebus.timeouts import EndpointName
from migrator.status.remaining import Phase, Remaining
from migrator.throttle.reasons import PauseReason


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """What came of a job the last time."""

    at: datetime
    """Aware, UTC, by this machine's clock."""
    outcome: str
    """In a word; public: docs/control.md has them all."""
    is_fine: bool
    """It needs no attention."""
    text: str
    """The same in a line."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """As the ledger's event has it; plain values, no secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job of this process."""

    job: str
    when: str
    """The duration between two of them: ``10s``."""
    runs: int
    """How often it was begun."""
    missed: int
    """How often it was not, or too late, when it should have been."""
    last: JobReport | None = None
    """None: not done yet, or nothing to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """One endpoint this daemon works on."""

    endpoint: EndpointName
    mode: str | None
    """``migrate``, ``dispatch`` or ``forward``; None: another process works on it."""
    phase: Phase | None
    """None: its rows are not moved here."""
    remaining: Remaining | None
    """What is in its table; None: not counted yet."""
    rate_per_s: float | None
    """Rows handed over or dispatched per second, over the last minute; None: too soon to tell."""
    holds: Sequence[PauseReason]
    """Why nothing of it is claimed, those for all endpoints included; empty: nothing does."""

    @property
    def in_store(self) -> int | None:
        """Rows in its table; None: not counted yet."""
        return None if self.remaining is None else self.remaining.in_store

    @property
    def eta_s(self) -> float | None:
        """Seconds until all is moved at the present rate; None: not known."""
        if self.remaining is None or not self.rate_per_s:
            return None
        return self.remaining.to_move / self.rate_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    taken_at: datetime
    """Aware, UTC, by the database."""
    age_s: float
    """How long ago that was, by a monotonic clock."""
    version: str
    owner: str
    """This process, as leases name it."""
    progress: Progress
    endpoints: Sequence[EndpointView]
    holds: Sequence[PauseReason]
    """Every hold there is."""
    settings: Mapping[str, str]
    levels: LevelDepths | None
    """None: the broker was not asked yet, or did not answer."""
    due: Sequence[tuple[str, int]]
    """Rows in the tables by how soon they are due, soonest first: (``up to 1h``, rows)."""
    events: Sequence[AuditEvent]
    """The latest, newest first."""
    jobs: Sequence[JobView]
    """What this process does at intervals; of this moment."""
    gaps: Sequence[str]
    """What could not be read this time, and why."""
    title: str = ""
    """What people call the system; empty: nothing."""
    system: Mapping[str, str] = field(default_factory=dict)
    """Which it is: ``database``, ``broker`` with its virtual host, and ``ledger``; no secrets."""
    uptime_s: float = 0.0
    throughput: Sequence[float | None] = ()
    """Rows per second of each of the last minutes, oldest first; None: not known."""
