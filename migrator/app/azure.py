"""Opens timeouts in Azure Storage; its driver is imported with this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.config.secrets import required_secret
from migrator.config.servers import Bodies
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore

if TYPE_CHECKING:
    from migrator.config import Settings


def open_store(settings: Settings) -> AzureStore:
    """Return the store that *settings* name; nothing is connected yet."""
    given = settings.store.azure
    account = Account(
        AccountSettings(
            connection_string=required_secret(
                settings.store.url, key="store.url", option="--store-url"
            ),
            table=given.table,
            container=given.container,
            requests=given.requests,
            keeps_bodies=given.bodies is Bodies.KEEP,
        )
    )
    return AzureStore(
        account,
        parse_scope(given.partition_key_scope),
        largest_body=settings.broker.max_message_bytes,
    )
