"""Tests of ``migrator.preflight.checks.stuck_levels``."""

from __future__ import annotations

from migrator.delays.routing import DelaysVersion
from migrator.preflight.checks.stuck_levels import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker


def test_empty_levels_are_fine() -> None:
    """One finding."""
    (found,) = check(FakeBroker(), version=DelaysVersion.V2)
    assert found.level is Level.OK


def test_hanging_messages_are_warned_of_by_level() -> None:
    """From 32 on they may block the level for everyone."""
    few, many = check(FakeBroker(hanging={8: 32, 0: 31}), version=DelaysVersion.V2)
    assert (few.level, few.subject) == (Level.WARNING, "nsb.v2.delay-level-00")
    assert "stands still" not in few.text
    assert (many.subject, many.level) == ("nsb.v2.delay-level-08", Level.WARNING)
    assert "stands still for every endpoint" in many.text


def test_levels_that_nobody_saw_are_not_fine() -> None:
    """Without the management API."""
    (found,) = check(FakeBroker(hanging=NO_API), version=DelaysVersion.V2)
    assert found.level is Level.NOT_CHECKED
