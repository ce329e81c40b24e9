"""One look at a running daemon, as values: what JSON, metrics and the status page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from migrator.delays.depths import LevelDepths
from migrator.ledger.pause_reasons import Hold
from migrator.ledger.report import AuditEvent, Progress, QuarantinedRow
from migrator.nservicebus.timeouts import EndpointName
from migrator.web.job_values import JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """One endpoint this daemon works on."""

    name: EndpointName
    mode: str
    """``migrate``, ``dispatch`` or ``forward``."""
    in_store: int | None
    """Rows in its table; None: not counted yet."""
    rate_per_s: float | None
    """Rows handed over or dispatched per second, over the last minute; None: too soon to tell."""
    eta_s: float | None
    """Until its table is empty at that rate; None: nobody can tell."""
    holds: Sequence[Hold]
    """Why nothing of it is claimed, those for all endpoints included; empty: nothing does."""


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
    holds: Sequence[Hold]
    """Every hold there is."""
    knobs: Mapping[str, str]
    ladder: LevelDepths | None
    """None: the broker was not asked yet, or did not answer."""
    due: Sequence[tuple[str, int]]
    """Rows in the tables by how soon they are due, soonest first: (``up to 1h``, rows)."""
    events: Sequence[AuditEvent]
    """The latest, newest first."""
    jobs: Sequence[JobView]
    """What this process does at intervals; of this moment."""
    gaps: Sequence[str]
    """What could not be read this time, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePage:
    """Some of the rows in quarantine, without their content."""

    rows: Sequence[QuarantinedRow] = ()
    """By their ``key``, ascending."""
    has_more: bool = False
    trouble: str = ""
    """Why they could not be read; empty: they could."""
