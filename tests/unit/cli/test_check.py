"""Tests of ``migrator.cli.check``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from migrator.cli import check
from migrator.errors import TargetUnavailable
from migrator.preflight.broker import DelayEntities
from tests.unit.cli.conftest import Program
from tests.unit.preflight.fakes import queue

PROBE = queue(1)


def test_a_sound_migration_may_begin(program: Program) -> None:
    """Every check has a finding; the table is data, the verdict talk."""
    program.seeded()
    program.broker.probes = {"Sales": PROBE, "Sales.TimeoutsDispatcher": PROBE}
    ended = program("check", "--endpoint", "Sales")
    assert "store-reachable" in ended.out
    assert ended.err == "verdict: ok\n"


def test_findings_are_json_on_demand(program: Program) -> None:
    """With the verdict."""
    program.seeded()
    program.broker.probes = {"Sales": PROBE}
    document = program("check", "--json").document
    assert document["schema"] == "migrator/check/1"
    assert document["verdict"] == "warning"
    levels = {f["check"]: f["level"] for f in document["findings"]}
    assert (levels["unattended-rows"], levels["ledger"]) == ("warning", "ok")


@pytest.mark.parametrize("verb", [["check"], ["delays", "verify"]])
def test_a_refusal_ends_with_3_and_a_broker_that_is_gone_with_4(
    program: Program, verb: list[str]
) -> None:
    """With the remedy; whatever else was refused."""
    program.seeded()
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    assert "migrator delays create --delays v2" in program(*verb, codes=[3]).out
    program.broker.failure = TargetUnavailable("gone")
    assert program(*verb, "--json", codes=[4]).document["verdict"] == "refused"


def test_a_missing_ledger_is_a_finding(program: Program) -> None:
    """Not the end of the checks."""
    program("seed", "--endpoint", "Sales", "--count", "1")
    document = program("check", "--json", codes=[3]).document
    (finding,) = [f for f in document["findings"] if f["check"] == "ledger"]
    assert (finding["level"], finding["remedy"]) == ("refused", "migrator db upgrade")


def test_sound_delays_are_fine(program: Program) -> None:
    """The table is data, the verdict talk; exit code 0."""
    program("db", "upgrade")
    ended = program("delays", "verify")
    assert ended.err == "verdict: ok\n"
    assert "frozen-levels" in ended.out
    document = program("delays", "verify", "--json", "--delays", "v1").document
    assert (document["schema"], document["verdict"]) == ("migrator/delays-verify/1", "ok")


def test_a_level_is_watched_only_for_as_long_as_was_said(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only when messages are held."""
    waits: list[float] = []
    monkeypatch.setattr(check, "time", SimpleNamespace(sleep=waits.append))
    program("delays", "verify", "--watch-for", "3s")
    assert waits == []
    program.broker.hanging = {1: 40}
    document = program("delays", "verify", "--watch-for", "3s", "--json", codes=[3]).document
    (finding,) = [f for f in document["findings"] if f["level"] == "refused"]
    assert "stands still" in finding["text"]
    assert sum(waits) == 3


@pytest.mark.parametrize("reason", ["no store", "no ledger", "no database"])
def test_no_ledger_is_no_refusal(
    program: Program, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """What it would tell is not checked."""
    if reason == "no store":
        monkeypatch.delenv("MIGRATOR_STORE__URL")
    elif reason == "no database":
        monkeypatch.setenv("MIGRATOR_STORE__URL", "postgresql+psycopg://a:b@127.0.0.1:1/x")
    document = program("delays", "verify", "--json").document
    (finding,) = [f for f in document["findings"] if f["level"] == "not_checked"]
    assert (finding["check"], finding["subject"]) == ("ways-out", "handed-over timeouts")


def test_a_span_without_a_unit_is_refused(program: Program) -> None:
    """It says which option."""
    assert (
        "--watch-for '10' must be a duration"
        in program("delays", "verify", "--watch-for", "10", codes=[2]).err
    )
