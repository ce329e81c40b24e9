"""Tests of ``migrator.cli.check``."""

from __future__ import annotations

import pytest

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


def test_a_refusal_ends_with_3(program: Program) -> None:
    """And says what to do."""
    program.seeded()
    program.broker.entities = DelayEntities(missing=["x"], different={}, not_checked=())
    ended = program("check", codes=[3])
    assert "migrator delays create --delays v2" in ended.out


def test_a_missing_ledger_is_a_finding(program: Program) -> None:
    """Not the end of the checks."""
    program("seed", "--endpoint", "Sales", "--count", "1")
    document = program("check", "--json", codes=[3]).document
    (finding,) = [f for f in document["findings"] if f["check"] == "ledger"]
    assert (finding["level"], finding["remedy"]) == ("refused", "migrator db upgrade")


def test_a_broker_that_is_gone_ends_with_4(program: Program) -> None:
    """Whatever else was refused."""
    program.seeded()
    program.broker.failure = TargetUnavailable("gone")
    document = program("check", "--json", codes=[4]).document
    assert document["verdict"] == "refused"


@pytest.mark.parametrize("endpoint", ["Nobody", "Sales.Orders"])
def test_an_unknown_endpoint_is_refused(program: Program, endpoint: str) -> None:
    """With the names the store has."""
    program.seeded()
    ended = program("check", "--endpoint", endpoint, codes=[3])
    assert "it has: Sales" in ended.out


def test_a_store_without_tables_ends_with_3(program: Program) -> None:
    """It answers, but it is the wrong database or schema."""
    assert "has no timeouts table" in program("check", codes=[3]).out
