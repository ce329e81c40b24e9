"""Several nodes to choose from: whoever answers is taken, and remembered."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dev.processes import free_port
from migrator.errors import AccessRefused, TargetUnavailable
from migrator.rabbitmq.addresses import BrokerAddress, parse_address
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.management import ManagementApi, management_settings
from migrator.rabbitmq.server import is_our_clock
from tests.conftest import Vhost
from tests.support.proxy import Proxy

PlaceProxy = Callable[[str], Proxy]


def nobody(address: BrokerAddress) -> BrokerAddress:
    """Return an address where nobody listens."""
    return replace(address, port=free_port())


@pytest.fixture
def live(vhost: Vhost) -> BrokerAddress:
    """Where somebody listens."""
    return parse_address(vhost.amqp_url)


def _by_wire(settings: ConnectionSettings) -> None:
    pump = EventLoop()
    try:
        Connection(pump, settings, "test").channel()
    finally:
        pump.close()


def _by_session(settings: ConnectionSettings) -> None:
    with admin_session(settings, purpose="test") as admin:
        assert admin.has_exchange("amq.topic")


def _by_clock(settings: ConnectionSettings) -> None:
    assert is_our_clock(settings, lambda: datetime.now(UTC)) is not None


WAYS = [_by_wire, _by_session, _by_clock]


@pytest.mark.parametrize("connect", WAYS)
def test_the_next_node_is_tried(
    live: BrokerAddress,
    connect: Callable[[ConnectionSettings], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node that does not answer is passed over; the one that does is named once."""
    settings = ConnectionSettings(nodes=(nobody(live), nobody(live), live))
    with caplog.at_level(logging.INFO):
        connect(settings)
        connect(settings)
    named = [record for record in caplog.records if vars(record).get("action") == "broker_node"]
    assert [vars(record)["node"] for record in named] == [live.host_port]
    assert settings.address == live


def test_the_node_of_the_last_connection_is_tried_first(
    vhost: Vhost, live: BrokerAddress, proxy: PlaceProxy
) -> None:
    """What worked last is not left for a node before it in the list that came back."""
    line = proxy(vhost.amqp_url)
    settings = ConnectionSettings(nodes=(parse_address(line.url(vhost.amqp_url)), live))
    line.refuse()
    _by_session(settings)
    line.accept()
    _by_session(settings)
    assert settings.address == live


@pytest.mark.parametrize("connect", WAYS)
def test_without_any_node_each_is_named(
    live: BrokerAddress, connect: Callable[[ConnectionSettings], None]
) -> None:
    """Whoever has to look knows where."""
    nodes = (nobody(live), nobody(live))
    with pytest.raises(TargetUnavailable, match="none of 2 nodes can be reached") as refused:
        connect(ConnectionSettings(nodes=nodes))
    assert all(node.host_port in str(refused.value) for node in nodes)


@pytest.mark.parametrize("connect", WAYS)
def test_a_refused_user_is_refused_at_once(
    live: BrokerAddress, connect: Callable[[ConnectionSettings], None]
) -> None:
    """Nodes of one cluster have the same users; the other ones are not asked."""
    stranger = replace(live, user="stranger")
    with pytest.raises(AccessRefused, match="stranger"):
        connect(ConnectionSettings(nodes=(stranger, live)))


def test_numbered_connections_begin_with_different_nodes(live: BrokerAddress) -> None:
    """So lanes spread over a cluster."""
    nodes = tuple(replace(live, port=port) for port in (1, 2, 3))
    settings = ConnectionSettings(nodes=nodes)
    assert [settings.beginning_with(lane).address.port for lane in range(4)] == [1, 2, 3, 1]


@pytest.mark.parametrize("connect", WAYS)
def test_a_name_with_several_addresses_is_several_nodes(
    live: BrokerAddress,
    connect: Callable[[ConnectionSettings], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each address of a name is tried: here nobody listens at the first."""
    real = socket.getaddrinfo

    def resolve(host: str, *args: object, **options: object) -> object:
        if host != "cluster.test":
            return real(host, *args, **options)  # type: ignore[arg-type]
        return [
            found
            for address in ("127.0.0.2", "127.0.0.1")
            for found in real(address, live.port, type=socket.SOCK_STREAM)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    connect(ConnectionSettings(nodes=(replace(live, host="cluster.test"),)))


def test_the_management_api_of_the_next_node_is_asked(vhost: Vhost, live: BrokerAddress) -> None:
    """As with connections: the first that answers, and it is remembered."""
    gone = f"http://127.0.0.1:{free_port()}"
    tls = ConnectionSettings(nodes=(live,)).tls
    nodes = [management_settings(live, url, tls) for url in (gone, vhost.node.management_url)]
    with ManagementApi(*nodes) as api:
        assert api.version()
        assert api.alarms()
    with ManagementApi(nodes[0], nodes[0]) as api, pytest.raises(TargetUnavailable, match=gone):
        api.version()
