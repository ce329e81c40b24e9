"""Tests of ``migrator.preflight.checks.rights``."""

from __future__ import annotations

import pytest

from migrator.errors import StoreError, StoreUnavailable
from migrator.preflight.checks.rights import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import SALES, FakeStore


def test_a_trial_claim_proves_the_rights() -> None:
    """Per endpoint."""
    (found,) = check(FakeStore(), [SALES])
    assert (found.level, found.subject) == (Level.OK, SALES.source)


def test_a_missing_right_is_refused_with_the_way_to_grant_it() -> None:
    """The store says which."""
    (found,) = check(FakeStore(claim_failure=StoreError("no DELETE on it")), [SALES])
    assert (found.level, found.text) == (Level.REFUSED, "no DELETE on it")
    assert "migrator db grants" in found.remedy


def test_an_unreachable_store_says_nothing_about_rights() -> None:
    """The runner makes it a finding that was not checked."""
    with pytest.raises(StoreUnavailable):
        list(check(FakeStore(claim_failure=StoreUnavailable("gone")), [SALES]))
