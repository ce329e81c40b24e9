"""Tests of ``migrator.preflight.checks.legacy_table``."""

from __future__ import annotations

from dataclasses import replace

from migrator.preflight.checks.legacy_table import check
from migrator.preflight.findings import Level
from migrator.stores.endpoints import Quarantinable
from migrator.stores.ports import StoreRemark
from tests.unit.preflight.checks.fakes import FakeStore, levels, preview


def test_a_table_as_the_vendor_makes_it_is_fine() -> None:
    """One finding."""
    assert levels(list(check(FakeStore(), None))) == [Level.OK]


def test_what_the_store_remarks_is_a_warning() -> None:
    """It costs time or leaves rows behind, and nobody is kept from migrating."""
    remark = StoreRemark(subject="public.x", text="no index", remedy="make one")
    (found,) = check(FakeStore(remarked=[remark]), [])
    assert (found.level, found.subject) == (Level.WARNING, "public.x")
    assert (found.text, found.remedy) == ("no index", "make one")


def test_what_nobody_can_claim_is_a_warning() -> None:
    """With the reason and an id; it stays, and is never passed over in silence."""
    flawed = {"its due time cannot be read": Quarantinable(count=2, examples=["x-1"])}
    _, found = check(FakeStore(), [replace(preview(), unclaimable=flawed)])
    assert (found.level, found.subject) == (Level.WARNING, "Sales")
    assert found.text == "2 timeouts are never claimed, its due time cannot be read; such as x-1"
