"""``migrator status --daemon``: what a running daemon says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migrator.cli.output import write_table, write_text
from migrator.delays.depths import span_text

Document = Mapping[str, Any]


def show_daemon(found: Document) -> None:
    """Write the document ``migrator/daemon/1`` to stdout, for people."""
    write_text(f"migrator {found['version']}, {found['owner']}")
    for hold in found["holds"]:
        whom = "everything" if hold["endpoint"] is None else hold["endpoint"]
        write_text(f"{whom} waits since {_time(hold['since'])}: {hold['text']}")
    write_table(
        ("endpoint", "mode", "in store", "rows/s", "empty in", "waits for"),
        [_row(view) for view in found["working_on"]],
    )
    knobs = ", ".join(f"{knob} {value}" for knob, value in found["knobs"].items())
    write_text(f"set now: {knobs}")
    for line in (*_jobs(found), *_remarks(found)):
        write_text(line)


def _jobs(found: Document) -> Iterator[str]:
    """Yield what came of jobs the last time, and what was missed."""
    for job in found.get("jobs", ()):
        if (last := job["last"]) is not None:
            sign = "" if last["is_fine"] else "look at this: "
            yield f"{job['job']}, {_time(last['at'])}: {sign}{last['text']}"
    missed = [f"{job['job']} {job['missed']}" for job in found.get("jobs", ()) if job["missed"]]
    if missed:
        yield f"missed since the start: {', '.join(missed)}"


def _row(view: Document) -> Sequence[object]:
    rate, eta_s = view["rate_per_s"], view["eta_s"]
    return (
        view["endpoint"],
        view["mode"],
        view["in_store"],
        None if rate is None else f"{rate:.1f}",
        None if eta_s is None else span_text(int(eta_s)),
        ", ".join(dict.fromkeys(hold["signal"] for hold in view["holds"])),
    )


def _remarks(found: Document) -> Iterator[str]:
    for gap in found["not_known"]:
        yield f"not known: {gap}"
    yield f"as of {found['age_s']:.0f} s ago"


def _time(text: str) -> str:
    return text.replace("T", " ")[:19] + " UTC"
