"""Tests of ``migrator.engine.checks.ledger``."""

from __future__ import annotations

import pytest

from migrator.domain.findings import Level
from migrator.engine.checks.ledger import check
from migrator.errors import LedgerCloned, LedgerMissing, PreflightRefused
from tests.unit.engine.checks.fakes import FakeLedger


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


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (LedgerMissing("no ledger"), "migrator db upgrade"),
        (LedgerCloned("of another database"), "migrator db adopt"),
    ],
)
def test_missing_and_cloned_ledgers_are_refused(failure: PreflightRefused, remedy: str) -> None:
    """Each with its own way out."""
    (found,) = check(FakeLedger(failure))
    assert (found.level, found.text) == (Level.REFUSED, str(failure))
    assert found.remedy.startswith(remedy)
