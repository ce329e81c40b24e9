"""What the settings say of the broker, as connections, checks and destinations."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from migrator.config import Settings, required_secret
from migrator.nservicebus.timeouts import Lane

if TYPE_CHECKING:  # each part is imported when it is made
    from migrator.delays.destinations import Destinations
    from migrator.preflight.broker import BrokerFacts
    from migrator.rabbitmq.connection import ConnectionSettings
    from migrator.rabbitmq.management import ManagementApi


class BrokerParts:
    """The broker's side of an application, each part made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        """Remember *settings*; nothing is opened."""
        self.settings = settings
        self._lane_connections: dict[Lane, ConnectionSettings] = {}

    @cached_property
    def connection(self) -> ConnectionSettings:
        """How the broker is reached.

        Raises:
            ConfigError: The address is missing or wrong.
        """
        from migrator.rabbitmq.addresses import parse_addresses
        from migrator.rabbitmq.connection import ConnectionSettings, TlsFiles

        given = self.settings.broker
        url = required_secret(given.url, key="broker.url", option="--broker-url")
        tls = given.tls
        return ConnectionSettings(
            nodes=parse_addresses(url),
            tls=TlsFiles(
                ca_file=tls.ca_file,
                cert_file=tls.cert_file,
                key_file=tls.key_file,
                verify=tls.verify,
            ),
            blocked_deadline_s=given.blocked_deadline.total_seconds(),
        )

    def lane_connection(self, lane: Lane) -> ConnectionSettings:
        """Return how a lane reaches the broker: lanes begin with different nodes.

        So their connections spread over a cluster, and with them the leaders of their queues.
        Which node a lane used last is remembered for its next link.
        """
        return self._lane_connections.setdefault(lane, self.connection.beginning_with(lane))

    def node_of(self, lane: Lane) -> str | None:
        """Return the node that a lane is connected to; None: there is only one to choose."""
        connection = self.lane_connection(lane)
        return connection.address.host_port if len(connection.nodes) > 1 else None

    @cached_property
    def management(self) -> ManagementApi | None:
        """The broker's management API, where one is named."""
        url = self.settings.broker.management_url
        if url is None:
            return None
        from migrator.rabbitmq.management import ManagementApi, management_settings

        address, tls = self.connection.nodes[0], self.connection.tls
        urls = url.get_secret_value().split("\n")
        return ManagementApi(*(management_settings(address, each, tls) for each in urls))

    @cached_property
    def broker_facts(self) -> BrokerFacts:
        """What checks ask the broker."""
        from migrator.preflight.broker import BrokerFacts

        return BrokerFacts(self.connection, self.management)

    @cached_property
    def destinations(self) -> Destinations:
        """Binds destinations, or says why not; all lanes share what it remembers."""
        return self.new_destinations()

    def new_destinations(self) -> Destinations:
        """Return one that remembers nothing, and that nobody else waits for."""
        from migrator.delays.destinations import Destinations

        given = self.settings.broker
        return Destinations(
            self.connection,
            given.delays,
            topology=given.topology,
            bind=not given.all_endpoints_support_delayed_delivery,
            find_bindings=self.management.bindings_from if self.management else None,
        )
