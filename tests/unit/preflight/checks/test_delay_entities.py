"""Tests of ``migrator.preflight.checks.delay_entities``."""

from __future__ import annotations

from migrator.delays.routing import DelaysVersion
from migrator.preflight.checks.delay_entities import check
from migrator.preflight.findings import Level
from migrator.preflight.ports import DelayEntities
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker, levels


def test_complete_delays_are_fine() -> None:
    """One finding."""
    assert levels(list(check(FakeBroker(), version=DelaysVersion.V1))) == [Level.OK]


def test_absent_delays_are_refused_with_the_command_that_makes_them() -> None:
    """They are never made unasked."""
    missing = DelayEntities(missing=list("abcde"), different={}, not_checked=())
    (found,) = check(FakeBroker(entities=missing), version=DelaysVersion.V2)
    assert found.level is Level.REFUSED
    assert found.text == "missing: a, b, c and 2 more"
    assert found.remedy == "migrator delays create --delays v2"


def test_different_and_unknown_entities_are_findings_of_their_own() -> None:
    """Nothing is said to be fine beside them."""
    unknown = [NO_API] * 3
    report = DelayEntities(missing=["x"], different={"q": "x-overflow"}, not_checked=unknown)
    found = list(check(FakeBroker(entities=report), version=DelaysVersion.V2))
    assert levels(found) == [Level.REFUSED, Level.REFUSED, Level.NOT_CHECKED]
    assert (found[0].text, found[1].subject) == ("missing: x", "q")
    assert found[2].text == f"{NO_API.reason}; and 2 more"
