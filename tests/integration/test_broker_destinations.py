"""Destinations on a real broker: bound, or refused with a reason, in either topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from migrator.delays.destinations import Destinations, find_unbindable
from migrator.delays.routing import Topology, Unreachable, delays_prefix
from migrator.delays.topology import create_delays
from migrator.dispatcher.link import RabbitRoutes
from migrator.errors import AccessRefused, TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.connection import EntityAbsent
from migrator.rabbitmq.entities import Binding
from migrator.rabbitmq.management import ManagementApi
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.names import least_grants
from tests.conftest import Vhost
from tests.support.staging import await_staging
from tests.unit.rabbitmq.material import (
    V2,
    an_attempt,
    api_of,
    connection,
    delayed,
    link_settings,
    opened,
    plain_channel,
    take,
)

DELIVERY = "nsb.v2.delay-delivery"
UNKNOWN, UNBOUND = Reason.DESTINATION_UNKNOWN, Reason.DESTINATION_UNBOUND
Told = tuple[str, str] | Reason
"""Exchange and routing key of a route, or why there is none."""


@pytest.fixture
def url(vhost: Vhost) -> str:
    """A virtual host with the delivery exchange, which is all that binding needs."""
    with plain_channel(vhost.amqp_url) as channel:
        channel.exchange_declare(DELIVERY, "topic", durable=True)
    return vhost.amqp_url


@pytest.fixture
def management(vhost: Vhost) -> Iterator[ManagementApi]:
    """The management API of the test's node."""
    with api_of(vhost) as found:
        yield found


def _conventional(channel: Any, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_bind(name, name, "")


def _destinations(url: str, topology: Topology = Topology.AUTO, **rules: Any) -> Destinations:
    return Destinations(connection(url), V2, topology=topology, **rules)


def _reasons(destinations: Destinations, *names: str) -> dict[str, Reason]:
    found = destinations.unreachable([QueueName(name) for name in names])
    return {name: unreachable.reason for name, unreachable in found.items()}


def _told(routes: RabbitRoutes, *names: str) -> dict[str, Told]:
    found = routes.answers([QueueName(name) for name in names])
    return {
        name: answer.reason
        if isinstance(answer, Unreachable)
        else (answer.exchange, answer.routing_key)
        for name, answer in found.items()
    }


def _bindings(vhost: Vhost) -> set[tuple[str, str, str]]:
    path = f"exchanges/{quote(vhost.name, safe='')}/{DELIVERY}/bindings/source"
    return {
        (row["destination_type"], row["destination"], row["routing_key"])
        for row in vhost.node.api("GET", path)
    }


@pytest.mark.parametrize(
    ("topology", "found"),
    [
        (Topology.AUTO, [("Billing", ""), ("", "Bürø ☃"), UNBOUND]),
        (Topology.CONVENTIONAL, [("Billing", ""), UNBOUND, UNBOUND]),
        (Topology.DIRECT, [("", "Billing"), ("", "Bürø ☃"), UNKNOWN]),
    ],
)
def test_each_topology_has_its_routes_and_binds_what_it_can_reach(
    vhost: Vhost, url: str, topology: Topology, found: list[Told]
) -> None:
    """Conventional goes by exchanges, direct by queues, auto by what there is.

    A route binds nothing. What no queue can be called is unknown, as is a name with a line end,
    which the broker drops when it is asked about a queue, but not when something is published.
    """
    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
        channel.queue_declare("Bürø ☃", durable=True)
        channel.exchange_declare("bare", "fanout", durable=True)
    impossible = ("", "nothing", "Billing\n", "\r\nBilling", "x" * 256, "☃" * 86, "half \ud800")
    told = dict(zip(("Billing", "Bürø ☃", "bare"), found, strict=True))
    told |= dict.fromkeys(impossible, UNKNOWN)
    assert _told(RabbitRoutes(connection(url), topology=topology), *told) == told
    assert not _bindings(vhost)
    reasons = {name: each for name, each in told.items() if isinstance(each, Reason)}
    assert _reasons(_destinations(url, topology), *told) == reasons
    assert _bindings(vhost) == {
        ("exchange" if each[0] else "queue", name, f"#.{name}")
        for name, each in told.items()
        if not isinstance(each, Reason)
    }


def test_binding_nothing_changes_nothing(vhost: Vhost, url: str, management: ManagementApi) -> None:
    """Without the order to bind, a known missing binding is refused; an unknown one is not."""
    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
        channel.queue_declare("Sales", durable=True)
        channel.queue_bind("Sales", DELIVERY, "#.Sales")
        channel.queue_declare("Blind", durable=True)
        channel.exchange_declare("Blind", "fanout", durable=True)
    before = _bindings(vhost)
    names = ("Billing", "Sales", "nothing")
    assert _reasons(_destinations(url, bind=False), *names) == {"nothing": UNKNOWN}
    informed = _destinations(url, bind=False, find_bindings=management.bindings_from)
    assert _reasons(informed, *names) == {"Billing": UNBOUND, "nothing": UNKNOWN}
    binding = _destinations(url, find_bindings=management.bindings_from)
    assert _reasons(binding, "Blind") == {"Blind": UNBOUND}  # its exchange leads nowhere
    assert _bindings(vhost) == before


def test_what_nobody_can_tell_is_no_fault_of_the_destination(url: str) -> None:
    """Without the API destinations are bound all the same; who must not bind has to know.

    An absent delivery exchange is the operator's finding. A queue of one connection is refused.
    """

    def silent(_exchange: str) -> tuple[Binding, ...]:
        raise TargetUnavailable("nobody answers")

    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
        with pytest.raises(TargetUnavailable):
            _reasons(_destinations(url, bind=False, find_bindings=silent), "Billing")
        assert not _reasons(_destinations(url, find_bindings=silent), "Billing")
        channel.queue_declare("callback", exclusive=True)
        assert _reasons(_destinations(url), "callback") == {"callback": UNBOUND}
        channel.exchange_delete(DELIVERY)
    with pytest.raises(EntityAbsent, match="migrator delays create"):
        _reasons(_destinations(url), "Sales")


def test_a_permission_that_is_missing_parks_one_destination(vhost: Vhost, url: str) -> None:
    """Looking beforehand shows it, binding and removing nothing; the other one is bound."""
    with plain_channel(url) as channel:
        channel.queue_declare("Sales", durable=True)
        channel.queue_declare("Secret", durable=True)
    vhost.node.add_user("binder", "pw")
    vhost.node.set_permissions(vhost.name, "binder", configure="^$", write="^Sales$", read="^nsb")
    limited = vhost.node.amqp_url(vhost.name, user="binder", password="pw")
    names = [QueueName(name) for name in ("Secret", "Sales", "nowhere", "x" * 300)]
    refused = find_unbindable(connection(limited), V2, names)
    assert refused.keys() == {"Secret", "nowhere"}
    assert "queue 'Secret'" in refused[QueueName("Secret")]
    assert not _bindings(vhost)
    found = _destinations(limited).unreachable([QueueName("Secret"), QueueName("Sales")])
    assert {name: each.reason for name, each in found.items()} == {"Secret": Reason.NO_PERMISSION}
    assert "Secret$ to the pattern for write" in found[QueueName("Secret")].detail
    assert not find_unbindable(connection(limited), V2, [QueueName("Sales")])
    assert _bindings(vhost) == {("queue", "Sales", "#.Sales")}
    vhost.node.set_permissions(vhost.name, "binder", configure="^$", write=".*", read="^$")
    with pytest.raises(AccessRefused, match=DELIVERY):
        _reasons(_destinations(limited), "Sales")


def test_answers_are_remembered_for_a_while(vhost: Vhost, url: str) -> None:
    """Known names are not asked for again until the time is over or somebody says forget."""
    now_s = 0.0
    destinations = _destinations(url, monotonic_s=lambda: now_s)
    routes = RabbitRoutes(connection(url), monotonic_s=lambda: now_s)

    def unknown(*names: str) -> set[str]:
        found = _reasons(destinations, *names)
        told = _told(routes, *names)
        assert found == {name: each for name, each in told.items() if isinstance(each, Reason)}
        return {*found}

    assert unknown("Sales", "Sales") == {"Sales"}
    with plain_channel(url) as channel:
        channel.queue_declare("Sales", durable=True)
        channel.queue_declare("Billing", durable=True)
    now_s = 2.0
    assert unknown("Sales", "Billing") == {"Sales"}
    now_s = 4.0  # a refusal is asked again soon: an operator may have mended it
    assert unknown("Sales") == set()
    with plain_channel(url) as channel:
        channel.queue_delete("Billing")
        channel.queue_delete("Sales")
    now_s = 61.0
    assert unknown("Billing") == set()
    for each in (destinations, routes):
        each.forget([QueueName("Billing"), QueueName("never asked for")])
    assert unknown("Billing", "Sales") == {"Billing"}
    now_s = 65.0
    assert unknown("Sales") == {"Sales"}
    with plain_channel(url) as channel:
        channel.queue_declare("Sales", durable=True)
    for each in (destinations, routes):
        each.forget_refusals()
    assert unknown("Sales") == set()


def test_the_least_permissions_are_enough(vhost: Vhost) -> None:
    """A user with exactly the granted patterns creates, binds, publishes and stages."""
    grants = least_grants(delays_prefix(V2), destinations=["Sales.Orders"], creates_delays=True)
    vhost.node.add_user("least", "pw")
    vhost.node.set_permissions(
        vhost.name, "least", configure=grants.configure, write=grants.write, read=grants.read
    )
    with plain_channel(vhost.amqp_url) as channel:
        _conventional(channel, "Sales.Orders")
    limited = vhost.node.amqp_url(vhost.name, user="least", password="pw")
    create_delays(connection(limited), V2)
    assert not _reasons(_destinations(limited), "Sales.Orders")
    settled = PublishResult()
    with opened(link_settings(limited)) as link:
        link.publish(an_attempt(1), [[delayed(0, 0), delayed(64, 1)]], settled)
        staging = link.staging()
        staging.publish(an_attempt(2), [[delayed(1, 0)]])
        assert await_staging(staging, lambda: an_attempt(2) in staging.unacked())
        assert await_staging(staging, lambda: staging.unacked()[an_attempt(2)].has_receipt)
        staging.commit(an_attempt(2), frozenset({0}))
        assert await_staging(staging, lambda: an_attempt(2) in staging.receipts())
    assert settled.confirmed == {0, 1}
    with plain_channel(limited) as channel:  # one message waits: the entry exchange was used
        assert channel.queue_declare("nsb.v2.delay-level-06", passive=True).method.message_count
    assert len(take(vhost.amqp_url, "Sales.Orders", 2)) == 2
