"""What is known, as plain values for JSON: the same documents on the command line and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import level_name
from migrator.ledger.pause_reasons import Hold
from migrator.ledger.report import AuditEvent, EndpointProgress, Progress
from migrator.ledger.states import RowState
from migrator.web.control_values import Answer, Liveness, Readiness
from migrator.web.job_values import JobView
from migrator.web.snapshot import EndpointView, Snapshot

Document = dict[str, object]


def json_bytes(name: str, document: Mapping[str, object]) -> bytes:
    """Return *document* as ``migrator/<name>/1`` in JSON."""
    whole = {"schema": f"migrator/{name}/1", **document}
    return json.dumps(whole, ensure_ascii=False, default=plain).encode()


def plain(value: object) -> object:
    """Return *value* as something JSON has: times as ISO 8601, durations in seconds."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return dict(value) if isinstance(value, Mapping) else str(value)


def snapshot_document(snapshot: Snapshot) -> Document:
    """Return one look at the daemon."""
    return {
        "taken_at": snapshot.taken_at,
        "age_s": snapshot.age_s,
        "version": snapshot.version,
        "owner": snapshot.owner,
        "knobs": dict(snapshot.knobs),
        "holds": [hold_document(hold) for hold in snapshot.holds],
        "working_on": [_endpoint(view) for view in snapshot.endpoints],
        "ledger": progress_document(snapshot.progress),
        "levels": None if snapshot.ladder is None else ladder_document(snapshot.ladder),
        "due": [{"due": span, "rows": rows} for span, rows in snapshot.due],
        "events": [_event(event) for event in snapshot.events],
        "jobs": [_job(view) for view in snapshot.jobs],
        "not_known": list(snapshot.gaps),
    }


def hold_document(hold: Hold) -> Document:
    """Return one reason why nothing is claimed."""
    return {
        "signal": str(hold.signal),
        "endpoint": hold.endpoint,
        "observed": hold.observed,
        "limit": hold.limit,
        "since": hold.since,
        "text": hold.text,
    }


def live_document(live: Liveness) -> Document:
    """Return whether the loops go on."""
    return {"is_alive": live.is_alive, "silent_s": dict(live.silent_s)}


def ready_document(ready: Readiness) -> Document:
    """Return whether the daemon works, and why not."""
    return {"is_ready": ready.is_ready, "reasons": list(ready.reasons)}


def answer_document(answer: Answer) -> Document:
    """Return what came of a command."""
    return {"is_done": answer.is_done, "text": answer.text}


def progress_document(progress: Progress) -> Document:
    """Return what the ledger has."""
    return {
        "taken_at": progress.taken_at,
        "endpoints": endpoint_documents(progress.endpoints),
        "quarantine": [
            {"endpoint": q.endpoint, "reason": q.reason, "rows": q.rows}
            for q in progress.quarantine
        ],
        "doubtful": [
            {
                "batch": d.batch,
                "endpoint": d.endpoint,
                "lane": d.lane,
                "mode": d.mode,
                "attempt": d.attempt,
                "size": d.size,
                "since": d.since,
            }
            for d in progress.doubtful
        ],
        "held": [
            {
                "endpoint": held.endpoint,
                "source": held.source,
                "destination": held.destination,
                "reason": held.reason,
                "detail": held.detail,
                "tries": held.tries,
                "since": held.since,
                "next_try_at": held.next_try_at,
            }
            for held in progress.held
        ],
        "oldest_open_age_s": progress.oldest_open_age,
        "lanes": [
            {
                "lane": lane.lane,
                "serves": lane.serves,
                "owner": lane.owner,
                "doing": lane.doing,
                "is_alive": lane.is_alive,
                "until": lane.until,
                "renewed_at": lane.renewed_at,
                "open_batches": lane.open_batches,
            }
            for lane in progress.lanes
        ],
    }


def endpoint_documents(endpoints: Sequence[EndpointProgress]) -> list[Document]:
    """Return the counts of each endpoint in the ledger."""
    return [
        {
            "endpoint": endpoint.endpoint,
            "claimed_total": sum(endpoint.rows.values()),
            "in_flight": endpoint.in_flight,
            "handed_over": endpoint.handed_over,
            "dispatched": endpoint.dispatched,
            "quarantined": endpoint.quarantined,
            "doubtful": endpoint.doubtful,
            "released": endpoint.count(RowState.RELEASED),
            "rows": dict(sorted(endpoint.rows.items())),
        }
        for endpoint in endpoints
    ]


def ladder_document(ladder: LevelDepths) -> Document:
    """Return the delay levels, highest first; null: not known, or no such queue."""
    sums = ladder.totals
    return {
        "delays": str(ladder.version),
        "not_known": ladder.gap or None,
        "levels": [
            {
                "level": step.level,
                "queue": level_name(ladder.version, step.level),
                "exists": step.exists,
                "wait_s": step.wait_s,
                "longest_delay_s": step.longest_delay_s,
                "ready": step.ready,
                "unacknowledged": step.unacknowledged,
                "held": step.held,
                "consumers": step.consumers,
            }
            for step in ladder.steps
        ],
        "total": {
            "ready": sums.ready,
            "unacknowledged": sums.unacknowledged,
            "held": sums.held,
            "consumers": sums.consumers,
        },
    }


def _endpoint(view: EndpointView) -> Document:
    return {
        "endpoint": view.name,
        "mode": view.mode,
        "in_store": view.in_store,
        "rate_per_s": view.rate_per_s,
        "eta_s": view.eta_s,
        "holds": [hold_document(hold) for hold in view.holds],
    }


def _job(view: JobView) -> Document:
    last = view.last
    return {
        "job": view.name,
        "when": view.when,
        "runs": view.runs,
        "missed": view.missed,
        "last": None
        if last is None
        else {
            "at": last.at,
            "outcome": last.outcome,
            "is_fine": last.is_fine,
            "text": last.text,
            "detail": dict(last.detail),
        },
    }


def _event(event: AuditEvent) -> Document:
    return {
        "id": event.id,
        "at": event.at,
        "kind": event.kind,
        "batch": event.batch,
        "endpoint": event.endpoint,
        "actor": event.actor,
        "detail": dict(event.detail),
    }
