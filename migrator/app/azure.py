"""Azure Storage as a document store, made from the settings."""

from __future__ import annotations

from migrator.config import Settings
from migrator.config.secrets import required_secret
from migrator.stores.azure.account import Account, AccountSettings
from migrator.stores.azure.partitions import parse_scope
from migrator.stores.azure.store import AzureStore


def open_azure(settings: Settings) -> AzureStore:
    """Return the store that *settings* name; nothing is connected yet.

    Raises:
        ConfigError: The connection string is missing or none.
    """
    given = settings.store.azure
    url = required_secret(settings.store.url, key="store.url", option="--store-url")
    account = Account(
        AccountSettings(
            connection_string=url,
            table=given.table,
            container=given.container,
            requests=given.requests,
        )
    )
    return AzureStore(
        account,
        parse_scope(given.partition_key_scope),
        largest_body=settings.broker.max_message_bytes,
    )
