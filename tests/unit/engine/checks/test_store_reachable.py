"""Tests of ``migrator.engine.checks.store_reachable``."""

from __future__ import annotations

import pytest

from migrator.domain.findings import Level
from migrator.engine.checks.store_reachable import check
from migrator.errors import StoreError, StoreUnavailable
from tests.unit.engine.checks.fakes import FakeStore, levels


def test_a_store_with_the_endpoints_is_fine() -> None:
    """It tells which it has."""
    (found,) = check(FakeStore(), ["Sales"])
    assert (found.level, found.text) == (Level.OK, "it has timeouts of Sales")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (StoreUnavailable("timed out"), "cannot be reached: timed out"),
        (StoreError("wrong password"), "refuses: wrong password"),
    ],
)
def test_network_and_refusal_are_different_findings(failure: StoreError, text: str) -> None:
    """A person does different things about them."""
    (found,) = check(FakeStore(failure=failure), [])
    assert found.level is Level.REFUSED
    assert text in found.text


def test_a_store_without_any_table_is_refused() -> None:
    """It is probably the wrong database or schema."""
    (found,) = check(FakeStore(found=()), [])
    assert found.level is Level.REFUSED
    assert "store.schema" in found.remedy


def test_each_unknown_endpoint_is_refused() -> None:
    """With the names there are."""
    found = list(check(FakeStore(), ["Nobody", "Sales", "Else"]))
    assert levels(found) == [Level.OK, Level.REFUSED, Level.REFUSED]
    assert (found[1].subject, found[2].subject) == ("Nobody", "Else")
