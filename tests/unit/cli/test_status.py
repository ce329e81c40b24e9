"""Tests of ``migrator.cli.status``."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from migrator.app.ledger import open_ledger
from migrator.cli import status
from migrator.cli.session import Session
from migrator.ledger.report import EndpointProgress, Progress
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import EndpointName, Lane
from migrator.recall import queries
from migrator.recall.rules import RecallForecast, Scope
from migrator.status import reader
from migrator.status.document import StatusDocument, status_document
from migrator.status.remaining import Phase, Remaining, SentBy, finished_text
from migrator.throttle.reasons import Signal
from tests.support.panel import NOW, SALES, hold, some_progress, some_remaining, some_snapshot
from tests.unit.cli.conftest import Program

PROGRESS = replace(
    some_progress(),
    endpoints=[
        EndpointProgress(
            endpoint=SALES,
            rows={"claimed": 4, "staging": 2, "handed_over": 90, "quarantined": 3, "released": 1},
        )
    ],
    lanes=[replace(some_progress().lanes[0], owner=None, doing=None, is_alive=False)],
    held=[],
)
DISPATCHING = replace(
    PROGRESS,
    endpoints=[
        EndpointProgress(endpoint=SALES, rows={"dispatched": 40, "publishing": 2, "parked": 40})
    ],
    quarantine=[],
    doubtful=[],
    lanes=[
        replace(
            some_progress().lanes[0],
            lane=Lane(1000),
            doing="dispatching: 2 rows wait until due",
            serves="public.Sales_TimeoutData",
        )
    ],
    held=[replace(some_progress().held[0], next_try_at=NOW + timedelta(seconds=20))],
)


def told(progress: Progress, rollback: RecallForecast | None = None) -> StatusDocument:
    """Return *progress* as a daemon tells it."""
    views = some_snapshot().endpoints[:1]
    return status_document(progress, views, told_by="daemon", rollback=rollback)


def test_a_dispatcher_is_told_by_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it sent, and the destinations it could not reach."""
    status.show(told(DISPATCHING))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("endpoint", "state", "in", "store", "moved", "done", "rows/s", "left"),
        *("in", "flight", "quarantined", "parked"),
    ]
    assert lines[1].split() == [
        *("Sales", "moving", "5", "000", "40", "0", "%", "50.0", "1m", "40s", "2", "0", "40")
    ]
    (held,) = [line for line in lines if line.startswith("Billing")]
    assert held.split() == [
        *("Billing", "Sales", "destination-unknown", "40"),
        *("2026-03-10", "09:30:00", "UTC", "2026-03-10", "09:30:20", "UTC"),
    ]
    assert any(line.startswith("dispatcher public.Sales_TimeoutData") for line in lines)
    assert not any("lane 1000" in line for line in lines)


def test_what_is_left_is_told_in_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """With who sends it, whether or not the endpoint is finished, and why it waits."""
    name = EndpointName("Acme.Sales.Ordering")
    one = some_snapshot().endpoints[0]
    left = some_remaining(0, left=1_234_567, overdue=863)
    done = EndpointProgress(endpoint=name, rows={"handed_over": 12_345_678})
    progress = replace(PROGRESS, endpoints=[done], doubtful=[])
    views = [replace(one, endpoint=name, phase=Phase.FINISHED, remaining=left)]
    status.show(status_document(progress, views, [hold(Signal.ALARM)], told_by="daemon"))
    out = capsys.readouterr().out
    table = out.partition(f"{name}: Done")[0].splitlines()
    assert (len(table), max(map(len, table)) <= 100) == (2, True)
    assert f"{name}: {finished_text(done, left)}" in out
    assert "everything has waited since 2026-03-10 09:30:00 UTC: broker_alarm: what was seen" in out
    views = [replace(views[0], phase=Phase.MOVING)]
    status.show(status_document(progress, views, told_by="daemon"))
    assert "1 234 567 due too soon to be moved, 863 overdue; nobody sends them" in (
        capsys.readouterr().out
    )


def test_without_a_daemon_the_tables_are_counted(program: Program) -> None:
    """By the same rule as a daemon's, with the cutoff of the latest run."""
    program("db", "upgrade")
    unknown = program("status", "--endpoint", "Sale", codes=(2,)).err
    assert "has no endpoint 'Sale'; it has: none" in unknown
    program.seeded()
    program.record("handed_over")
    (found,) = program("status", "--json").document["endpoints"]
    assert (found["mode"], found["handed_over"]) == ("migrate", 7)
    assert found["in_store"] == found["to_move"] + found["left"] + found["later"]
    assert (found["state"] == "finished") is (found["to_move"] == 0)
    assert found["rate_per_s"] is not None
    assert program("status", "--endpoint", "Sales", "--json").document["endpoints"] == [
        found | {"rate_per_s": pytest.approx(found["rate_per_s"], rel=0.5)}
    ]
    program("seed", "--yes", "--endpoint", "Billing", "--count", "4")
    program.claimed(4, "Billing")
    assert "in the levels" in program("status").out
    assert "Billing" in program("status", "--endpoint", "Sales", "--endpoint", "Billing").out
    named = program("status", "--endpoint", "Sales")  # a sum of all would be read as its own
    assert ("in the levels" in named.out, "Billing" in named.out) == (False, False)
    assert (
        "has no endpoint 'Sale'; it has: Billing, Sales"
        in program("status", "--endpoint", "Sale", codes=(2,)).err
    )


def test_tables_tell_what_needs_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    """Quarantine, doubt, silence, and how much can be undone."""
    expected = RecallForecast(
        in_levels=800, too_near=6, left=194, possible_until=NOW, may_find=True, is_exact=True
    )
    status.show(told(PROGRESS, expected))
    shown = capsys.readouterr().out
    for text in (
        *("no-destination", "doubtful batch", "lane 0", "5m ago", "no process works"),
        "handed over: 800 in the levels, 6 due too soon to be recalled, 194 have left",
        "`migrator rollback` can bring back all that are in the levels until 2026-03-10",
    ):
        assert text in shown
    vague = replace(expected, is_exact=False, possible_until=None)
    status.show(told(PROGRESS, vague))
    shown = capsys.readouterr().out
    assert "about 800 in the levels" in shown
    assert "can bring back" not in shown


AMBER, RED, PLAIN = "\x1b[33m", "\x1b[1;31m", "\x1b[0m"


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a stdout with colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


def coloured(capsys: pytest.CaptureFixture[str]) -> set[tuple[str, str]]:
    """Return each colour of what was shown, with the text that has it."""
    found = re.findall(r"\x1b\[([\d;]*3\d)m([^\x1b]*)", capsys.readouterr().out)
    return {(f"\x1b[{colour}m", text.strip()) for colour, text in found if text.strip()}


def test_what_needs_a_person_has_a_colour_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Red where somebody has to decide, amber where somebody should look, and nothing else."""
    at_terminal(monkeypatch)
    rows = {"claimed": 4, "handed_over": 91, "doubtful": 17, "quarantined": 23, "parked": 40}
    progress = replace(some_progress(), endpoints=[EndpointProgress(endpoint=SALES, rows=rows)])
    everything = told(progress)
    status.show(everything)
    when = "2026-03-10 09:30:00 UTC"
    assert coloured(capsys) == {
        (AMBER, "23"),
        (RED, "17"),
        (AMBER, "40"),
        *((AMBER, text) for text in ("Sales", "no-destination", "3")),
        *((RED, text) for text in ("7", "Sales", "10", when)),
        *((AMBER, text) for text in ("Billing", "Sales", "destination-unknown", when)),
    }
    fine = replace(progress, quarantine=[], doubtful=[], held=[])
    rows = {"claimed": 4, "handed_over": 91}
    status.show(told(replace(fine, endpoints=[EndpointProgress(endpoint=SALES, rows=rows)])))
    assert coloured(capsys) == set()
    monkeypatch.setenv("NO_COLOR", "1")
    status.show(everything)
    assert coloured(capsys) == set()
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    status.show(everything)
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "left", "aside", "expected"),
    [
        (Phase.FINISHED, some_remaining(0, left=863, overdue=863), 0, True),
        (Phase.FINISHED, some_remaining(0, left=863), 0, False),
        (Phase.FINISHED, some_remaining(0), 0, False),
        (Phase.FINISHED, some_remaining(0), 3, True),
        (Phase.MOVING, some_remaining(5, left=863, overdue=863), 0, True),
        (Phase.MOVING, some_remaining(5, left=863), 3, False),
        (
            Phase.MOVING,
            replace(
                some_remaining(5, left=863, overdue=863), sent_by=SentBy.TIMEOUT_MANAGER, queue=""
            ),
            0,
            False,
        ),
    ],
    ids=["unsent", "not due", "done", "quarantine", "unsent too", "not due yet", "others send"],
)
def test_the_sentence_of_rows_that_nobody_sends_is_amber(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    state: Phase,
    left: Remaining,
    aside: int,
    expected: bool,
) -> None:
    """Or of one that is finished and tells of a quarantine."""
    at_terminal(monkeypatch)
    counts = EndpointProgress(endpoint=SALES, rows={"handed_over": 5, "quarantined": aside})
    progress = replace(PROGRESS, endpoints=[counts], quarantine=[], doubtful=[])
    views = [replace(some_snapshot().endpoints[0], phase=state, remaining=left)]
    status.show(status_document(progress, views, told_by="daemon"))
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "Sales: " in each]
    assert (line.startswith(f"{AMBER}Sales: ") and line.endswith(PLAIN)) is expected
    assert ("\x1b" in line) is expected


def test_the_latest_probes_are_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is one to look for; an older one is history."""
    program("db", "upgrade")
    with open_ledger(Session().settings()) as ledger:
        for text in ("an older one", "levels late, early or lost: 3"):
            detail = {"outcome": "late", "late_levels": [3], "text": text}
            ledger.runs.record("probe", detail=detail, batch=None)
        ledger.runs.record("reload", detail={}, batch=None)
    assert program("status", "--json").document["probe"] is None
    monkeypatch.setenv("MIGRATOR_PROBE__EVERY", "1m")
    found = program("status", "--json").document["probe"]
    assert (found["outcome"], found["late_levels"]) == ("late", [3])
    (line,) = [line for line in program("status").out.splitlines() if line.startswith("probe, ")]
    assert line.endswith("UTC: levels late, early or lost: 3")


def test_an_empty_ledger_is_told(program: Program) -> None:
    """Instead of an empty table; a missing one is refused with what to do about it."""
    assert "migrator db upgrade" in program("status", codes=[3]).err
    program("db", "upgrade")
    assert "nothing was claimed yet" in program("status").out
    assert program("status", "--json").document["endpoints"] == []
    assert "duration such as" in program("status", "--interval", "5", codes=[2]).err


def test_watching_looks_again_until_interrupted(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line per look; how much can come back is asked no oftener than each ten seconds."""
    program.seeded()
    program.record("handed_over")
    asked: list[Scope] = []
    pauses: list[float] = []
    forecast = queries.forecast

    def counted(engine: Engine, tables: LedgerTables, scope: Scope, **more: Any) -> RecallForecast:
        asked.append(scope)
        return forecast(engine, tables, scope, **more)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(reader, "forecast", counted)
    monkeypatch.setattr(status, "pause", pause)
    ended = program("status", "--watch", "--interval", "5s", "--json", codes=[130])
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["schema"] for line in lines] == ["migrator/status/1"] * 3
    assert [line["rollback"]["left"] for line in lines] == [7, 7, 7]
    assert (len(asked), pauses) == (1, [5.0] * 3)
