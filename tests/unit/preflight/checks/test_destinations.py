"""Tests of ``migrator.preflight.checks.destinations``."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.destinations import check
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import QueueProbe
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker, levels, preview

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
    [(True, Level.OK, "run binds it"), (False, Level.WARNING, "rows stay in the store")],
)
def test_unbound_destinations_are_bound_unless_that_is_forbidden(
    may_bind: bool, expected: Level, text: str
) -> None:
    """Then their rows wait in the store."""
    broker = FakeBroker(probes={"Sales": PROBE, "Billing": PROBE})
    for finding in found(broker, may_bind=may_bind):
        assert finding.level is expected
        assert text in finding.text


def test_rows_for_an_unknown_destination_wait() -> None:
    """Not refused as long as others of the endpoint exist: nothing is lost, and they go on."""
    rows = [preview(destinations={"Sales": 1, "Billing": 2})]
    broker = FakeBroker(probes={"Sales": PROBE}, bound=frozenset({QueueName("Sales")}))
    billing, _ = check(broker, rows, version=DelaysVersion.V2, may_bind=True)
    assert billing.level is Level.WARNING
    assert billing.text == "it has no queue: 2 rows stay in the store until it has"


def test_an_endpoint_without_any_destination_is_in_the_wrong_virtual_host() -> None:
    """Refused, naming it; unless an earlier run saw what is missing now beside what was there."""
    broker = FakeBroker(probes={"Billing": PROBE}, bound=frozenset({QueueName("Billing")}))
    refused, *_ = check(broker, ROWS, version=DelaysVersion.V2, may_bind=True, vhost="shop")
    assert (refused.level, refused.subject) == (Level.REFUSED, "Sales")
    assert refused.text == "virtual host 'shop' has a queue for none of its 1 destinations: Sales"
    assert "broker.url" in refused.remedy
    known = check(broker, ROWS, version=DelaysVersion.V2, may_bind=True, held={QueueName("Sales")})
    assert Level.REFUSED not in levels(list(known))
    empty = check(broker, [preview(destinations={})], version=DelaysVersion.V2, may_bind=True)
    assert not list(empty)


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
