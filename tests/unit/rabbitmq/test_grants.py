"""The patterns allow what is needed and nothing beside it."""

from __future__ import annotations

import re

from migrator.delays.routing import DelaysVersion, delays_prefix
from migrator.rabbitmq.names import grants_text, least_grants

V1, V2 = map(delays_prefix, (DelaysVersion.V1, DelaysVersion.V2))


def test_patterns_cover_our_entities_and_the_delays() -> None:
    """Our own names may be configured, the delays only read and written."""
    grants = least_grants(V2, destinations=["Sales.Orders"])
    assert re.match(grants.configure, "migrator.staging.abc.1")
    assert not re.match(grants.configure, "nsb.v2.delay-level-01")
    assert re.match(grants.write, "nsb.v2.delay-level-01")
    assert re.match(grants.write, "Sales.Orders")
    assert not re.match(grants.write, "Sales.OrdersX")
    assert not re.match(grants.write, "SalesXOrders")
    assert re.match(grants.read, "nsb.v2.delay-delivery")
    assert not re.match(grants.read, "Sales.Orders")


def test_the_generations_are_told_apart() -> None:
    """Grants for v1 do not reach v2, and the other way round."""
    assert not re.match(least_grants(V1).read, "nsb.v2.delay-level-01")
    assert not re.match(least_grants(V2).read, "nsb.delay-level-01")


def test_unknown_destinations_need_a_wide_pattern() -> None:
    """Binding whatever turns up needs the right to write to every name, unless nobody binds."""
    assert least_grants(V2).write == ".*"
    assert least_grants(V2, binds_destinations=False).write != ".*"
    assert re.match(least_grants(V2, creates_delays=True).configure, "nsb.v2.delay-level-01")


def test_the_text_is_a_command_a_shell_takes() -> None:
    """Names and patterns are quoted for a shell."""
    text = grants_text(least_grants(V2), user="joe's", vhost="/")
    assert text.splitlines()[-1].startswith("rabbitmqctl set_permissions -p / 'joe'")


def test_a_dispatcher_consumes_satellites_and_writes_to_destinations() -> None:
    """Though nobody is bound; what fails leaves by the default exchange, and nothing else may."""
    names = ("Sales.Timeouts", "Sales.TimeoutsDispatcher")
    grants = least_grants(V2, destinations=["Billing"], binds_destinations=False, satellites=names)
    assert all(re.match(grants.read, name) for name in names)
    assert not re.match(grants.read, "Sales.TimeoutsX")
    assert not re.match(grants.read, "Billing")
    assert re.match(grants.write, "Billing")
    assert re.match(grants.write, "amq.default")
    assert not re.match(grants.write, "Sales.Timeouts")
    assert re.match(grants.configure, "migrator.retry.Sales.Timeouts.10")
    assert not re.match(grants.configure, "Sales.Timeouts")


def test_sending_what_is_nearly_due_needs_no_queue_of_anybody() -> None:
    """Destinations are written to, whoever binds them."""
    grants = least_grants(V2, binds_destinations=False, sends_when_due=True)
    assert grants.write == ".*"
    assert grants.read == least_grants(V2).read
    named = least_grants(V2, destinations=["Billing"], sends_when_due=True)
    assert re.match(named.write, "amq.default")
    assert not re.match(least_grants(V2, destinations=["Billing"]).write, "amq.default")
