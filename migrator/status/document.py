"""The status as documents: ``migrator/status/1`` and ``migrator/daemon/1``.

A ``TypedDict`` is the one source of each: of what is written, of the schema that ``dev/docs``
publishes, and of what the command line reads. It is no model of pydantic, so that the command line
can show what a daemon answers, also one of another version, without importing any library.
The names of all fields are public; a time is ISO 8601 in UTC, and null is what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NotRequired, TypeVar, cast

from pydantic import Field
from typing_extensions import TypedDict

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import level_name
from migrator.documents import Count
from migrator.ledger.report import EndpointProgress, Progress
from migrator.nservicebus.timeouts import EndpointName
from migrator.recall.rules import RecallForecast
from migrator.status.remaining import Phase, Remaining, SentBy, finished_text, percentage
from migrator.status.snapshot import EndpointView, JobView, Snapshot
from migrator.throttle.reasons import PauseReason

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Mode = Literal["migrate", "dispatch", "forward"]
_T = TypeVar("_T")


class Hold(TypedDict):
    """Why nothing is claimed; endpoint null: of any endpoint."""

    signal: str
    endpoint: str | None
    observed: str
    limit: str
    since: Moment
    text: str


class QuarantineCounts(TypedDict):
    """Rows of an endpoint in quarantine, for one reason."""

    endpoint: str
    reason: str
    rows: Count


class DoubtfulBatches(TypedDict):
    """A batch that an operator has to decide about."""

    batch: int
    endpoint: str
    lane: Count
    mode: Literal["staged", "direct", "dispatch"]
    attempt: Count
    size: Count
    since: Moment


class ParkedDestination(TypedDict):
    """A destination that takes no messages; its rows are parked."""

    endpoint: str
    source: str
    destination: str
    reason: str
    detail: str
    tries: Count
    since: Moment
    next_try_at: Moment
    rows: Count
    """Parked in the ledger."""


class LaneState(TypedDict):
    """Which process works on a lane, and at what."""

    lane: Count
    owner: str | None
    doing: str | None
    until: Moment
    renewed_at: Moment
    is_alive: bool
    open_batches: Count
    serves: str | None
    """The table whose dispatcher has this lane; null: a lane of hand-over."""


class _RowCounts(TypedDict):
    claimed_total: Count
    in_flight: Count
    parked: Count
    handed_over: Count
    dispatched: Count
    quarantined: Count
    doubtful: Count
    released: Count
    rows: dict[str, Count]
    """Rows by effective state: the row's own, else its batch's."""


class EndpointRows(_RowCounts):
    """Rows of an endpoint in the ledger."""

    endpoint: str


class _RemainingRows(TypedDict):
    in_store: Count | None
    to_move: Count | None
    left: Count | None
    """Due before the cutoff; not moved."""
    overdue: Count | None
    """Of those left, due already."""
    later: Count | None
    sent_by: SentBy | None
    """Who sends what is left."""
    cutoff_s: float | None


class EndpointWork(_RemainingRows):
    """How far an endpoint is; null: not known, or its rows are not moved."""

    endpoint: str
    mode: Mode | None
    state: Phase | None
    percent: float | None
    rate_per_s: float | None
    eta_s: float | None
    text: str | None
    holds: list[Hold]


class EndpointStatus(EndpointWork, _RowCounts):
    """An endpoint by ledger and store."""

    held_destinations: Count


class NotCounted(TypedDict):
    """A table that could not be read now, and why."""

    endpoint: str
    text: str


class RollbackOutlook(TypedDict):
    """How much of what was handed over could be rolled back."""

    in_levels: Count
    too_near: Count
    left: Count
    possible_until: Moment | None
    is_exact: bool


class ProbedLevel(TypedDict):
    """One probe through a level."""

    level: Count
    delay_s: Count
    late_s: float | None
    arrival: Literal["on_time", "early", "lost"]


class LatestProbe(TypedDict):
    """The latest probe of the levels."""

    at: Moment
    outcome: Literal["measured", "late", "failed"]
    text: str
    delays: NotRequired[Literal["v1", "v2"]]
    late_levels: NotRequired[list[Count]]
    probes: NotRequired[list[ProbedLevel]]
    error: NotRequired[str]


class _Ledger(TypedDict):
    taken_at: Moment
    quarantine: list[QuarantineCounts]
    doubtful: list[DoubtfulBatches]
    held: list[ParkedDestination]
    oldest_open_age_s: float | None
    lanes: list[LaneState]


class LedgerProgress(_Ledger):
    """What the ledger has."""

    endpoints: list[EndpointRows]


class StatusDocument(_Ledger):
    """`migrator status --json`, with `--watch` each line; `GET /ledger`."""

    schema: Literal["migrator/status/1"]
    told_by: Literal["daemon", "ledger"]
    content_kept: NotRequired[str | None]
    """What the ledger keeps for good; null: nothing, or nothing is finished."""
    endpoints: list[EndpointStatus]
    holds: list[Hold]
    not_counted: list[NotCounted]
    """Endpoints whose tables could not be read now, and why."""
    rollback: RollbackOutlook | None
    probe: LatestProbe | None


class LevelCounts(TypedDict):
    """Messages in levels; null: not known, or no such queue."""

    ready: Count | None
    unacknowledged: Count | None
    held: Count | None
    consumers: Count | None


class LevelState(LevelCounts):
    """One delay level."""

    level: Count
    exists: bool
    queue: str
    wait_s: Count
    longest_delay_s: Count


class LevelStates(TypedDict):
    """The delay levels, highest first."""

    delays: Literal["v1", "v2"]
    not_known: str | None
    levels: list[LevelState]
    total: LevelCounts


class DueCount(TypedDict):
    """Rows in the tables, by how soon they are due."""

    due: str
    rows: Count


class AuditEntry(TypedDict):
    """One entry of the audit trail."""

    id: int
    at: Moment
    kind: str
    batch: int | None
    endpoint: str | None
    actor: str
    detail: dict[str, Any]


class JobOutcome(TypedDict):
    """What came of a job the last time."""

    at: Moment
    outcome: str
    is_fine: bool
    text: str
    detail: dict[str, Any]


class JobState(TypedDict):
    """What the daemon does at intervals."""

    job: str
    when: str
    runs: Count
    missed: Count
    last: JobOutcome | None


class System(TypedDict, total=False):
    """Which system it is."""

    database: str
    broker: str
    ledger: str


class DaemonDocument(TypedDict):
    """`migrator status --daemon --json`; `GET /status`."""

    schema: Literal["migrator/daemon/1"]
    taken_at: Moment
    age_s: float
    version: str
    owner: str
    title: str
    system: System
    uptime_s: float
    throughput: list[float | None]
    """Rows per second of each of the last minutes, oldest first; null: not known."""
    settings: dict[str, str]
    holds: list[Hold]
    working_on: list[EndpointWork]
    ledger: LedgerProgress
    levels: LevelStates | None
    due: list[DueCount]
    events: list[AuditEntry]
    jobs: list[JobState]
    not_known: list[str]


class EndedEndpoint(EndpointRows):
    """What a run has moved of an endpoint, and what is left; null: not known."""

    is_finished: bool | None
    """Nothing is left to move; false also if its rows are not moved."""
    left: Count | None
    """Due before the cutoff; not moved."""
    overdue: Count | None
    """Of those left, due already."""
    later: Count | None
    locked: Count | None
    """Left because other transactions have them locked."""
    sent_by: SentBy | None
    """Who sends what is left."""
    text: str | None
    """What was moved and what is left, in sentences."""


class ParkedRows(TypedDict):
    """Rows that are parked for one destination."""

    endpoint: str
    destination: str
    reason: str
    detail: str
    rows: Count


class LeftEndpoint(TypedDict):
    """An endpoint that was left: a check refuses it, or its table fails."""

    signal: Literal["endpoint_refused", "table_failing"]
    endpoint: str
    observed: str
    limit: str
    """What to do."""


class RunDocument(TypedDict):
    """`migrator run --once --json`."""

    schema: Literal["migrator/run/1"]
    exit_code: Count
    outcome: Literal[
        "done",
        "bug",
        "usage",
        "preflight_refused",
        "unreachable",
        "quarantined",
        "doubtful",
        "partial",
        "interrupted",
    ]
    endpoints: list[EndedEndpoint]
    held: list[ParkedRows]
    left_out: list[LeftEndpoint]
    """Endpoints that were left: a check refuses them, or their table fails."""
    content_kept: NotRequired[str | None]
    """What the ledger keeps for good; null: nothing, or nothing is finished."""


DOCUMENTS: Final = (StatusDocument, DaemonDocument, RunDocument)


# ── made of values ──────────────────────────────────────────────────────────────────────────────


def daemon_document(snapshot: Snapshot) -> DaemonDocument:
    """Return one look at the daemon."""
    progress = {each.endpoint: each for each in snapshot.progress.endpoints}
    return {
        "schema": "migrator/daemon/1",
        "taken_at": _moment(snapshot.taken_at),
        "age_s": snapshot.age_s,
        "version": snapshot.version,
        "owner": snapshot.owner,
        "title": snapshot.title,
        "system": cast("System", dict(snapshot.system)),
        "uptime_s": snapshot.uptime_s,
        "throughput": [*snapshot.throughput],
        "settings": dict(snapshot.settings),
        "holds": _holds(snapshot.holds),
        "working_on": [_work(view, progress.get(view.endpoint)) for view in snapshot.endpoints],
        "ledger": progress_document(snapshot.progress),
        "levels": None if snapshot.levels is None else levels_document(snapshot.levels),
        "due": [{"due": span, "rows": rows} for span, rows in snapshot.due],
        "events": _parts(AuditEntry, snapshot.events),
        "jobs": [_job(each) for each in snapshot.jobs],
        "not_known": [*snapshot.gaps],
    }


def status_document(
    progress: Progress,
    views: Sequence[EndpointView],
    holds: Sequence[PauseReason] = (),
    *,
    told_by: Literal["daemon", "ledger"],
    content_kept: str | None = None,
    not_counted: Mapping[EndpointName, str] | None = None,
    rollback: RecallForecast | None = None,
    probe: Mapping[str, object] | None = None,
) -> StatusDocument:
    """Return what the ledger has and how far endpoints are, those that it does not know as well.

    Args:
        progress: What the ledger has.
        views: How far each endpoint is.
        holds: Why nothing is claimed.
        told_by: Whether a daemon knows it, or only the ledger.
        content_kept: What the ledger keeps for good.
        not_counted: Why tables could not be read.
        rollback: How much could be rolled back.
        probe: The latest one, as its event has it.
    """
    counts = {each.endpoint: each for each in progress.endpoints}
    seen = {view.endpoint: view for view in views}
    return {
        "schema": "migrator/status/1",
        "told_by": told_by,
        **_ledger(progress),
        "endpoints": [
            {
                **_row_counts(counts.get(name) or EndpointProgress(endpoint=name, rows={})),
                **_work(seen.get(name) or _unseen(name), counts.get(name)),
                "held_destinations": sum(each.endpoint == name for each in progress.held),
            }
            for name in sorted({*counts, *seen})
        ],
        "holds": _holds(holds),
        "content_kept": content_kept,
        "not_counted": [
            {"endpoint": name, "text": text} for name, text in sorted((not_counted or {}).items())
        ],
        "rollback": None if rollback is None else _part(RollbackOutlook, rollback),
        "probe": None if probe is None else cast("LatestProbe", _json(probe)),
    }


def progress_document(progress: Progress) -> LedgerProgress:
    """Return what the ledger has."""
    return {**_ledger(progress), "endpoints": endpoint_documents(progress.endpoints)}


def endpoint_documents(endpoints: Sequence[EndpointProgress]) -> list[EndpointRows]:
    """Return the counts of each endpoint in the ledger."""
    return [{"endpoint": each.endpoint, **_row_counts(each)} for each in endpoints]


def levels_document(depths: LevelDepths) -> LevelStates:
    """Return the delay levels, highest first."""
    return {
        "delays": cast("Literal['v1', 'v2']", str(depths.version)),
        "not_known": depths.gap or None,
        "levels": [
            {
                **_part(LevelCounts, step),
                "level": step.level,
                "exists": step.exists,
                "queue": level_name(depths.version, step.level),
                "wait_s": step.wait_s,
                "longest_delay_s": step.longest_delay_s,
            }
            for step in depths.steps
        ],
        "total": cast("LevelCounts", dict(depths.totals)),
    }


def _ledger(progress: Progress) -> _Ledger:
    age = progress.oldest_open_age
    return {
        "taken_at": _moment(progress.taken_at),
        "quarantine": _parts(QuarantineCounts, progress.quarantine),
        "doubtful": _parts(DoubtfulBatches, progress.doubtful),
        "held": _parts(ParkedDestination, progress.held),
        "oldest_open_age_s": None if age is None else age.total_seconds(),
        "lanes": _parts(LaneState, progress.lanes),
    }


def _row_counts(progress: EndpointProgress) -> _RowCounts:
    return {**_part(_RowCounts, progress), "rows": dict(sorted(progress.rows.items()))}


def _work(view: EndpointView, progress: EndpointProgress | None) -> EndpointWork:
    found = view.remaining
    is_finished = view.phase is Phase.FINISHED and found is not None
    return {
        "endpoint": view.endpoint,
        "mode": cast("Mode | None", view.mode),
        "state": view.phase,
        **_remaining(found),
        "percent": percentage(progress, found) if view.phase else None,
        "rate_per_s": view.rate_per_s,
        "eta_s": view.eta_s,
        "text": finished_text(progress, found) if is_finished and found else None,
        "holds": _holds(view.holds),
    }


def _remaining(found: Remaining | None) -> _RemainingRows:
    if found is None:
        return cast("_RemainingRows", dict.fromkeys(_RemainingRows.__annotations__))
    return {
        "in_store": found.in_store,
        "to_move": found.to_move,
        "left": found.left,
        "overdue": found.overdue,
        "later": found.later,
        "sent_by": found.sent_by,
        "cutoff_s": found.cutoff.total_seconds(),
    }


def _unseen(name: EndpointName) -> EndpointView:
    return EndpointView(
        endpoint=name, mode=None, phase=None, remaining=None, rate_per_s=None, holds=()
    )


def _holds(holds: Sequence[PauseReason]) -> list[Hold]:
    return _parts(Hold, holds)


def _job(job: JobView) -> JobState:
    return {
        "job": job.job,
        "when": job.when,
        "runs": job.runs,
        "missed": job.missed,
        "last": None if job.last is None else _part(JobOutcome, job.last),
    }


def _parts(kind: type[_T], values: Sequence[object]) -> list[_T]:
    return [_part(kind, value) for value in values]


def _part(kind: type[_T], value: object) -> _T:
    """Return what *value* has under the names of *kind*."""
    return cast("_T", {name: _json(getattr(value, name)) for name in kind.__annotations__})


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): _json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(each) for each in value]
    return value


def _moment(at: datetime) -> str:
    return at.isoformat()
