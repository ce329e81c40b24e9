"""Tests of ``migrator.preflight.checks.ways_out``."""

from __future__ import annotations

from datetime import timedelta

from migrator.delays.routing import DelaysVersion
from migrator.errors import LedgerMissing
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.ways_out import check
from migrator.preflight.findings import Finding, Level
from tests.unit.preflight.checks.fakes import NO_API, NOW, FakeBroker, FakeHandOvers, no_way, way

V2 = DelaysVersion.V2
BOUND = frozenset({QueueName("Sales")})


def found(broker: FakeBroker, hand_overs: FakeHandOvers | None) -> list[Finding]:
    """Return what is found."""
    return list(check(broker, hand_overs, version=V2, now=NOW))


def test_a_handed_over_destination_that_is_gone_is_refused() -> None:
    """With how many wait for it, until when, and what mends it."""
    hand_overs = FakeHandOvers(["Gone", "Sales"])
    (finding,) = found(FakeBroker(bound=BOUND, closed=[no_way("Gone")]), hand_overs)
    assert (finding.level, finding.subject) == (Level.REFUSED, "Gone")
    assert "10 timeouts" in finding.text
    assert "2026-03-10 09:30:00" in finding.text
    assert finding.remedy == no_way("Gone").remedy
    assert hand_overs.asked == [(NOW - timedelta(hours=1), None)]


def test_a_bound_name_that_leads_nowhere_is_a_warning() -> None:
    """Nobody knows whether anything waits for it."""
    closed = way("Sales", has_queue=False, leads_on=False)
    (finding,) = found(FakeBroker(bound=BOUND, closed=[closed]), FakeHandOvers())
    assert (finding.level, finding.subject) == (Level.WARNING, "Sales")
    assert finding.remedy == closed.remedy


def test_all_can_be_reached() -> None:
    """Bound ones and those of the ledger."""
    (finding,) = found(FakeBroker(bound=BOUND), FakeHandOvers(["Sales", "Billing"]))
    assert (finding.level, finding.text[:2]) == (Level.OK, "2 ")


def test_without_a_ledger_only_bound_names_are_looked_at() -> None:
    """That is said; a ledger that cannot be read is no reason to stop."""
    for hand_overs in (None, FakeHandOvers(failure=LedgerMissing("the ledger is empty"))):
        levels = [finding.level for finding in found(FakeBroker(bound=BOUND), hand_overs)]
        assert levels == [Level.NOT_CHECKED, Level.OK]


def test_bindings_that_nobody_tells_are_not_checked() -> None:
    """The ledger is not even asked."""
    (finding,) = found(FakeBroker(bound=NO_API), FakeHandOvers(["Gone"]))
    assert finding.level is Level.NOT_CHECKED


def test_an_api_that_goes_away_between_two_questions_is_not_checked() -> None:
    """Whatever it said before."""

    class Failing(FakeBroker):
        def ways(self, version, names):  # type: ignore[no-untyped-def]  # as its base
            return NO_API

    (finding,) = found(Failing(bound=BOUND), FakeHandOvers())
    assert finding.level is Level.NOT_CHECKED
