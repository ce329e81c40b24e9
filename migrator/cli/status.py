"""``migrator status``: how far is it, who works on what, what needs a person?

A running daemon is asked first: to ask the ledger takes far more CPU, for the libraries that it
needs. What is shown is the same document either way, and says who told it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from migrator.cli.daemon import client_of, ledger_by_daemon
from migrator.cli.lazy import new_group
from migrator.cli.options import Endpoints, Socket
from migrator.cli.output import (
    AMBER,
    RED,
    Marked,
    console,
    drawn_table,
    json_text,
    write_drawn,
    write_table,
    write_text,
)
from migrator.cli.session import Session, duration, session_of
from migrator.errors import ConfigError, ExitCode
from migrator.reports import json_text as compact_json
from migrator.text import counted, grouped, span_text

if TYPE_CHECKING:
    from migrator.app.status import StatusReader
    from migrator.status.document import (
        DaemonDocument,
        EndpointRows,
        EndpointStatus,
        EndpointWork,
        LatestProbe,
        RollbackOutlook,
        StatusDocument,
    )

_Part = TypeVar("_Part", bound=Mapping[str, object])

verbs = new_group()

pause: Callable[[float], None] = time.sleep
"""Waits between two looks; tests replace it."""
_USUAL: Final = "2s"
_USUAL_S: Final = 2.0
_WIDTH: Final = 100
"""Characters, where there is no terminal to tell."""
_RARE: Final = {"doubtful": "doubtful", "parked": "parked"}
"""Counts that are shown where any is not 0, with their columns."""
_STYLES: Final = {"quarantined": AMBER, "doubtful": RED, "parked": AMBER}
"""Of counts that are not 0."""
_SENDERS: Final = {
    "migrator": "migrator sends them",
    "timeout_manager": "the timeout manager sends them",
    "nobody": "nobody sends them",
}
_OLD_S: Final = 60.0
"""Of an open batch; there may be a reason."""

Interval = Annotated[
    str, typer.Option(metavar="DURATION", help="Time between two updates of --watch.")
]


@verbs.command()
def status(
    context: typer.Context,
    endpoint: Endpoints = None,
    watch: Annotated[bool, typer.Option("--watch", help="Update until Ctrl-C.")] = False,
    interval: Interval = _USUAL,
    daemon: Annotated[
        bool,
        typer.Option("--daemon", help="Ask the running daemon over its control socket."),
    ] = False,
    socket: Socket = None,
) -> None:
    """Show each endpoint's progress, quarantine, doubtful batches, held destinations and lanes.

    A running daemon that works with this ledger is asked first; without one, the ledger itself.
    The last line, and told_by in JSON, say which it was.

    With --watch --json, each update is one line.

    With --daemon: what the daemon works on, how fast, and why it waits; no database is asked.

    Examples:
      migrator status
      migrator status --endpoint Sales --watch --interval 5s
      migrator status --daemon
      migrator status --json

    Exit codes: 0 all is shown; 4 the ledger cannot be read; 7 a table cannot be read now, and what
      is in it is not shown.
    """
    session = session_of(context)
    pause_s = _USUAL_S  # what is given is read by what reads settings: that takes a while
    if interval != _USUAL:
        pause_s = max(duration("--interval", interval).total_seconds(), 0.1)
    if daemon or socket is not None:
        client = client_of(session, socket)
        for _ in _looks(pause_s, is_repeated=watch):
            found = _only_working_on(client.status(), endpoint or ())
            if session.wants_json:
                _write_json(found, is_repeated=watch)
            else:
                _clear(is_repeated=watch)
                _show_daemon(found)
        return
    told: StatusDocument | None = None
    with ExitStack() as ends:
        reader: StatusReader | None = None
        for _ in _looks(pause_s, is_repeated=watch):
            told = ledger_by_daemon(session)
            if told is None:
                reader = reader or _open_reader(session, ends)
                told = reader.document()
            told = _only(told, endpoint or ())
            if session.wants_json:
                _write_json(told, is_repeated=watch)
            else:
                _clear(is_repeated=watch)
                show(told)
    if told is not None and told.get("not_counted"):
        raise typer.Exit(ExitCode.PARTIAL)


def _only(found: StatusDocument, names: Sequence[str]) -> StatusDocument:
    """Return what of the document is about the endpoints *names*, or everybody; none named: all.

    Raises:
        ConfigError: Nothing is known of one of them.
    """
    _demand_known(names, found["endpoints"])
    if not names:
        return found
    return {
        **found,
        "rollback": None,
        "oldest_open_age_s": None,
        "endpoints": _of(names, found["endpoints"]),
        "quarantine": _of(names, found["quarantine"]),
        "doubtful": _of(names, found["doubtful"]),
        "held": _of(names, found["held"]),
        "holds": _of(names, found["holds"]),
        "not_counted": _of(names, found.get("not_counted", [])),
    }


def _only_working_on(found: DaemonDocument, names: Sequence[str]) -> DaemonDocument:
    """Return the same of what a daemon says of itself; raises as ``_only`` does."""
    _demand_known(names, found["working_on"])
    if not names:
        return found
    ledger = found["ledger"]
    return {
        **found,
        "working_on": _of(names, found["working_on"]),
        "holds": _of(names, found["holds"]),
        "ledger": {
            **ledger,
            "endpoints": _of(names, ledger["endpoints"]),
            "quarantine": _of(names, ledger["quarantine"]),
            "doubtful": _of(names, ledger["doubtful"]),
            "held": _of(names, ledger["held"]),
        },
    }


def _demand_known(names: Sequence[str], endpoints: Sequence[Mapping[str, object]]) -> None:
    known = [str(each["endpoint"]) for each in endpoints]
    shown = ", ".join(known) or "none"
    for name in names:
        if name not in known:
            raise ConfigError(f"status has no endpoint {name!r}; it has: {shown}")


def _of(names: Sequence[str], parts: Sequence[_Part]) -> list[_Part]:
    """Return those of *parts* that are of one of *names* or of every endpoint."""
    return [each for each in parts if each["endpoint"] in (*names, None)]


def _open_reader(session: Session, ends: ExitStack) -> StatusReader:
    from migrator.app.status import open_status

    return ends.enter_context(open_status(session.settings()))


def _looks(pause_s: float, *, is_repeated: bool) -> Iterator[None]:
    """Yield once, or again and again with a pause."""
    yield
    while is_repeated:
        pause(pause_s)
        yield


def _write_json(document: Mapping[str, object], *, is_repeated: bool) -> None:
    """Write a document, in one line if more follow."""
    if is_repeated:
        write_text(compact_json(document))
    else:
        write_text(json_text(document))


def _clear(*, is_repeated: bool) -> None:
    if is_repeated:
        console().clear()


def show(found: StatusDocument) -> None:
    """Write the document ``migrator/status/1`` to stdout, for people."""
    _write_tables(found)
    for line in (*_remarks(found), *_way_back(found["rollback"]), *_probed(found["probe"])):
        write_text(line)
    teller = "the ledger" if found["told_by"] == "ledger" else "the daemon, from the ledger"
    write_text(f"reported by {teller}, {_time(found['taken_at'])}")


def write_endpoints(endpoints: Sequence[EndpointRows]) -> None:
    """Write the counts of each endpoint as a table; they are as in ``migrator/status/1``."""
    columns = ("endpoint", "claimed", "in flight", "parked", "handed over", "dispatched")
    keys = ("endpoint", "claimed_total", "in_flight", "parked", "handed_over", "dispatched")
    write_table(
        (*columns, "quarantined", "doubtful"),
        ([_count(each, key) for key in (*keys, "quarantined", "doubtful")] for each in endpoints),
    )


def _count(each: Mapping[str, object], key: str) -> object:
    value, style = each[key], _STYLES.get(key)
    return Marked(value, style) if value and style else value


def _how_far(each: EndpointStatus) -> Sequence[object]:
    """Return the line of one endpoint; what is not known is empty."""
    percent, rate, eta_s = each["percent"], each["rate_per_s"], each["eta_s"]
    return (
        each["endpoint"],
        each["state"] or each["mode"],
        each["in_store"],
        each["handed_over"] + each["dispatched"],
        None if percent is None else f"{percent:g} %",
        None if rate is None else f"{rate:.1f}",
        span_text(int(eta_s)) if eta_s else None,
        *(_count(each, key) for key in ("in_flight", "quarantined")),
    )


def _write_tables(found: StatusDocument) -> None:
    if found["endpoints"]:
        columns = ("endpoint", "state", "in store", "moved", "done", "rows/s", "left", "in flight")
        counts: Sequence[Mapping[str, object]] = found["endpoints"]
        rare = [key for key in _RARE if any(each[key] for each in counts)]
        rows = [
            (*_how_far(each), *(_count(each, key) for key in rare)) for each in found["endpoints"]
        ]
        names = [_RARE[key] for key in rare]
        table = drawn_table((*columns, "quarantined", *names), rows)
        write_drawn(table, width=_WIDTH)
    for line, style in _left_lines(found["endpoints"]):
        write_text(line, style=style)
    if kept := found.get("content_kept"):  # a daemon of an older version does not say it
        write_text(kept)
    for hold in found["holds"]:
        whom = "everything" if hold["endpoint"] is None else hold["endpoint"]
        write_text(f"{whom} has waited since {_time(hold['since'])}: {hold['text']}")
    for each in found.get("not_counted", ()):
        write_text(f"rows of {each['endpoint']}: not counted: {each['text']}", style=AMBER)
    if found["quarantine"]:
        reasons = [(q["endpoint"], q["reason"], q["rows"]) for q in found["quarantine"]]
        write_table(("in quarantine", "reason", "rows"), reasons, style=AMBER)
    if found["doubtful"]:
        batches = [
            (str(d["batch"]), d["endpoint"], d["size"], _time(d["since"]))
            for d in found["doubtful"]
        ]
        write_table(("doubtful batch", "endpoint", "rows", "since"), batches, style=RED)
    if found["held"]:
        held = [
            (
                *(h["destination"], h["endpoint"], h["reason"], h["rows"]),
                *(_time(h["since"]), _time(h["next_try_at"])),
            )
            for h in found["held"]
        ]
        titles = ("parked destination", "endpoint", "reason", "rows", "since", "next try")
        write_table(titles, held, style=AMBER)
    if found["lanes"]:
        lanes = [
            (
                lane_name(lane["lane"], lane["serves"]),
                *(lane["is_alive"], lane["doing"]),
                (lane["owner"] or "").partition("/")[0],
                lane["open_batches"],
            )
            for lane in found["lanes"]
        ]
        write_table(("lane", "alive", "doing", "on", "open batches"), lanes)


def _left_lines(endpoints: Sequence[EndpointStatus]) -> Iterator[tuple[str, str]]:
    """Yield what is to be said of endpoints that are finished, and of rows left by others.

    Each with its style: that of what needs a look, by the rule of ``remaining.needs_attention``.
    """
    for each in endpoints:
        is_unsent = bool(each["overdue"]) and each["sent_by"] == "nobody"
        if each["text"]:
            style = AMBER if is_unsent or each["quarantined"] else ""
            yield f"{each['endpoint']}: {each['text']}", style
        elif each["left"]:
            sender = _SENDERS.get(each["sent_by"] or "", "who sends them is not known")
            yield (
                f"{each['endpoint']}: {grouped(each['left'])} due too soon to be moved, "
                f"{grouped(each['overdue'])} overdue; {sender}",
                AMBER if is_unsent else "",
            )


def lane_name(lane: int, serves: str | None) -> str:
    """Return what people call *lane*: its number, or the table whose dispatcher has it."""
    return f"lane {lane}" if serves is None else f"dispatcher {serves}"


def _way_back(expected: RollbackOutlook | None) -> Iterator[str]:
    if expected is None:
        return
    about = "" if expected["is_exact"] else "about "
    yield (
        f"handed over: {about}{grouped(expected['in_levels'])} in the levels, "
        f"{grouped(expected['too_near'])} due too soon to be recalled, "
        f"{about}{grouped(expected['left'])} have left"
    )
    if expected["possible_until"] is not None:
        until = _time(expected["possible_until"])
        yield f"`migrator rollback` can bring back all that are in the levels until {until}"


def _probed(probe: LatestProbe | None) -> Iterator[str]:
    if probe is not None:
        text = probe.get("text") or probe.get("outcome")
        yield f"probe, {_time(probe['at'])}: {text}"


def _remarks(found: StatusDocument) -> Iterator[str]:
    if not found["endpoints"]:
        yield "the ledger is empty: nothing was claimed yet"
    age_s = found["oldest_open_age_s"]
    if age_s is not None and age_s > _OLD_S:
        yield f"the oldest open batch was claimed {span_text(int(age_s))} ago"
    claimed = sum(each["rows"].get("claimed", 0) for each in found["endpoints"])
    if claimed and not any(lane["is_alive"] for lane in found["lanes"]):
        waiting = counted(claimed, "claimed row")
        yield f"waiting: {waiting}, but no process works on them; start `migrator run`"


# ── what a running daemon says of itself ────────────────────────────────────────────────────────


def _show_daemon(found: DaemonDocument) -> None:
    """Write the document ``migrator/daemon/1`` to stdout, for people."""
    write_text(f"migrator {found['version']}, {found['owner']}")
    for hold in found["holds"]:
        whom = "everything" if hold["endpoint"] is None else hold["endpoint"]
        write_text(f"{whom} has waited since {_time(hold['since'])}: {hold['text']}")
    write_table(
        ("endpoint", "mode", "in store", "rows/s", "empty in", "waits for"),
        [_endpoint_row(view) for view in found["working_on"]],
    )
    settings = ", ".join(f"{setting} {value}" for setting, value in found["settings"].items())
    write_text(f"set now: {settings}")
    for line in (*_job_lines(found), *_gaps(found)):
        write_text(line)


def _job_lines(found: DaemonDocument) -> Iterator[str]:
    """Yield what came of jobs the last time, and what was missed."""
    for job in found.get("jobs", ()):
        if (last := job["last"]) is not None:
            sign = "" if last["is_fine"] else "needs attention: "
            yield f"{job['job']}, {_time(last['at'])}: {sign}{last['text']}"
    missed = [f"{job['job']} {job['missed']}" for job in found.get("jobs", ()) if job["missed"]]
    if missed:
        yield f"missed since the start: {', '.join(missed)}"


def _endpoint_row(view: EndpointWork) -> Sequence[object]:
    rate, eta_s = view["rate_per_s"], view["eta_s"]
    return (
        view["endpoint"],
        view["mode"],
        view["in_store"],
        None if rate is None else f"{rate:.1f}",
        None if eta_s is None else span_text(int(eta_s)),
        ", ".join(dict.fromkeys(hold["signal"] for hold in view["holds"])),
    )


def _gaps(found: DaemonDocument) -> Iterator[str]:
    for gap in found["not_known"]:
        yield f"not known: {gap}"
    yield f"as of {found['age_s']:.0f} s ago"


def _time(text: str) -> str:
    return text.replace("T", " ")[:19] + " UTC"
