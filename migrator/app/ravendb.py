"""RavenDB as a document store, made from the settings."""

from __future__ import annotations

from migrator.config import Settings
from migrator.config.secrets import required_secret
from migrator.errors import ConfigError
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore


def open_ravendb(settings: Settings) -> RavenStore:
    """Return the store that *settings* name; nothing is connected yet.

    Raises:
        ConfigError: The address, the database or a certificate is missing or cannot be used.
    """
    given = settings.store.ravendb
    url = required_secret(settings.store.url, key="store.url", option="--store-url")
    if given.database is None:
        raise ConfigError("store.ravendb.database is not set: it names the database in RavenDB")
    server = ServerSettings(
        url=url,
        database=given.database,
        ca_file=given.ca_file,
        cert_file=given.cert_file,
        key_file=given.key_file,
        request_timeout_s=given.request_timeout.total_seconds(),
    )
    return RavenStore(
        RavenOptions(
            server=server,
            version=given.version,
            collections=given.collections,
            prefixes=given.prefixes,
            unowned=given.unowned,
        )
    )
