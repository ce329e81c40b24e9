"""Tests of ``migrator.cli.decommission``: what needs no broker."""

from __future__ import annotations

import io
from datetime import timedelta

import pytest

from migrator.app.decommission import open_decommission
from migrator.app.servers import open_servers
from migrator.cli.session import Session
from migrator.decommission.remove import Decommission
from migrator.decommission.rules import Options, Plan
from migrator.errors import PreflightRefused
from migrator.nservicebus.timeouts import RECALL_LANE, Lane
from migrator.rabbitmq.entities import queue_entity
from tests.unit.cli.conftest import Program


def test_it_wants_a_confirmation(program: Program) -> None:
    """Without a terminal, --yes; it says how the timeout manager is switched off."""
    called = ("decommission", "--endpoint", "Sales")
    ended = program(*called, codes=[2])
    assert "DisableTimeoutManager()" in ended.err
    assert "add --yes" in ended.err
    assert "--wait" in program(*called, "--wait", "-1s", "--yes", codes=[2]).err


def test_without_a_management_address_all_reasons_are_told(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is not even asked; a misspelt endpoint does not pass for one that is gone."""
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    program.seeded(count=3)
    ended = program("decommission", "--endpoint", "Sails", "--dry-run", codes=[3])
    assert "no endpoint 'Sails'" in ended.err
    document = program("decommission", "--endpoint", "Sales", "--dry-run", "--json", codes=[3])
    found = [each["code"] for each in document.document["refusals"]]
    assert found == ["rows_in_table", "management_missing"]
    assert document.document["sql"] == []
    text = program("decommission", "--endpoint", "Sales", "--yes", codes=[3])
    assert "refused (rows_in_table): Sales_TimeoutData still holds 3 rows" in text.err
    assert "DROP TABLE" not in text.out
    assert program.rows("SELECT count(*) FROM migrator_event") == [(0,)]


def test_what_is_asked_about_is_no_data(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the name has to be typed; with --json, stdout has one document all the same."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    program.seeded(count=1)
    plan = Plan(delete=[queue_entity("Sales.Timeouts")])
    monkeypatch.setattr(Decommission, "planned", lambda _work: plan)
    monkeypatch.setattr(Decommission, "run", lambda _work, _guard: plan)
    monkeypatch.setattr("sys.stdin", Terminal("Sales\nyes\n"))
    ended = program("decommission", "--endpoint", "Sales", "--json")
    assert [each["name"] for each in ended.document["delete"]] == ["Sales.Timeouts"]
    assert "delete  queue Sales.Timeouts" in ended.err
    assert "DROP TABLE" in ended.err
    ended = program("decommission", "--endpoint", "Sales", codes=[2])
    assert "not confirmed; nothing was changed" in ended.err


def test_nobody_else_begins_meanwhile(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a recall, nor a lane of hand-over, nor the endpoint's dispatcher."""
    monkeypatch.setenv("MIGRATOR_BROKER__URL", "amqp://127.0.0.1:9")
    program.seeded(count=1)
    with open_servers(Session().settings()) as servers:
        leases = servers.ledger.leases
        endpoint = servers.backend.store.find("Sales")
        dispatcher = leases.dispatcher_lane(endpoint)
        term = timedelta(seconds=20)
        with open_decommission(servers.settings, "Sales", Options()) as work:
            with work.alone() as guard:
                guard()
                for lane in (Lane(0), RECALL_LANE, dispatcher):
                    assert leases.acquire(lane, "other", term) is None
            for lane, told in ((dispatcher, "timeout manager of Sales"), (RECALL_LANE, "a recall")):
                held = leases.acquire(lane, "other", term)
                assert held is not None
                with pytest.raises(PreflightRefused, match=told), work.alone():
                    pass
                leases.release(held)
        assert leases.holders() == []
