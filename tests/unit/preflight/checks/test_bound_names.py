"""Tests of ``migrator.preflight.checks.bound_names``."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.bound_names import check
from migrator.preflight.findings import Finding, Level
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker


def found(*bound: str, is_accepted: bool = False) -> list[Finding]:
    """Return what is found about bound names."""
    broker = FakeBroker(bound=frozenset(map(QueueName, bound)))
    return list(check(broker, version=DelaysVersion.V2, is_accepted=is_accepted))


@pytest.mark.parametrize(("is_accepted", "level"), [(False, Level.REFUSED), (True, Level.WARNING)])
def test_a_name_that_catches_anothers_messages_is_named(is_accepted: bool, level: Level) -> None:
    """With the binding that does it."""
    (finding,) = found("My.Sales", "Sales", "Resales", is_accepted=is_accepted)
    assert (finding.level, finding.subject) == (level, "My.Sales")
    assert finding.text.endswith("also reach Sales")
    assert "binding #.Sales of exchange nsb.v2.delay-delivery" in finding.remedy


def test_names_without_a_common_end_are_fine() -> None:
    """Also when there are none."""
    assert [finding.level for finding in found("Sales", "Sales.Orders")] == [Level.OK]
    assert [finding.level for finding in found()] == [Level.OK]


def test_names_that_nobody_tells_are_not_checked() -> None:
    """That is not fine."""
    bound: NotChecked = NO_API
    (finding,) = check(FakeBroker(bound=bound), version=DelaysVersion.V2, is_accepted=False)
    assert finding.level is Level.NOT_CHECKED
