"""Tests of ``migrator.preflight.checks.suffix_collisions``."""

from __future__ import annotations

from migrator.delays.routing import DelaysVersion
from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.suffix_collisions import check
from migrator.preflight.findings import Finding, Level
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker, levels, preview


def found(
    *destinations: str,
    bound: frozenset[QueueName] | NotChecked = frozenset(),
    is_accepted: bool = False,
) -> list[Finding]:
    """Return what the check finds about *destinations*."""
    rows = [preview(destinations=dict.fromkeys(destinations, 1))]
    broker = FakeBroker(bound=bound)
    return list(check(broker, rows, version=DelaysVersion.V2, is_accepted=is_accepted))


def test_distinct_names_are_fine() -> None:
    """One finding."""
    assert levels(found("Sales", "Billing")) == [Level.OK]


def test_a_message_that_would_reach_a_second_destination_is_refused() -> None:
    """The finding is about the one whose messages are doubled."""
    (finding,) = found("Sales", "My.Sales")
    assert (finding.level, finding.subject) == (Level.REFUSED, "My.Sales")
    assert finding.text == "messages for it also reach Sales"


def test_names_that_others_have_bound_count_too() -> None:
    """They catch our messages all the same."""
    (finding,) = found("My.Sales", bound=frozenset({QueueName("Sales")}))
    assert finding.level is Level.REFUSED


def test_collisions_of_others_are_none_of_ours() -> None:
    """We send nothing there."""
    names = frozenset({QueueName("A.B"), QueueName("B"), QueueName("X.Sales")})
    assert levels(found("Sales", bound=names)) == [Level.OK]


def test_an_accepted_collision_is_a_warning() -> None:
    """The operator knows."""
    (finding,) = found("Sales", "My.Sales", is_accepted=True)
    assert finding.level is Level.WARNING


def test_without_the_management_api_only_known_names_are_compared() -> None:
    """And that is said."""
    assert levels(found("Sales", "My.Sales", bound=NO_API)) == [Level.NOT_CHECKED, Level.REFUSED]
    assert levels(found("Sales", bound=NO_API)) == [Level.NOT_CHECKED, Level.OK]


def test_without_rows_nobody_knows_the_destinations() -> None:
    """That is not the same as fine."""
    (finding,) = check(FakeBroker(), None, version=DelaysVersion.V2, is_accepted=False)
    assert finding.level is Level.NOT_CHECKED
