"""``migrator status``: how far is it, who works on what, what needs a person?"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from migrator.app import App
from migrator.cli.control import Socket, client_of
from migrator.cli.opening import opened
from migrator.cli.output import console, json_text, write_json, write_table, write_text
from migrator.cli.session import Json, Session, duration, session_of
from migrator.delays.depths import span_text
from migrator.delays.routing import PROBED
from migrator.ledger.report import AuditEvent, EndpointProgress, LaneStatus, Progress
from migrator.ledger.states import BatchState
from migrator.recall.rules import MARGIN, RecallForecast, RecallScope
from migrator.reports.documents import plain
from migrator.web.client import DaemonClient
from migrator.web.status import progress_document

EPILOG = """\b
Examples:
  migrator status
  migrator status --watch --interval 5s
  migrator status --daemon
  migrator status --json"""

pause: Callable[[float], None] = time.sleep
"""Waits between two looks; tests replace it."""
_CLEAR: Final = "\x1b[2J\x1b[H"
_EXACT_ROWS: Final = 100_000
"""Rows of half-due batches that one look may read; that takes a tenth of a second."""
_WAY_BACK_EVERY_S: Final = 10.0
"""With --watch, how often the way back is looked at: only minutes matter there."""

Interval = Annotated[
    str, typer.Option(metavar="DURATION", help="Pause between two looks of --watch.")
]


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Look again until Ctrl-C.")] = False,
    interval: Interval = "2s",
    daemon: Annotated[
        bool,
        typer.Option("--daemon", help="Ask the running daemon, by its control socket."),
    ] = False,
    socket: Socket = None,
    as_json: Json = False,
) -> None:
    """Show progress, quarantine, doubtful batches and lanes, as the ledger has them.

    With --watch --json, each look is one line.

    With --daemon: what the daemon works on, how fast, and why it waits; no database is asked.
    """
    session = session_of(context, as_json=as_json)
    pause_s = max(duration("--interval", interval).total_seconds(), 0.1)
    if daemon or socket is not None:
        _ask_daemon(session, client_of(session, socket), pause_s if watch else None)
        return
    with opened(session.load()) as app:
        app.ledger_facts.verify()
        way_back = _WayBack(app)
        while True:
            progress = app.books.progress()
            more = Besides(rollback=way_back.at(progress), canary=_canary(app))
            show(progress, more, as_json=session.wants_json, is_repeated=watch)
            if not watch:
                return
            pause(pause_s)


def _ask_daemon(session: Session, client: DaemonClient, pause_s: float | None) -> None:
    """Show what the daemon says: once, or again and again with a pause."""
    while True:
        found = client.status()
        if not session.wants_json:
            _clear(is_repeated=pause_s is not None)
            _show_daemon(found)
        else:
            write_text(json_text(found) if pause_s is None else json.dumps(found))
        if pause_s is None:
            return
        pause(pause_s)


def _clear(*, is_repeated: bool) -> None:
    if is_repeated and console().is_terminal:
        write_text(_CLEAR)


class _WayBack:
    """How much of what was handed over could be rolled back, asked no oftener than needed."""

    def __init__(self, app: App) -> None:
        self._recalls = app.side.recalls
        self._asked_s = -math.inf
        self._found: RecallForecast | None = None

    def at(self, progress: Progress) -> RecallForecast | None:
        """Return it as of *progress*, or of a few seconds before; None: nothing was handed over."""
        if not any(endpoint.handed_over for endpoint in progress.endpoints):
            return None
        if time.monotonic() - self._asked_s >= _WAY_BACK_EVERY_S:
            now = progress.taken_at
            self._found = self._recalls.forecast(
                RecallScope(),
                now=now,
                not_before=now + MARGIN,
                exact_rows=_EXACT_ROWS,
            )
            self._asked_s = time.monotonic()
        return self._found


@dataclass(frozen=True, slots=True, kw_only=True)
class Besides:
    """What is shown beside the progress, as far as there is anything."""

    rollback: RecallForecast | None = None
    """What a rollback could bring back."""
    canary: AuditEvent | None = None
    """What came of the latest probes through the delay levels."""


def _canary(app: App) -> AuditEvent | None:
    """Return the latest look of the canary; None: it never flew, or is not wanted."""
    return app.books.latest_event(PROBED) if app.settings.canary.every is not None else None


def show(
    progress: Progress,
    besides: Besides = Besides(),
    *,
    as_json: bool,
    is_repeated: bool = False,
) -> None:
    """Write *progress*, and what there is beside it, to stdout."""
    if not as_json:
        _clear(is_repeated=is_repeated)
        _write_tables(progress)
        for line in (*_way_back(besides.rollback), *_flight(besides.canary)):
            write_text(line)
    elif is_repeated:
        document = {"schema": "migrator/status/1", **status_document(progress, besides)}
        write_text(json.dumps(document, ensure_ascii=False, default=plain))
    else:
        write_json("status", status_document(progress, besides))


def status_document(
    progress: Progress,
    besides: Besides = Besides(),
) -> dict[str, object]:
    """Return *progress* as plain values for JSON."""
    return {
        **progress_document(progress),
        "rollback": None if besides.rollback is None else besides.rollback.document,
        "canary": _flight_document(besides.canary),
    }


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


def _way_back(expected: RecallForecast | None) -> Iterator[str]:
    if expected is None:
        return
    about = "" if expected.is_exact else "about "
    yield (
        f"handed over: {about}{expected.in_levels} in the levels, {expected.too_near} due too "
        f"soon to come back, {about}{expected.left} have left"
    )
    if expected.possible_until is not None:
        until = f"{expected.possible_until:%Y-%m-%d %H:%M:%S} UTC"
        yield f"`migrator rollback` can bring back all that are in the levels until {until}"


def _flight_document(canary: AuditEvent | None) -> dict[str, object] | None:
    return None if canary is None else {**canary.detail, "at": canary.at}


def _flight(canary: AuditEvent | None) -> Iterator[str]:
    if canary is not None:
        text = canary.detail.get("text") or canary.detail.get("outcome")
        yield f"canary, {canary.at:%Y-%m-%d %H:%M:%S} UTC: {text}"


def _remarks(progress: Progress) -> Iterator[str]:
    if not progress.endpoints:
        yield "the ledger is empty: nothing was claimed yet"
    age = progress.oldest_open_age
    if age is not None and age > timedelta(minutes=1):
        yield f"the oldest open batch was claimed {age // timedelta(seconds=1)} s ago"
    claimed = sum(e.count(BatchState.CLAIMED) for e in progress.endpoints)
    if claimed and not any(lane.is_alive for lane in progress.lanes):
        yield f"{claimed} claimed rows wait, but nobody works: start `migrator run`"


# ── what a running daemon says of itself ────────────────────────────────────────────────────────


def _show_daemon(found: Mapping[str, Any]) -> None:
    """Write the document ``migrator/daemon/1`` to stdout, for people."""
    write_text(f"migrator {found['version']}, {found['owner']}")
    for hold in found["holds"]:
        whom = "everything" if hold["endpoint"] is None else hold["endpoint"]
        write_text(f"{whom} waits since {_time(hold['since'])}: {hold['text']}")
    write_table(
        ("endpoint", "mode", "in store", "rows/s", "empty in", "waits for"),
        [_endpoint_row(view) for view in found["working_on"]],
    )
    knobs = ", ".join(f"{knob} {value}" for knob, value in found["knobs"].items())
    write_text(f"set now: {knobs}")
    for line in (*_job_lines(found), *_gaps(found)):
        write_text(line)


def _job_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what came of jobs the last time, and what was missed."""
    for job in found.get("jobs", ()):
        if (last := job["last"]) is not None:
            sign = "" if last["is_fine"] else "look at this: "
            yield f"{job['job']}, {_time(last['at'])}: {sign}{last['text']}"
    missed = [f"{job['job']} {job['missed']}" for job in found.get("jobs", ()) if job["missed"]]
    if missed:
        yield f"missed since the start: {', '.join(missed)}"


def _endpoint_row(view: Mapping[str, Any]) -> Sequence[object]:
    rate, eta_s = view["rate_per_s"], view["eta_s"]
    return (
        view["endpoint"],
        view["mode"],
        view["in_store"],
        None if rate is None else f"{rate:.1f}",
        None if eta_s is None else span_text(int(eta_s)),
        ", ".join(dict.fromkeys(hold["signal"] for hold in view["holds"])),
    )


def _gaps(found: Mapping[str, Any]) -> Iterator[str]:
    for gap in found["not_known"]:
        yield f"not known: {gap}"
    yield f"as of {found['age_s']:.0f} s ago"


def _time(text: str) -> str:
    return text.replace("T", " ")[:19] + " UTC"
