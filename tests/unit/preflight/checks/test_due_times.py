"""Tests of ``migrator.preflight.checks.due_times``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.preflight.checks.due_times import check
from migrator.preflight.findings import Level
from migrator.stores.due_times import DueTimeRules
from migrator.stores.ports import DueTime
from tests.unit.preflight.checks.fakes import NOW, SALES, FakeClock, FakeStore


@pytest.mark.parametrize(
    ("hours", "expected", "text"),
    [
        ([], Level.OK, "no row tells of its zone"),
        ([0] * 5, Level.OK, "5 sampled rows are due when"),
        ([1] * 5, Level.REFUSED, "of 5 sampled rows, 5 have a due time +1 h"),
        ([0] * 9 + [1], Level.WARNING, "of 10 sampled rows, 1 have"),
    ],
)
def test_a_sample_of_each_endpoint_is_judged(hours: list[int], expected: Level, text: str) -> None:
    """Refused, told, or fine, under the place of its rows."""
    moved = [NOW + timedelta(hours=each) for each in hours]
    store = FakeStore(due=[DueTime(stored=at, due_at=at, expires_at=NOW) for at in moved])
    (found,) = check(store, [SALES], FakeClock(), DueTimeRules())
    assert (found.level, found.subject) == (expected, SALES.source)
    assert text in found.text
    assert bool(found.remedy) is (expected is Level.REFUSED)
