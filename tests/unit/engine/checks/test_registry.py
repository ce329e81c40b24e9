"""Tests of ``migrator.engine.checks.registry``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.domain.findings import Finding, Level, verdict
from migrator.engine import checks
from migrator.engine.checks import CHECKS, UNREACHABLE, refuse, run_checks
from migrator.errors import LedgerMissing, PreflightRefused, StoreUnavailable, TargetUnavailable
from tests.unit.engine.checks.fakes import FakeBroker, FakeLedger, FakeStore, context, preview


def test_every_check_is_registered_under_its_own_name() -> None:
    """One file, one line."""
    files = {p.stem for p in Path(checks.__file__).parent.glob("*.py")}
    files -= {"__init__", "context", "registry"}
    assert {name.replace("-", "_") for name in CHECKS} == files
    assert list(CHECKS) == sorted(CHECKS)
    assert CHECKS.keys() >= UNREACHABLE


def test_when_all_is_well_every_check_says_so() -> None:
    """None is silent, and each is heard under its name."""
    found = run_checks(context())
    assert verdict(found) is Level.OK
    assert [f.check for f in found if f.check != "destinations"] == [
        name for name in sorted(CHECKS) if name != "destinations"
    ]


def test_checks_that_cannot_ask_are_not_checked() -> None:
    """A broker that is gone is refused once; everything else about it is unknown."""
    broker = FakeBroker(failure=TargetUnavailable("it is gone"))
    found = run_checks(context(broker=broker, previews=[preview(destinations={"Sales": 1})]))
    refused = [f.check for f in found if f.level is Level.REFUSED]
    unknown = {f.check for f in found if f.level is Level.NOT_CHECKED}
    assert refused == ["broker-reachable"]
    assert {"broker-alarms", "policies", "destinations", "vendor-run"} <= unknown
    assert all(f.text == "it is gone" for f in found if f.check in unknown)


def test_a_store_that_is_gone_is_refused_once() -> None:
    """Checks of the broker go on."""
    found = run_checks(context(store=FakeStore(failure=StoreUnavailable("gone")), previews=None))
    assert [f.check for f in found if f.level is Level.REFUSED] == ["store-reachable"]
    assert any(f.check == "broker-version" and f.level is Level.OK for f in found)


def test_only_the_named_checks_run() -> None:
    """In the order of their names all the same."""
    found = run_checks(context(), only=["vendor-run", "ledger"])
    assert [f.check for f in found] == ["ledger", "vendor-run"]


def test_a_refusal_raised_on_the_way_is_a_refusal() -> None:
    """Whichever check meets it."""
    store = FakeStore(claim_failure=None)
    broken = context(store=store, ledger=FakeLedger(LedgerMissing("no ledger")))
    (found,) = run_checks(broken, only=["ledger"])
    assert found.level is Level.REFUSED

    class Refusing(FakeStore):
        def unfinished_vendor_runs(self) -> list[str]:
            raise LedgerMissing("no ledger")

    (found,) = run_checks(context(store=Refusing()), only=["vendor-run"])
    assert (found.level, found.text) == (Level.REFUSED, "no ledger")


def test_an_unknown_endpoint_is_refused_once() -> None:
    """By the check that looks for endpoints; others just cannot look."""
    found = run_checks(replace(context(), endpoint_names=("Nobody",)))
    assert [f.check for f in found if f.level is Level.REFUSED] == ["endpoints"]
    (rights,) = [f for f in found if f.check == "rights"]
    assert rights.level is Level.NOT_CHECKED


def _finding(level: Level, remedy: str = "") -> Finding:
    return Finding(check="c", level=level, subject="s", text="t", remedy=remedy)


def test_anything_but_a_refusal_lets_through() -> None:
    """Warnings and gaps are told, not obeyed."""
    refuse([_finding(Level.OK), _finding(Level.WARNING), _finding(Level.NOT_CHECKED)])


def test_refusals_are_raised_together() -> None:
    """Each with its remedy."""
    with pytest.raises(PreflightRefused, match=r"^preflight refused: s: t; do it\n  s: t$"):
        refuse([_finding(Level.REFUSED, "do it"), _finding(Level.REFUSED)])
