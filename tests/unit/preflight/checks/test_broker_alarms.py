"""Tests of ``migrator.preflight.checks.broker_alarms``."""

from __future__ import annotations

from migrator.preflight.checks.broker_alarms import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker


def test_no_alarm_is_fine() -> None:
    """One finding that says so."""
    assert [f.level for f in check(FakeBroker())] == [Level.OK]


def test_each_alarm_is_a_warning() -> None:
    """It goes away, and migrator waits for that."""
    found = list(check(FakeBroker(alarm_texts=["memory alarm on a", "disk alarm on b"])))
    assert [f.level for f in found] == [Level.WARNING] * 2
    assert "disk alarm on b" in found[1].text


def test_without_the_management_api_nobody_looked() -> None:
    """That is not the same as fine."""
    (found,) = check(FakeBroker(alarm_texts=NO_API))
    assert (found.level, found.text) == (Level.NOT_CHECKED, NO_API.reason)
