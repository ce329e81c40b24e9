"""Opens timeouts in RavenDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.config.secrets import required_secret
from migrator.errors import ConfigError
from migrator.stores.ravendb.http import ServerSettings
from migrator.stores.ravendb.store import RavenOptions, RavenStore

if TYPE_CHECKING:
    from migrator.config import Settings


def open_store(settings: Settings) -> RavenStore:
    """Return the store that *settings* name; nothing is connected yet.

    Raises:
        ConfigError: The database in RavenDB is not named.
    """
    given = settings.store.ravendb
    if given.database is None:
        raise ConfigError("store.ravendb.database is not set: it names the database in RavenDB")
    server = ServerSettings(
        url=required_secret(settings.store.url, key="store.url", option="--store-url"),
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
