"""Tests of ``migrator.engine.checks.destinations``."""

from __future__ import annotations

import pytest

from migrator.domain.findings import Finding, Level
from migrator.domain.routing import DelaysVersion
from migrator.domain.timeouts import QueueName
from migrator.engine.checks.destinations import check
from migrator.ports import QueueProbe
from tests.unit.engine.checks.fakes import NO_API, FakeBroker, levels, preview

PROBE = QueueProbe(messages=0, consumers=1)
ROWS = [preview(destinations={"Sales": 5}), preview(destinations={"Sales": 1, "Billing": 2})]


def found(broker: FakeBroker, *, may_bind: bool = True) -> list[Finding]:
    """Return what the check finds about two destinations."""
    return list(check(broker, ROWS, version=DelaysVersion.V2, may_bind=may_bind))


def test_bound_destinations_are_fine() -> None:
    """Each is a finding, with the rows of all endpoints."""
    names = frozenset({QueueName("Sales"), QueueName("Billing")})
    broker = FakeBroker(probes={"Sales": PROBE, "Billing": PROBE}, bound=names)
    billing, sales = found(broker)
    assert (billing.level, sales.level) == (Level.OK, Level.OK)
    assert sales.text == "6 rows; bound to the delays"


@pytest.mark.parametrize(
    ("may_bind", "expected", "text"),
    [(True, Level.OK, "run binds it"), (False, Level.WARNING, "destination-unbound")],
)
def test_unbound_destinations_are_bound_unless_that_is_forbidden(
    may_bind: bool, expected: Level, text: str
) -> None:
    """Then their rows would be quarantined."""
    broker = FakeBroker(probes={"Sales": PROBE, "Billing": PROBE})
    for finding in found(broker, may_bind=may_bind):
        assert finding.level is expected
        assert text in finding.text


def test_unknown_destinations_would_be_quarantined() -> None:
    """Not refused: nothing is lost, and they can be tried again."""
    billing, _ = found(FakeBroker(probes={"Sales": PROBE}, bound=frozenset({QueueName("Sales")})))
    assert billing.level is Level.WARNING
    assert "2 rows would be quarantined (destination-unknown)" in billing.text


def test_no_known_destination_at_all_looks_like_the_wrong_broker() -> None:
    """Or the wrong virtual host."""
    first, *_ = found(FakeBroker())
    assert (first.level, first.subject) == (Level.WARNING, "destinations")
    assert "virtual host" in first.remedy


def test_bindings_that_nobody_saw_are_not_fine() -> None:
    """The queue exists; more is not known without the management API."""
    broker = FakeBroker(probes={"Sales": PROBE, "Billing": PROBE}, bound=NO_API)
    assert levels(found(broker)) == [Level.NOT_CHECKED] * 2


def test_without_rows_nobody_knows_the_destinations() -> None:
    """That is not the same as fine."""
    (finding,) = check(FakeBroker(), None, version=DelaysVersion.V2, may_bind=True)
    assert finding.level is Level.NOT_CHECKED


def test_rows_that_are_sent_when_due_need_no_binding() -> None:
    """They never enter the delays, so nobody asks what is bound."""
    broker = FakeBroker(probes={"Sales": PROBE}, bound=NO_API)
    rows = [preview(destinations={"Sales": 4})]
    (finding,) = check(broker, (), version=DelaysVersion.V2, may_bind=False, dispatched=rows)
    assert (finding.level, finding.text) == (Level.OK, "4 rows; sent to it when due")


def test_rows_that_cannot_be_sent_wait() -> None:
    """They are not quarantined; the rows of a destination that is there go on."""
    broker = FakeBroker(probes={"Sales": PROBE})
    rows = [preview(destinations={"Sales": 4, "Gone": 3})]
    gone, sales = check(broker, (), version=DelaysVersion.V2, may_bind=True, dispatched=rows)
    assert (gone.subject, gone.level, sales.level) == ("Gone", Level.WARNING, Level.OK)
    assert gone.text == "it has no queue: 3 rows would wait until it has"
