"""Tests of ``migrator.preflight.checks.endpoints``."""

from __future__ import annotations

from migrator.preflight.checks.endpoints import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import FakeStore, levels


def test_named_endpoints_that_exist_are_fine() -> None:
    """It tells which the store has."""
    (found,) = check(FakeStore(), ["Sales"])
    assert (found.level, found.text) == (Level.OK, "it has timeouts of Sales")


def test_without_names_any_endpoint_is_fine() -> None:
    """All of them are meant."""
    assert levels(list(check(FakeStore(), []))) == [Level.OK]


def test_a_store_without_any_table_is_refused() -> None:
    """It is probably the wrong database or schema."""
    (found,) = check(FakeStore(found=()), [])
    assert found.level is Level.REFUSED
    assert "store.schema" in found.remedy


def test_each_unknown_endpoint_is_refused() -> None:
    """With the names there are."""
    found = list(check(FakeStore(), ["Nobody", "Sales", "Else"]))
    assert levels(found) == [Level.REFUSED, Level.REFUSED]
    assert [f.subject for f in found] == ["Nobody", "Else"]
    assert "it has: Sales" in found[0].text
