"""One look at a running daemon: as values, and as documents for the command line and HTTP.

Of values that are in a document as they are (those of ``ledger.report`` and others) the names of
the fields are public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import level_name
from migrator.ledger.report import AuditEvent, EndpointProgress, Progress
from migrator.ledger.states import RowState
from migrator.nservicebus.timeouts import EndpointName
from migrator.status.remaining import Phase, Remaining, finished_text, percentage
from migrator.throttle.reasons import PauseReason

Document = dict[str, object]


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
    """``migrate``, ``dispatch`` or ``forward``; None: somebody else works on it."""
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
        """Seconds until all is moved at the present rate; None: nobody can tell."""
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


def snapshot_document(snapshot: Snapshot) -> Document:
    """Return one look at the daemon."""
    progress = {each.endpoint: each for each in snapshot.progress.endpoints}
    return {
        "taken_at": snapshot.taken_at,
        "age_s": snapshot.age_s,
        "version": snapshot.version,
        "owner": snapshot.owner,
        "title": snapshot.title,
        "system": snapshot.system,
        "uptime_s": snapshot.uptime_s,
        "throughput": snapshot.throughput,
        "settings": snapshot.settings,
        "holds": _holds(snapshot.holds),
        "working_on": [
            view_document(view, progress.get(view.endpoint)) for view in snapshot.endpoints
        ],
        "ledger": progress_document(snapshot.progress),
        "levels": None if snapshot.levels is None else levels_document(snapshot.levels),
        "due": [{"due": span, "rows": rows} for span, rows in snapshot.due],
        "events": snapshot.events,
        "jobs": snapshot.jobs,
        "not_known": snapshot.gaps,
    }


def view_document(view: EndpointView, progress: EndpointProgress | None) -> Document:
    """Return how far an endpoint is; null: not known, or its rows are not moved."""
    found = view.remaining
    is_finished = view.phase is Phase.FINISHED and found is not None
    return {
        "endpoint": view.endpoint,
        "mode": view.mode,
        "state": view.phase,
        "in_store": view.in_store,
        **{key: getattr(found, key, None) for key in ("to_move", "left", "overdue", "later")},
        "sent_by": found and found.sent_by,
        "cutoff_s": found and found.cutoff,
        "percent": percentage(progress, found) if view.phase else None,
        "rate_per_s": view.rate_per_s,
        "eta_s": view.eta_s,
        "text": finished_text(progress, found) if is_finished and found else None,
        "holds": _holds(view.holds),
    }


def fields_of(value: Any) -> Document:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _holds(holds: Sequence[PauseReason]) -> list[Document]:
    return [{**fields_of(hold), "text": hold.text} for hold in holds]


def status_document(
    progress: Progress, views: Sequence[EndpointView], holds: Sequence[PauseReason]
) -> Document:
    """Return what the ledger has and how far endpoints are, those that it does not know as well."""
    counts = {each.endpoint: each for each in progress.endpoints}
    seen = {view.endpoint: view for view in views}
    return {
        **progress_document(progress),
        "endpoints": [
            {
                **_counts(counts.get(name) or EndpointProgress(endpoint=name, rows={})),
                **view_document(seen.get(name) or _unseen(name), counts.get(name)),
                "held_destinations": sum(each.endpoint == name for each in progress.held),
            }
            for name in sorted({*counts, *seen})
        ],
        "holds": _holds(holds),
    }


def _unseen(name: EndpointName) -> EndpointView:
    return EndpointView(
        endpoint=name, mode=None, phase=None, remaining=None, rate_per_s=None, holds=()
    )


def progress_document(progress: Progress) -> Document:
    """Return what the ledger has."""
    return {
        "taken_at": progress.taken_at,
        "endpoints": endpoint_documents(progress.endpoints),
        "quarantine": progress.quarantine,
        "doubtful": progress.doubtful,
        "held": progress.held,
        "oldest_open_age_s": progress.oldest_open_age,
        "lanes": progress.lanes,
    }


def endpoint_documents(endpoints: Sequence[EndpointProgress]) -> list[Document]:
    """Return the counts of each endpoint in the ledger."""
    return [_counts(endpoint) for endpoint in endpoints]


def _counts(endpoint: EndpointProgress) -> Document:
    return {
        "endpoint": endpoint.endpoint,
        "claimed_total": sum(endpoint.rows.values()),
        "in_flight": endpoint.in_flight,
        "parked": endpoint.parked,
        "handed_over": endpoint.handed_over,
        "dispatched": endpoint.dispatched,
        "quarantined": endpoint.quarantined,
        "doubtful": endpoint.doubtful,
        "released": endpoint.count(RowState.RELEASED),
        "rows": dict(sorted(endpoint.rows.items())),
    }


def levels_document(depths: LevelDepths) -> Document:
    """Return the delay levels, highest first; null: not known, or no such queue."""
    return {
        "delays": str(depths.version),
        "not_known": depths.gap or None,
        "levels": [
            {
                **fields_of(step),
                "queue": level_name(depths.version, step.level),
                "wait_s": step.wait_s,
                "longest_delay_s": step.longest_delay_s,
            }
            for step in depths.steps
        ],
        "total": depths.totals,
    }
