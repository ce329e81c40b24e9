"""Tests of ``migrator.preflight.checks.clock_skew``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.preflight.checks.clock_skew import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import NOW, FakeClock


@pytest.mark.parametrize(
    ("skew_s", "expected", "text"),
    [
        (0.0, Level.OK, "0.0 s behind"),
        (1.9, Level.OK, "1.9 s ahead of"),
        (-1.9, Level.OK, "1.9 s behind"),
        (2.0, Level.WARNING, "2.0 s ahead of"),
        (-60.0, Level.WARNING, "60.0 s behind"),
        (61.0, Level.REFUSED, "61.0 s ahead of"),
        (-7200.0, Level.REFUSED, "7200.0 s behind"),
    ],
)
def test_two_seconds_are_told_and_a_minute_is_refused(
    skew_s: float, expected: Level, text: str
) -> None:
    """In either direction."""
    (found,) = check(FakeClock(NOW + timedelta(seconds=skew_s)), lambda: NOW)
    assert found.level is expected
    assert text in found.text
