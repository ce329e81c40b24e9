"""Tests of ``migrator.cli.check``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from migrator.app.preflight import check_context
from migrator.cli import delays
from migrator.cli.session import Session
from migrator.delays.topology import DelayEntities
from migrator.errors import TargetUnavailable
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import queue


def test_a_sound_migration_may_begin(program: Program) -> None:
    """Every check has a finding; the table is data, the verdict talk."""
    program.seeded()
    program.broker.probes = dict.fromkeys(("Sales", "Sales.TimeoutsDispatcher"), queue(1))
    ended = program("check", "--endpoint", "Sales")
    assert "store-reachable" in ended.out
    assert ended.err == "verdict: ok\n"
    del program.broker.probes["Sales.TimeoutsDispatcher"]
    document = program("check", "--json").document
    assert (document["schema"], document["verdict"]) == ("migrator/check/1", "warning")
    levels = {f["check"]: f["level"] for f in document["findings"]}
    assert (levels["unattended-rows"], levels["ledger"]) == ("warning", "ok")


@pytest.mark.parametrize("verb", [["check"], ["delays", "show"]])
def test_a_refusal_ends_with_3_and_a_broker_that_is_gone_with_4(
    program: Program, verb: list[str]
) -> None:
    """With the remedy; whatever else was refused. A missing ledger does not end the checks."""
    program("seed", "--yes", "--endpoint", "Sales", "--count", "1")
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    shown = program(*verb, codes=[3]).out
    assert "migrator delays create --delays v2" in shown
    assert ("migrator db upgrade" in shown) == (verb == ["check"])
    program.broker.failure = TargetUnavailable("gone")
    assert program(*verb, "--json", codes=[4]).document["verdict"] == "refused"


def test_a_level_is_watched_only_for_as_long_as_was_said(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only when messages are held; without a store, what the ledger tells is not checked."""
    waits: list[float] = []
    monkeypatch.setattr(delays, "time", SimpleNamespace(sleep=waits.append))
    verify = ("delays", "show", "--watch-for")
    program("db", "upgrade")
    findings = program(*verify, "3s", "--json").document["findings"]
    assert [f["subject"] for f in findings if f["level"] == "not_checked"] == []
    monkeypatch.delenv("MIGRATOR_STORE__URL")
    assert "'10' must be a duration" in program(*verify, "10", codes=[2]).err
    document = program(*verify, "3s", "--delays", "v1", "--json").document
    assert document["schema"] == "migrator/delays-show/1"
    (finding,) = [f for f in document["findings"] if f["level"] == "not_checked"]
    assert (finding["check"], finding["subject"]) == ("ways-out", "handed-over timeouts")
    assert waits == []
    program.broker.hanging = {1: 40}
    document = program(*verify, "3s", "--json", codes=[3]).document
    (finding,) = [f for f in document["findings"] if f["level"] == "refused"]
    assert "stands still" in finding["text"]
    assert sum(waits) == 3


def test_settings_become_what_checks_ask_for(program: Program) -> None:
    """Our queues, once a ledger's id names them, and those of endpoints we dispatch for."""
    (program.folder / "migrator.toml").write_text(
        '[handover]\nnear_due = "dispatch"\nlanes = 2\n[dispatch]\nretry_delays = ["10s", "1m"]\n'
        '[[endpoints]]\nname = "Sales"\nmode = "dispatch"\nqueue = "In"\nerror_queue = "bad"\n'
        '[[endpoints]]\nname = "Billing"\nmode = "forward"\n'
        '[[endpoints]]\nname = "Stock"\n'
    )
    with Session().opened() as app:
        assert check_context(app, (), None).own_queues == ()
        program("db", "upgrade")
        found = check_context(app, (), None)
        only = check_context(app, ("Billing", "Stock"), None).satellites
    assert len(found.own_queues) == 4
    assert all(name.startswith("migrator.") for name in found.own_queues)
    assert [(s.endpoint, s.queue, s.error_queue) for s in found.satellites] == [
        ("Sales", "In", "bad"),
        ("Billing", "Billing", "error"),
    ]
    retries = ["migrator.retry.In.Timeouts.10", "migrator.retry.In.Timeouts.60"]
    assert found.satellites[0].retry_queues == retries
    assert [s.endpoint for s in only] == ["Billing"]
    assert dict(found.modes) == {"Sales": "dispatch", "Billing": "forward", "Stock": "migrate"}
    assert (found.queues["Sales"], found.sends_near_due) == ("In", True)


@pytest.mark.parametrize(("own", "missing"), [("", "failed"), ('error_queue = "bad"\n', "bad")])
def test_the_error_queue_must_be_there(program: Program, own: str, missing: str) -> None:
    """That of ``[dispatch]``, unless the endpoint has one of its own."""
    program.seeded()
    (program.folder / "migrator.toml").write_text(
        '[dispatch]\nerror_queue = "failed"\n[[endpoints]]\nname = "Sales"\nmode = "dispatch"\n'
        + own
    )
    there = {"Sales", "Sales.Timeouts", "error", "failed", "bad"} - {missing}
    program.broker.probes = {name: queue() for name in there}
    found = program("check", "--json", codes=[3]).document["findings"]
    refused = [(f["check"], f["subject"]) for f in found if f["level"] == "refused"]
    assert refused == [("satellite-queues", missing)]
    program.broker.probes[missing] = queue()
    program("check")
