"""``migrator status``: how far is it, who works on what, what needs a person?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Final

import typer

from migrator.cli.opening import opened
from migrator.cli.output import console, plain, write_json, write_table, write_text
from migrator.cli.session import Json, session_of
from migrator.config.quantities import parse_duration
from migrator.domain.report import EndpointProgress, LaneStatus, Progress
from migrator.domain.states import BatchState, RowState
from migrator.errors import ConfigError

EPILOG = """\b
Examples:
  migrator status
  migrator status --watch --interval 5s
  migrator status --json"""

pause: Callable[[float], None] = time.sleep
"""Waits between two looks; tests replace it."""
_CLEAR: Final = "\x1b[2J\x1b[H"

Interval = Annotated[
    str, typer.Option(metavar="DURATION", help="Pause between two looks of --watch.")
]


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Look again until Ctrl-C.")] = False,
    interval: Interval = "2s",
    as_json: Json = False,
) -> None:
    """Show progress, quarantine, doubtful batches and lanes, as the ledger has them.

    With --watch --json, each look is one line.
    """
    session = session_of(context, as_json=as_json)
    pause_s = _seconds(interval)
    with opened(session.load()) as app:
        app.ledger_facts.verify()
        while True:
            show(app.books.progress(), as_json=session.wants_json, is_repeated=watch)
            if not watch:
                return
            pause(pause_s)


def show(progress: Progress, *, as_json: bool, is_repeated: bool = False) -> None:
    """Write *progress* to stdout."""
    if not as_json:
        if is_repeated and console().is_terminal:
            write_text(_CLEAR)
        _write_tables(progress)
    elif is_repeated:
        document = {"schema": "migrator/status/1", **status_document(progress)}
        write_text(json.dumps(document, ensure_ascii=False, default=plain))
    else:
        write_json("status", status_document(progress))


def status_document(progress: Progress) -> dict[str, object]:
    """Return *progress* as plain values for JSON."""
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


def endpoint_documents(endpoints: Sequence[EndpointProgress]) -> list[dict[str, object]]:
    """Return the counts of each endpoint as plain values for JSON."""
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


def write_endpoints(endpoints: Sequence[EndpointProgress]) -> None:
    """Write the counts of each endpoint as a table."""
    columns = ("endpoint", "claimed", "in flight", "handed over", "dispatched")
    write_table(
        (*columns, "quarantined", "doubtful"),
        (
            (
                e.endpoint,
                sum(e.rows.values()),
                e.in_flight,
                e.handed_over,
                e.dispatched,
                e.quarantined,
                e.doubtful,
            )
            for e in endpoints
        ),
    )


def _write_tables(progress: Progress) -> None:
    write_endpoints(progress.endpoints)
    if progress.quarantine:
        reasons = [(q.endpoint, q.reason, q.rows) for q in progress.quarantine]
        write_table(("in quarantine", "reason", "rows"), reasons)
    if progress.doubtful:
        batches = [(str(d.batch), d.endpoint, d.size, d.since) for d in progress.doubtful]
        write_table(("doubtful batch", "endpoint", "rows", "since"), batches)
    if progress.held:
        held = [
            (h.destination, h.endpoint, h.reason, h.tries, h.since, h.next_try_at)
            for h in progress.held
        ]
        columns = ("held destination", "endpoint", "reason", "tries", "since", "next try")
        write_table(columns, held)
    if progress.lanes:
        lanes = [
            (lane_name(lane), lane.is_alive, lane.doing, lane.owner, lane.open_batches)
            for lane in progress.lanes
        ]
        write_table(("lane", "alive", "doing", "owner", "open batches"), lanes)
    for line in _remarks(progress):
        write_text(line)


def lane_name(lane: LaneStatus) -> str:
    """Return what people call *lane*: its number, or whose dispatcher has it."""
    return f"lane {lane.lane}" if lane.serves is None else f"dispatcher {lane.serves}"


def _remarks(progress: Progress) -> Iterator[str]:
    if not progress.endpoints:
        yield "the ledger is empty: nothing was claimed yet"
    age = progress.oldest_open_age
    if age is not None and age > timedelta(minutes=1):
        yield f"the oldest open batch was claimed {age // timedelta(seconds=1)} s ago"
    claimed = sum(e.count(BatchState.CLAIMED) for e in progress.endpoints)
    if claimed and not any(lane.is_alive for lane in progress.lanes):
        yield f"{claimed} claimed rows wait, but nobody works: start `migrator run`"


def _seconds(interval: str) -> float:
    try:
        seconds = parse_duration(interval).total_seconds()
    except ValueError as exc:
        raise ConfigError(f"--interval {interval!r} {exc}") from exc
    return max(seconds, 0.1)
