"""``migrator status``: how far is it, who works on what, what needs a person?"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

import typer

from migrator.cli.control import Socket, client_of
from migrator.cli.lazy import new_group
from migrator.cli.output import console, json_text, write_table, write_text
from migrator.cli.session import Json, duration, session_of
from migrator.delays.depths import span_text
from migrator.delays.routing import PROBED
from migrator.ledger.report import AuditEvent, EndpointProgress, LaneStatus, Progress
from migrator.ledger.states import BatchState
from migrator.recall.restore import Recalls
from migrator.recall.rules import MARGIN, RecallForecast, RecallScope
from migrator.reports.documents import plain
from migrator.web.status import progress_document

verbs = new_group()

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


@verbs.command()
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

    Examples:
      migrator status
      migrator status --watch --interval 5s
      migrator status --daemon
      migrator status --json
    """
    session = session_of(context)
    pause_s = max(duration("--interval", interval).total_seconds(), 0.1)
    if daemon or socket is not None:
        client = client_of(session, socket)
        for _ in _looks(pause_s, is_repeated=watch):
            found = client.status()
            if session.wants_json:
                _write_json(found, is_repeated=watch)
            else:
                _clear(is_repeated=watch)
                _show_daemon(found)
        return
    with session.opened(with_ledger=True) as app:
        way_back = _WayBack(app.side.recalls)
        for _ in _looks(pause_s, is_repeated=watch):
            progress = app.books.progress()
            rollback, probe = way_back.at(progress), None
            if app.settings.probe.every is not None:
                probe = app.books.latest_event(PROBED)
            if session.wants_json:
                more = {
                    "rollback": rollback and rollback.document,
                    "probe": probe and {**probe.detail, "at": probe.at},
                }
                document = {"schema": "migrator/status/1", **progress_document(progress), **more}
                _write_json(document, is_repeated=watch)
            else:
                _clear(is_repeated=watch)
                show(progress, rollback, probe)


def _looks(pause_s: float, *, is_repeated: bool) -> Iterator[None]:
    """Yield once, or again and again with a pause."""
    yield
    while is_repeated:
        pause(pause_s)
        yield


def _write_json(document: Mapping[str, object], *, is_repeated: bool) -> None:
    """Write a document, in one line if more follow."""
    if is_repeated:
        write_text(json.dumps(document, ensure_ascii=False, default=plain))
    else:
        write_text(json_text(document))


def _clear(*, is_repeated: bool) -> None:
    if is_repeated and console().is_terminal:
        write_text(_CLEAR)


class _WayBack:
    """How much of what was handed over could be rolled back, asked no oftener than needed."""

    def __init__(self, recalls: Recalls) -> None:
        self._recalls = recalls
        self._asked_s = -math.inf
        self._found: RecallForecast | None = None

    def at(self, progress: Progress) -> RecallForecast | None:
        """Return it as of *progress*, or of a few seconds before; None: nothing was handed over."""
        if not any(endpoint.handed_over for endpoint in progress.endpoints):
            return None
        if time.monotonic() - self._asked_s >= _WAY_BACK_EVERY_S:
            now, until = progress.taken_at, progress.taken_at + MARGIN
            self._found = self._recalls.forecast(
                RecallScope(), now=now, not_before=until, exact_rows=_EXACT_ROWS
            )
            self._asked_s = time.monotonic()
        return self._found


def show(
    progress: Progress, rollback: RecallForecast | None = None, probe: AuditEvent | None = None
) -> None:
    """Write *progress*, what a rollback could bring back, and the latest probes, for people."""
    _write_tables(progress)
    for line in (*_way_back(rollback), *_probed(probe)):
        write_text(line)


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


def _probed(probe: AuditEvent | None) -> Iterator[str]:
    if probe is not None:
        text = probe.detail.get("text") or probe.detail.get("outcome")
        yield f"probe, {probe.at:%Y-%m-%d %H:%M:%S} UTC: {text}"


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
    settings = ", ".join(f"{setting} {value}" for setting, value in found["settings"].items())
    write_text(f"set now: {settings}")
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
