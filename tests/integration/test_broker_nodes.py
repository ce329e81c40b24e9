"""Several nodes to choose from, on a real broker; how is in ``unit/rabbitmq/test_connection``."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from dev.processes import free_port
from migrator.errors import TargetUnavailable
from migrator.rabbitmq.addresses import BrokerAddress, parse_address
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.management import ManagementApi, management_settings
from tests.conftest import Vhost


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


@pytest.mark.parametrize("connect", [_by_wire, _by_session])
def test_a_name_with_several_addresses_is_several_nodes(
    live: BrokerAddress,
    connect: Callable[[ConnectionSettings], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each address of a name is tried: here nobody listens at the first, nor at the node before."""
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
    nodes = replace(live, port=free_port()), replace(live, host="cluster.test")
    settings = ConnectionSettings(nodes=nodes)
    connect(settings)
    assert settings.address == nodes[1]


def test_the_management_api_of_the_next_node_is_asked(vhost: Vhost, live: BrokerAddress) -> None:
    """As with connections: the first that answers, and it is remembered."""
    gone = f"http://127.0.0.1:{free_port()}"
    tls = ConnectionSettings(nodes=(live,)).tls
    nodes = [management_settings(live, url, tls) for url in (gone, vhost.node.management_url)]
    with ManagementApi(*nodes) as api:
        assert api.feature_flags()
        assert api.nodes()
    with ManagementApi(nodes[0], nodes[0]) as api, pytest.raises(TargetUnavailable, match=gone):
        api.feature_flags()
