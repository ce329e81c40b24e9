"""Destinations on a real broker: bound, or refused with a reason, in either topology."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest

from migrator.delays.destinations import DestinationRules, Destinations, find_unbindable
from migrator.delays.routing import Topology, delays_prefix
from migrator.delays.topology import create_delays
from migrator.errors import AccessRefused, TargetUnavailable
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.connection import EntityAbsent, TlsFiles
from migrator.rabbitmq.entities import Binding
from migrator.rabbitmq.management import ManagementApi, management_settings
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.names import least_grants
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import (
    V2,
    an_attempt,
    connection,
    delayed,
    link_settings,
    opened,
    plain_channel,
    take,
    wait_until,
)

DELIVERY = "nsb.v2.delay-delivery"


@pytest.fixture
def url(vhost: Vhost) -> str:
    """A virtual host with the delivery exchange, which is all that binding needs."""
    with plain_channel(vhost.amqp_url) as channel:
        channel.exchange_declare(DELIVERY, "topic", durable=True)
    return vhost.amqp_url


@pytest.fixture
def management(vhost: Vhost) -> Iterator[ManagementApi]:
    """The management API of the test's node."""
    address = connection(vhost.amqp_url).address
    with ManagementApi(
        management_settings(address, vhost.node.management_url, TlsFiles())
    ) as found:
        yield found


def _conventional(channel: Any, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_bind(name, name, "")


def _destinations(url: str, topology: Topology = Topology.AUTO, **rules: Any) -> Destinations:
    find_bindings = rules.pop("find_bindings", None)
    given = DestinationRules(version=V2, topology=topology, **rules)
    return Destinations(connection(url), given, find_bindings=find_bindings)


def _reasons(destinations: Destinations, *names: str) -> dict[str, Reason]:
    found = destinations.unreachable([QueueName(name) for name in names])
    return {name: unreachable.reason for name, unreachable in found.items()}


def _bindings(vhost: Vhost) -> set[tuple[str, str, str]]:
    path = f"exchanges/{quote(vhost.name, safe='')}/{DELIVERY}/bindings/source"
    return {
        (row["destination_type"], row["destination"], row["routing_key"])
        for row in vhost.node.api("GET", path)
    }


UNKNOWN, UNBOUND = Reason.DESTINATION_UNKNOWN, Reason.DESTINATION_UNBOUND


@pytest.mark.parametrize(
    ("topology", "reasons"),
    [
        (Topology.AUTO, {"bare-exchange": UNBOUND, "nothing": UNKNOWN}),
        (
            Topology.CONVENTIONAL,
            {
                "bare-exchange": UNBOUND,
                "nothing": UNKNOWN,
                "Sales.Orders": UNBOUND,
                "Bürø ☃": UNBOUND,
            },
        ),
        (Topology.DIRECT, {"bare-exchange": UNKNOWN, "nothing": UNKNOWN}),
    ],
)
def test_each_topology_binds_what_it_can_reach(
    vhost: Vhost, url: str, topology: Topology, reasons: dict[str, Reason]
) -> None:
    """Conventional binds exchanges, direct binds queues, auto what there is."""
    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
        channel.queue_declare("Sales.Orders", durable=True)
        channel.queue_declare("Bürø ☃", durable=True)
        channel.exchange_declare("bare-exchange", "fanout", durable=True)
    names = ["Billing", "Sales.Orders", "Bürø ☃", "bare-exchange", "nothing"]
    assert _reasons(_destinations(url, topology), *names) == reasons
    to_exchange = topology is not Topology.DIRECT
    expected = {("exchange" if to_exchange else "queue", "Billing", "#.Billing")}
    if topology is not Topology.CONVENTIONAL:
        expected |= {("queue", n, f"#.{n}") for n in ("Sales.Orders", "Bürø ☃")}
    assert _bindings(vhost) == expected


def test_bound_destinations_are_reached(url: str) -> None:
    """A message comes out of the delays at both kinds of destination, once, also a dotted one."""
    create_delays(connection(url), V2)
    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
        channel.queue_declare("Bürø.☃", durable=True)
    assert not _reasons(_destinations(url), "Billing", "Bürø.☃")
    settled = PublishResult()
    with opened(link_settings(url)) as link:
        messages = [
            delayed(1, row, destination=name) for row, name in enumerate(("Billing", "Bürø.☃"))
        ]
        link.publish(an_attempt(), messages, settled)
    assert settled.confirmed == {0, 1}
    assert len(take(url, "Billing", 1)) == 1
    assert len(take(url, "Bürø.☃", 1)) == 1


def test_binding_nothing_changes_nothing(vhost: Vhost, url: str, management: ManagementApi) -> None:
    """Without the order to bind, a known missing binding is refused; an unknown one is not."""
    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
        channel.queue_declare("Sales", durable=True)
        channel.queue_bind("Sales", DELIVERY, "#.Sales")
    before = _bindings(vhost)
    names = ("Billing", "Sales", "nothing")
    assert _reasons(_destinations(url, bind=False), *names) == {"nothing": UNKNOWN}
    informed = _destinations(url, bind=False, find_bindings=management.bindings_from)
    assert _reasons(informed, *names) == {"Billing": UNBOUND, "nothing": UNKNOWN}
    assert _bindings(vhost) == before


def test_an_exchange_that_leads_nowhere_is_refused(url: str, management: ManagementApi) -> None:
    """When the API tells that the endpoint's exchange does not lead to its queue, say so."""
    with plain_channel(url) as channel:
        channel.queue_declare("Billing", durable=True)
        channel.exchange_declare("Billing", "fanout", durable=True)
    informed = _destinations(url, find_bindings=management.bindings_from)
    assert _reasons(informed, "Billing") == {"Billing": UNBOUND}


def test_a_silent_management_api_holds_up_only_who_does_not_bind(url: str) -> None:
    """Without the API destinations are bound all the same; who must not bind has to know."""

    def silent(_exchange: str) -> tuple[Binding, ...]:
        raise TargetUnavailable("nobody answers")

    with plain_channel(url) as channel:
        _conventional(channel, "Billing")
    with pytest.raises(TargetUnavailable):
        _reasons(_destinations(url, bind=False, find_bindings=silent), "Billing")
    assert not _reasons(_destinations(url, find_bindings=silent), "Billing")


def test_a_right_that_we_miss_is_no_fault_of_the_destination(vhost: Vhost, url: str) -> None:
    """Looking beforehand tells it, binding and removing nothing; binding ends with an error."""
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
    assert not _reasons(_destinations(limited), "Sales")
    assert not find_unbindable(connection(limited), V2, [QueueName("Sales")])
    assert _bindings(vhost) == {("queue", "Sales", "#.Sales")}
    with pytest.raises(AccessRefused, match=r"'Secret'.*migrator broker grants"):
        _reasons(_destinations(limited), "Secret", "Sales")


def test_an_exclusive_queue_is_refused(url: str) -> None:
    """A queue that belongs to one connection cannot be a destination of ours."""
    client = pika.BlockingConnection(pika.URLParameters(url))
    client.channel().queue_declare("callback", exclusive=True)
    try:
        assert _reasons(_destinations(url), "callback") == {"callback": UNBOUND}
    finally:
        client.close()


def test_answers_are_remembered_for_a_while(vhost: Vhost, url: str) -> None:
    """Known names are not asked for again until the time is over or somebody says forget."""
    now_s = 0.0
    destinations = Destinations(
        connection(url),
        DestinationRules(version=V2, remembered_s=60, refusal_remembered_s=3),
        monotonic_s=lambda: now_s,
    )
    assert _reasons(destinations, "Sales", "Sales") == {"Sales": UNKNOWN}
    with plain_channel(url) as channel:
        channel.queue_declare("Sales", durable=True)
        channel.queue_declare("Billing", durable=True)
    now_s = 2.0
    assert _reasons(destinations, "Sales", "Billing") == {"Sales": UNKNOWN}
    now_s = 4.0  # a refusal is asked again soon: an operator may have mended it
    assert _reasons(destinations, "Sales") == {}
    now_s = 61.0
    with plain_channel(url) as channel:
        channel.queue_delete("Billing")
    assert _reasons(destinations, "Billing") == {}
    destinations.forget([QueueName("Billing")])
    assert _reasons(destinations, "Billing") == {"Billing": UNKNOWN}
    assert _reasons(destinations) == {}


def test_without_delays_nothing_is_said_about_destinations(vhost: Vhost) -> None:
    """An absent delivery exchange is the operator's finding, not each destination's."""
    with pytest.raises(EntityAbsent, match="migrator delays create"):
        _reasons(_destinations(vhost.amqp_url), "Sales")


def test_an_unreachable_broker_is_no_answer() -> None:
    """When nobody answers, no destination is called unknown."""
    with pytest.raises(TargetUnavailable):
        _reasons(_destinations("amqp://127.0.0.1:9"), "Sales")


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
        link.publish(an_attempt(1), [delayed(0, 0), delayed(64, 1)], settled)
        staging = link.staging()
        staging.publish(an_attempt(2), [delayed(1, 0)])
        assert staging.wait(lambda: an_attempt(2) in staging.held(), 30)
        assert staging.wait(lambda: staging.held()[an_attempt(2)].has_receipt, 30)
        staging.commit(an_attempt(2), frozenset({0}))
        assert staging.wait(lambda: an_attempt(2) in staging.receipts(), 30)
    assert settled.confirmed == {0, 1}
    with plain_channel(limited) as channel:  # one message waits: the entry exchange was used
        assert channel.queue_declare("nsb.v2.delay-level-06", passive=True).method.message_count
    wait_until(lambda: len(take(vhost.amqp_url, "Sales.Orders", 2, timeout_s=3)) == 2)
