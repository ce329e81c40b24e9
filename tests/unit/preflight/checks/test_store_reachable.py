"""Tests of ``migrator.preflight.checks.store_reachable``."""

from __future__ import annotations

import pytest

from migrator.errors import StoreError, StoreUnavailable
from migrator.preflight.checks.store_reachable import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import FakeStore


def test_a_store_that_answers_is_fine() -> None:
    """Whatever it has."""
    (found,) = check(FakeStore(found=()))
    assert (found.level, found.text) == (Level.OK, "memory; it answers")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (StoreUnavailable("timed out"), "cannot be reached: timed out"),
        (StoreError("wrong password"), "refuses: wrong password"),
    ],
)
def test_network_and_refusal_are_different_findings(failure: StoreError, text: str) -> None:
    """A person does different things about them."""
    (found,) = check(FakeStore(failure=failure))
    assert found.level is Level.REFUSED
    assert text in found.text
