"""Tests of ``migrator.cli.status``."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from migrator.app import App
from migrator.cli import status
from migrator.cli.status import Besides
from migrator.config import Settings
from migrator.config.servers import Store
from migrator.ledger.report import (
    EndpointProgress,
)
from migrator.nservicebus.timeouts import Lane
from migrator.recall.restore import SqlRecalls
from migrator.recall.rules import RecallForecast, RecallScope
from migrator.web.status import endpoint_documents
from tests.support.panel import NOW, SALES, some_progress
from tests.unit.cli.conftest import Program

PROGRESS = replace(
    some_progress(),
    endpoints=[
        EndpointProgress(
            endpoint=SALES,
            rows={"claimed": 4, "staged": 2, "handed_over": 90, "quarantined": 3, "released": 1},
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


def test_a_dispatcher_is_told_by_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it sent, and the destinations it could not reach."""
    status.show(DISPATCHING, as_json=False)
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


def test_what_is_held_is_in_the_document() -> None:
    """For whoever watches it; nothing is there when nothing is held."""
    document = status.status_document(DISPATCHING)
    assert document["held"] == [
        {
            "endpoint": "Sales",
            "source": "public.Sales_TimeoutData",
            "destination": "Billing",
            "reason": "destination-unknown",
            "detail": "no queue",
            "tries": 3,
            "since": NOW,
            "next_try_at": NOW + timedelta(seconds=20),
        }
    ]
    assert json.loads(json.dumps(document, default=str))["lanes"][0]["serves"].startswith("public")
    assert status.status_document(PROGRESS)["held"] == []


def test_the_document_has_every_number() -> None:
    """Under its documented name."""
    document = status.status_document(PROGRESS)
    (endpoint,) = endpoint_documents(PROGRESS.endpoints)
    assert document["endpoints"] == [endpoint]
    assert endpoint == {
        "endpoint": "Sales",
        "claimed_total": 100,
        "in_flight": 6,
        "handed_over": 90,
        "dispatched": 0,
        "quarantined": 3,
        "doubtful": 0,
        "released": 1,
        "rows": dict(sorted(PROGRESS.endpoints[0].rows.items())),
    }
    assert document["oldest_open_age_s"] == timedelta(minutes=5)


def test_tables_tell_what_needs_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    """Quarantine, doubt, silence."""
    status.show(PROGRESS, as_json=False)
    shown = capsys.readouterr().out
    for text in ("no-destination", "doubtful batch", "lane 0", "300 s ago", "nobody works"):
        assert text in shown


def test_the_latest_canary_is_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is one to look for; an older one is history."""
    program("db", "upgrade")
    with closing(App(Settings(store=Store(url=SecretStr(program.url))))) as app:
        for text in ("an older one", "levels late, early or lost: 3"):
            detail = {"outcome": "late", "late_levels": [3], "text": text}
            app.runs.record("canary", detail=detail, batch=None)
        app.runs.record("reload", detail={}, batch=None)
    assert program("status", "--json").document["canary"] is None
    monkeypatch.setenv("MIGRATOR_CANARY__EVERY", "1m")
    found = program("status", "--json").document["canary"]
    assert (found["outcome"], found["late_levels"]) == ("late", [3])
    assert datetime.fromisoformat(found["at"]).tzinfo is not None
    (line,) = [line for line in program("status").out.splitlines() if line.startswith("canary, ")]
    assert line.endswith("UTC: levels late, early or lost: 3")


def test_an_empty_ledger_is_told(program: Program) -> None:
    """Instead of an empty table."""
    program("db", "upgrade")
    assert "nothing was claimed yet" in program("status").out
    assert program("status", "--json").document["endpoints"] == []


def test_a_missing_ledger_is_refused(program: Program) -> None:
    """With what to do about it."""
    assert "migrator db upgrade" in program("status", codes=[3]).err


def watching(monkeypatch: pytest.MonkeyPatch, looks: int) -> list[float]:
    """Let --watch end after *looks* looks; return the pauses it makes."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(status, "pause", pause)
    return pauses


def test_watching_looks_again_until_interrupted(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json, one line per look."""
    program("db", "upgrade")
    pauses = watching(monkeypatch, looks=3)
    ended = program("status", "--watch", "--interval", "5s", "--json", codes=[130])
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["schema"] for line in lines] == ["migrator/status/1"] * 3
    assert pauses == [5.0] * 3


def test_watching_as_text(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is only cleared where there is one; a silly pause is made sensible."""
    program("db", "upgrade")
    pauses = watching(monkeypatch, looks=1)
    ended = program("status", "--watch", "--interval", "0s", codes=[130])
    assert "\x1b" not in ended.out
    assert pauses == [0.1]


def test_a_screen_is_cleared_before_each_look(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tables stay where they are."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    status.show(PROGRESS, as_json=False, is_repeated=True)
    assert capsys.readouterr().out.startswith("\x1b[2J")


def test_an_interval_is_a_duration(program: Program) -> None:
    """It says what is allowed."""
    assert "duration such as" in program("status", "--interval", "5", codes=[2]).err


EXPECTED = RecallForecast(
    in_levels=800, too_near=6, left=194, possible_until=NOW, may_find=True, is_exact=True
)


def test_until_when_all_can_be_undone_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With what is still there and what has left; nothing when nothing was handed over."""
    status.show(PROGRESS, Besides(rollback=EXPECTED), as_json=False)
    out = capsys.readouterr().out
    assert "handed over: 800 in the levels, 6 due too soon to come back, 194 have left" in out
    assert "`migrator rollback` can bring back all that are in the levels until 2026-03-10" in out
    vague = replace(EXPECTED, is_exact=False, possible_until=None)
    status.show(PROGRESS, Besides(rollback=vague), as_json=False)
    out = capsys.readouterr().out
    assert "about 800 in the levels" in out
    assert "can bring back" not in out
    assert status.status_document(PROGRESS, Besides(rollback=EXPECTED))["rollback"] == {
        "in_levels": 800,
        "too_near": 6,
        "left": 194,
        "possible_until": NOW,
        "is_exact": True,
    }
    assert status.status_document(PROGRESS)["rollback"] is None


def test_the_way_back_is_not_looked_at_with_every_look(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching costs a ledger no more than one look each ten seconds."""
    program.seeded()
    program.change(
        "INSERT INTO migrator_run (id, endpoint, source, options, tool_version, status, begun_at)"
        " VALUES (1, 'Sales', 'Sales_TimeoutData', '{}', '0', 'done', '2026-01-01 00:00:00.000')",
        "INSERT INTO migrator_batch (id, run_id, endpoint, source, lane, mode, state, attempt,"
        " size, body_bytes, lease_token, first_due, last_due) VALUES (1, 1, 'Sales',"
        " 'Sales_TimeoutData', 0, 'staged', 'handed_over', 1, 7, 9, 1,"
        " '2020-01-01 00:00:00.000000', '2020-01-01 00:00:00.000000')",
    )
    asked: list[RecallScope] = []
    forecast = SqlRecalls.forecast

    def counted(self: SqlRecalls, scope: RecallScope, **more: Any) -> RecallForecast:
        asked.append(scope)
        return forecast(self, scope, **more)

    monkeypatch.setattr(SqlRecalls, "forecast", counted)
    watching(monkeypatch, looks=3)
    ended = program("status", "--watch", "--json", codes=[130])
    left = [json.loads(line)["rollback"]["left"] for line in ended.out.splitlines()]
    assert (left, len(asked)) == ([7, 7, 7], 1)
