"""Routes on a real broker: how a message reaches its destination at once, and nothing is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from migrator.delays.routing import Topology, Unreachable
from migrator.dispatcher.link import open_satellite_link
from migrator.dispatcher.routes import RabbitRoutes, Route
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.connection import TlsFiles
from migrator.rabbitmq.management import ManagementApi, management_settings
from migrator.rabbitmq.messages import PublishResult
from migrator.rabbitmq.publisher import WindowLimits
from tests.conftest import Vhost
from tests.unit.rabbitmq.material import connection, message, plain_channel

UNKNOWN, UNBOUND = Reason.DESTINATION_UNKNOWN, Reason.DESTINATION_UNBOUND
Told = tuple[str, str] | Reason


@pytest.fixture
def url(vhost: Vhost) -> str:
    """A virtual host with a destination of either kind, and an exchange without its queue."""
    with plain_channel(vhost.amqp_url) as channel:
        _conventional(channel, "Billing")
        channel.queue_declare("Bürø ☃", durable=True)
        channel.exchange_declare("bare", "fanout", durable=True)
    return vhost.amqp_url


@pytest.fixture
def management(vhost: Vhost) -> Iterator[ManagementApi]:
    """The management API of the test's node."""
    address = connection(vhost.amqp_url).address
    settings = management_settings(address, vhost.node.management_url, TlsFiles())
    with ManagementApi(settings) as found:
        yield found


def _conventional(channel: Any, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.exchange_declare(name, "fanout", durable=True)
    channel.queue_bind(name, name, "")


def _told(routes: RabbitRoutes, *names: str) -> dict[str, Told]:
    found = routes.routes([QueueName(name) for name in names])
    return {
        name: answer.reason
        if isinstance(answer, Unreachable)
        else (answer.exchange, answer.routing_key)
        for name, answer in found.items()
    }


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (Topology.AUTO, [("Billing", ""), ("", "Bürø ☃"), UNBOUND, UNKNOWN, UNKNOWN]),
        (Topology.CONVENTIONAL, [("Billing", ""), UNBOUND, UNBOUND, UNKNOWN, UNKNOWN]),
        (Topology.DIRECT, [("", "Billing"), ("", "Bürø ☃"), UNKNOWN, UNKNOWN, UNKNOWN]),
    ],
)
def test_each_topology_has_its_routes(
    vhost: Vhost, url: str, topology: Topology, expected: list[Told]
) -> None:
    """Conventional goes by the exchange, direct by the queue, auto by what there is."""
    path = f"bindings/{quote(vhost.name, safe='')}"
    before = vhost.node.api("GET", path)
    names = ["Billing", "Bürø ☃", "bare", "nothing", ""]
    routes = RabbitRoutes(connection(url), topology=topology)
    assert _told(routes, *names) == dict(zip(names, expected, strict=True))
    assert vhost.node.api("GET", path) == before


@pytest.mark.parametrize("topology", [Topology.AUTO, Topology.CONVENTIONAL, Topology.DIRECT])
def test_a_message_by_its_route_arrives(url: str, topology: Topology) -> None:
    """What is sent the way a route says is in the queue, once, in any topology."""
    found = RabbitRoutes(connection(url), topology=topology).routes([QueueName("Billing")])
    route = found[QueueName("Billing")]
    assert isinstance(route, Route)
    link = open_satellite_link(
        connection(url), endpoint="e", owner="tester", limits=WindowLimits(confirm_deadline_s=5)
    )
    answers = PublishResult()
    try:
        link.publish([(route, message())], answers)
    finally:
        link.close()
    assert answers == PublishResult(confirmed={0})
    with plain_channel(url) as channel:
        assert channel.queue_declare("Billing", passive=True).method.message_count == 1


@pytest.mark.parametrize("name", ["Billing\n", "\r\nBilling", "Bil\nling"])
def test_line_ends_do_not_name_another_destination(url: str, name: str) -> None:
    """The broker drops line ends from names when asked, but not when something is published."""
    assert _told(RabbitRoutes(connection(url)), name) == {name: UNKNOWN}


@pytest.mark.parametrize("name", ["x" * 256, "☃" * 86, "half \ud800"])
def test_a_name_no_queue_can_have_is_unknown(url: str, name: str) -> None:
    """An impossible name is that destination's fault; others are told all the same."""
    assert _told(RabbitRoutes(connection(url)), name, "Billing") == {
        name: UNKNOWN,
        "Billing": ("Billing", ""),
    }


def test_answers_are_remembered_for_a_while(url: str) -> None:
    """Routes are known for long, refusals briefly, and names that are forgotten not at all."""
    now_s = 0.0
    routes = RabbitRoutes(
        connection(url), remembered_s=60, refusal_remembered_s=3, monotonic_s=lambda: now_s
    )
    known: Told = ("", "Bürø ☃")
    assert _told(routes, "Sales", "Bürø ☃", "Sales") == {"Sales": UNKNOWN, "Bürø ☃": known}
    with plain_channel(url) as channel:
        channel.queue_declare("Sales", durable=True)
        channel.queue_delete("Bürø ☃")
    now_s = 2.0
    assert _told(routes, "Sales", "Bürø ☃") == {"Sales": UNKNOWN, "Bürø ☃": known}
    now_s = 4.0
    assert _told(routes, "Sales", "Bürø ☃") == {"Sales": ("", "Sales"), "Bürø ☃": known}
    routes.forget([QueueName("Bürø ☃"), QueueName("never asked for")])
    assert _told(routes, "Bürø ☃") == {"Bürø ☃": UNKNOWN}
    now_s = 65.0
    with plain_channel(url) as channel:
        channel.queue_delete("Sales")
    assert _told(routes, "Sales") == {"Sales": UNKNOWN}
    assert _told(routes) == {}
