"""Tests of ``migrator.cli.decommission``: what needs no broker."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest

from migrator.cli import decommission
from migrator.cli.opening import opened
from migrator.config import load
from migrator.decommission.remove import Decommission
from migrator.decommission.report import Options, Report, Statement
from migrator.errors import ConfigError, PreflightRefused
from migrator.nservicebus.timeouts import RECALL_LANE, Lane
from migrator.rabbitmq.entities import queue_entity
from tests.unit.cli.conftest import Program


def test_it_wants_a_confirmation(program: Program) -> None:
    """Without a terminal, --yes; it says how the timeout manager is switched off."""
    ended = program("decommission", "--endpoint", "Sales", codes=[2])
    assert "DisableTimeoutManager()" in ended.err
    assert "add --yes" in ended.err


@pytest.mark.parametrize("wait", ["soon", "-1s"])
def test_a_wait_is_a_duration(program: Program, wait: str) -> None:
    """Said before anything is opened."""
    ended = program("decommission", "--endpoint", "Sales", "--wait", wait, "--yes", codes=[2])
    assert "--wait" in ended.err


def test_an_endpoint_nobody_knows_is_refused(program: Program) -> None:
    """A misspelt one must not pass for one whose table is gone already."""
    program.seeded(count=1)
    ended = program("decommission", "--endpoint", "Sails", "--dry-run", codes=[3])
    assert "no endpoint 'Sails'" in ended.err


def test_without_a_management_address_all_reasons_are_told(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is not even asked."""
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    program.seeded(count=3)
    ended = program("decommission", "--endpoint", "Sales", "--dry-run", "--json", codes=[3])
    document = ended.document
    assert document["schema"] == "migrator/decommission/1"
    found = [each["code"] for each in document["refusals"]]
    assert found == ["rows_in_table", "management_missing"]
    assert [each["purpose"] for each in document["sql"]] == ["archive", "drop"]
    text = program("decommission", "--endpoint", "Sales", "--yes", codes=[3])
    assert "refused (rows_in_table): 3 rows are in Sales_TimeoutData" in text.err
    assert 'DROP TABLE "Sales_TimeoutData";' in text.out
    assert program.rows("SELECT count(*) FROM migrator_event") == [(0,)]


def test_on_a_terminal_the_name_has_to_be_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anything else ends it."""
    monkeypatch.setattr("sys.stdin", io.StringIO("Sales\nyes\n"))
    decommission._ask("Sales")
    with pytest.raises(ConfigError, match="nothing was changed"):
        decommission._ask("Sales")
    assert "DisableTimeoutManager()" in capsys.readouterr().err


def test_what_is_asked_about_is_no_data(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json, stdout has one document, also on a terminal without --yes."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def planned(work: Decommission, *, is_dry: bool) -> Report:
        return Report(
            target=work.target,
            is_dry=is_dry,
            wants_drop=False,
            sql=[Statement(purpose="archive", sql="ALTER TABLE x")],
            delete=[queue_entity("Sales.Timeouts")],
        )

    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    program.seeded(count=1)
    monkeypatch.setattr(Decommission, "planned", planned)
    monkeypatch.setattr(Decommission, "carried_out", lambda _self, report: report)
    monkeypatch.setattr("sys.stdin", Terminal("Sales\n"))
    ended = program("decommission", "--endpoint", "Sales", "--json")
    assert [each["name"] for each in ended.document["delete"]] == ["Sales.Timeouts"]
    assert "delete  queue Sales.Timeouts" in ended.err
    assert "ALTER TABLE x;" in ended.err


def test_nobody_else_begins_meanwhile(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a recall, nor a lane of hand-over, nor the endpoint's dispatcher."""
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    program.seeded(count=1)
    with opened(load(file=None)) as app:
        endpoint = app.store.find("Sales")
        dispatcher = app.leases.dispatcher_lane(endpoint)
        term = timedelta(seconds=20)
        work = decommission.opened_work(app, "Sales", Options(), owner="me")
        with work.alone() as guard:
            guard()
            for lane in (Lane(0), RECALL_LANE, dispatcher):
                assert app.leases.acquire(lane, "other", term) is None
        for lane, told in ((dispatcher, "timeout manager of Sales"), (RECALL_LANE, "a recall")):
            held = app.leases.acquire(lane, "other", term)
            assert held is not None
            with pytest.raises(PreflightRefused, match=told), work.alone():
                pass
            app.leases.surrender(held)
        assert app.leases.holders() == []
