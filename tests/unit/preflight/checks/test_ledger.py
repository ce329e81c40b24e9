"""Tests of ``migrator.preflight.checks.ledger``."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import (
    DatabaseFailedOver,
    LedgerCloned,
    LedgerMissing,
    NotChecked,
    PreflightRefused,
)
from migrator.ledger.report import OpenCommit
from migrator.nservicebus.timeouts import BatchId, Lane
from migrator.preflight.checks.ledger import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import FakeLedger


def test_a_fit_ledger_is_fine() -> None:
    """With its id."""
    (found,) = check(FakeLedger())
    assert (found.level, found.text) == (Level.OK, "ledger a1, version 0001")


def test_a_database_that_forgets_is_warned_of() -> None:
    """It keeps nobody from migrating, and breaks the promise when its machine fails."""
    fine, found = check(FakeLedger(forgetting="some setting is 2"))
    assert fine.level is Level.OK
    assert found.level is Level.WARNING
    assert found.text.startswith("some setting is 2")


def test_a_standby_that_may_be_behind_is_warned_of() -> None:
    """Where the server hides it, that is said."""
    _, found = check(FakeLedger(behind=["walreceiver"]))
    assert found.level is Level.WARNING
    assert found.text.startswith("walreceiver asynchronous")
    _, found = check(FakeLedger(behind=NotChecked(reason="hidden")))
    assert (found.level, found.text) == (Level.NOT_CHECKED, "hidden")


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (LedgerMissing("no ledger"), "migrator db upgrade"),
        (LedgerCloned("of another database"), "migrator db adopt"),
        (DatabaseFailedOver("another server"), "migrator db adopt --after-failover"),
    ],
)
def test_ledgers_that_do_not_fit_are_refused(failure: PreflightRefused, remedy: str) -> None:
    """Each with its own way out."""
    (found,) = check(FakeLedger(failure))
    assert (found.level, found.text) == (Level.REFUSED, str(failure))
    assert found.remedy.startswith(remedy)


def test_batches_that_only_other_delays_can_settle_are_refused() -> None:
    """Whoever moves nothing into any delays does not mind."""
    commits = [OpenCommit(batch=BatchId(7), lane=Lane(0), delays="v2")]
    _, found = check(FakeLedger(), version=DelaysVersion.V1, other_commits=commits)
    assert (found.level, found.subject) == (Level.REFUSED, "batches in committing: 7")
    assert "migrator run --delays v2 --once" in found.remedy
    (fine,) = check(FakeLedger(), version=None, other_commits=commits)
    assert fine.level is Level.OK
