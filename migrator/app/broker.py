"""The broker that the settings name: how it is reached, and what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.config.secrets import required_secret
from migrator.delays.broker import BrokerFacts
from migrator.ledger.run_terms import BrokerPlace
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings, TlsFiles
from migrator.rabbitmq.publisher import WindowLimits
from migrator.rabbitmq.server import server_facts

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.delays.topology import FindBindings
    from migrator.rabbitmq.management import ManagementApi


class Broker:
    """The broker; nothing connects before it is used.

    Each property but ``named_place`` raises ``ConfigError`` where no broker is named, or its
    address is wrong.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.version = settings.broker.delays

    @cached_property
    def connection(self) -> ConnectionSettings:
        """How it is reached."""
        given = self._settings.broker
        url = required_secret(given.url, key="broker.url", option="--broker-url")
        return ConnectionSettings(
            nodes=parse_addresses(url),
            tls=TlsFiles(**dict(given.tls)),
            blocked_deadline_s=given.blocked_deadline.total_seconds(),
            prefetch_bytes=given.prefetch_bytes,
        )

    @cached_property
    def management(self) -> ManagementApi | None:
        """Its management API, where one is named."""
        url = self._settings.broker.management_url
        if url is None:
            return None
        from migrator.rabbitmq.management import ManagementApi, management_settings

        address, tls = self.connection.nodes[0], self.connection.tls
        urls = url.get_secret_value().split("\n")
        return ManagementApi(*(management_settings(address, each, tls) for each in urls))

    @property
    def find_bindings(self) -> FindBindings | None:
        """What the management API finds bound to an exchange; None: there is no such API."""
        return self.management.bindings_from if self.management else None

    @cached_property
    def facts(self) -> BrokerFacts:
        """What checks ask it."""
        return BrokerFacts(self.connection, self.management)

    @property
    def named_place(self) -> BrokerPlace:
        """Where this process sends timeouts, as far as that is known without asking the broker."""
        has_broker = self._settings.broker.url is not None
        return BrokerPlace(
            cluster=None,
            vhost=self.connection.address.vhost if has_broker else None,
            delays=str(self.version),
        )

    @cached_property
    def place(self) -> BrokerPlace:
        """Where this process sends timeouts, by what the broker calls itself.

        Raises:
            TargetError: The broker does not say who it is.
        """
        cluster = server_facts(self.connection).cluster_name
        return replace(self.named_place, cluster=cluster or None)

    @property
    def window(self) -> WindowLimits:
        """How much may be published and not answered yet."""
        given = self._settings.handover
        return WindowLimits(
            messages=given.window,
            body_bytes=given.window_bytes,
            confirm_deadline_s=self._settings.broker.confirm_deadline.total_seconds(),
        )

    def close(self) -> None:
        """Close the connection to the management API, if there is one."""
        if (management := self.__dict__.get("management")) is not None:
            management.close()


@contextmanager
def open_broker(settings: Settings) -> Iterator[Broker]:
    """Give the broker that *settings* name, and close what is open at the end."""
    broker = Broker(settings)
    try:
        yield broker
    finally:
        broker.close()
