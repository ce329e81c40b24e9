"""Tests of ``migrator.cli.status``."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from migrator.cli import status
from migrator.cli.session import Session
from migrator.ledger.report import EndpointProgress, Progress
from migrator.ledger.tables import LedgerTables
from migrator.nservicebus.timeouts import Lane
from migrator.recall import queries
from migrator.recall.rules import RecallForecast, RecallScope
from migrator.reports import plain
from migrator.web import ledger
from migrator.web.status import progress_document
from tests.support.panel import NOW, SALES, some_progress
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
    endpoints=[EndpointProgress(endpoint=SALES, rows={"dispatched": 40, "publishing": 2})],
    quarantine=[],
    doubtful=[],
    lanes=[
        replace(
            some_progress().lanes[0],
            lane=Lane(1000),
            doing="dispatching: 2 wait for their time",
            serves="public.Sales_TimeoutData",
        )
    ],
    held=[replace(some_progress().held[0], next_try_at=NOW + timedelta(seconds=20))],
)


def told(progress: Progress, rollback: RecallForecast | None = None) -> dict[str, Any]:
    """Return *progress* as a document that came over the wire."""
    more = {"told_by": "daemon", "rollback": rollback and rollback.document, "probe": None}
    document = {**progress_document(progress), **more}
    found: dict[str, Any] = json.loads(json.dumps(document, default=plain))
    return found


def test_a_dispatcher_is_told_by_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it sent, and the destinations it could not reach."""
    status.show(told(DISPATCHING))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("endpoint", "claimed", "in", "flight", "handed", "over"),
        *("dispatched", "quarantined", "doubtful"),
    ]
    assert lines[1].split() == ["Sales", "42", "2", "0", "40", "0", "0"]
    (held,) = [line for line in lines if line.startswith("Billing")]
    assert held.split() == [
        *("Billing", "Sales", "destination-unknown", "3"),
        *("2026-03-10", "09:30:00+00:00", "2026-03-10", "09:30:20+00:00"),
    ]
    assert any(line.startswith("dispatcher public.Sales_TimeoutData") for line in lines)
    assert not any("lane 1000" in line for line in lines)


def test_tables_tell_what_needs_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    """Quarantine, doubt, silence, and how much can be undone."""
    expected = RecallForecast(
        in_levels=800, too_near=6, left=194, possible_until=NOW, may_find=True, is_exact=True
    )
    status.show(told(PROGRESS, expected))
    shown = capsys.readouterr().out
    for text in (
        *("no-destination", "doubtful batch", "lane 0", "300 s ago", "nobody works"),
        "handed over: 800 in the levels, 6 due too soon to come back, 194 have left",
        "`migrator rollback` can bring back all that are in the levels until 2026-03-10",
    ):
        assert text in shown
    vague = replace(expected, is_exact=False, possible_until=None)
    status.show(told(PROGRESS, vague))
    shown = capsys.readouterr().out
    assert "about 800 in the levels" in shown
    assert "can bring back" not in shown


def test_the_latest_probes_are_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is one to look for; an older one is history."""
    program("db", "upgrade")
    with Session().opened() as app:
        for text in ("an older one", "levels late, early or lost: 3"):
            detail = {"outcome": "late", "late_levels": [3], "text": text}
            app.runs.record("probe", detail=detail, batch=None)
        app.runs.record("reload", detail={}, batch=None)
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
    asked: list[RecallScope] = []
    pauses: list[float] = []
    forecast = queries.forecast

    def counted(
        engine: Engine, tables: LedgerTables, scope: RecallScope, **more: Any
    ) -> RecallForecast:
        asked.append(scope)
        return forecast(engine, tables, scope, **more)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "forecast", counted)
    monkeypatch.setattr(status, "pause", pause)
    ended = program("status", "--watch", "--interval", "5s", "--json", codes=[130])
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["schema"] for line in lines] == ["migrator/status/1"] * 3
    assert [line["rollback"]["left"] for line in lines] == [7, 7, 7]
    assert (len(asked), pauses) == (1, [5.0] * 3)
