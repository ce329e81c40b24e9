"""Which parts each kind of legacy store brings; a new kind is entered here, and nowhere else.

A SQL store shares its database with the ledger. A document store has its ledger elsewhere: all of
them work through ``stores.documents``, and an adapter only implements ``stores.documents.ports``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.config import Settings
from migrator.config.secrets import required_secret
from migrator.config.servers import Bodies, StoreKind
from migrator.errors import ConfigError, DriverMissing, PreflightRefused
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.sql.sql_persistence import Placement, SqlOptions, SqlStore
from migrator.stores.sql.store import TableStore

if TYPE_CHECKING:
    from migrator.app.app import App
    from migrator.recall.restore import DocumentRecalls, SqlRecalls
    from migrator.recovery.lost_window import SqlFailover
    from migrator.stores.sql.seeding import SeedRow
    from migrator.verify.stores import DocumentVerifications, SqlVerifications


class SqlBackend:
    """A SQL database that holds the ledger as well.

    Like ``DocumentBackend``, it makes each part when it is first asked for.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    @cached_property
    def store(self) -> TableStore:
        """The legacy tables: one for each endpoint, or one that they share."""
        app, given = self._app, self._app.settings.store
        endpoints = app.settings.endpoints
        if given.kind is StoreKind.NHIBERNATE:
            shared = NHibernateOptions(
                schema=given.schema_name,
                table=given.nhibernate.table,
                columns=given.nhibernate.columns,
                names=[endpoint.name for endpoint in endpoints],
                time_zone=given.local_zone,
            )
            return NHibernateStore(app.engine, app.tables, shared)
        placements = {
            endpoint.name: Placement(
                prefix=endpoint.table_prefix, table=endpoint.table, schema=endpoint.schema_name
            )
            for endpoint in endpoints
        }
        apart = SqlOptions(
            schema=given.schema_name, placements=placements, time_zone=given.local_zone
        )
        return SqlStore(app.engine, app.tables, apart)

    @cached_property
    def claims(self) -> SqlClaims:
        """Moves rows between store and ledger."""
        return SqlClaims(self._app.engine, self._app.tables, self.store.legacy_table)

    @cached_property
    def recalls(self) -> SqlRecalls:
        """Puts handed-over rows back."""
        from migrator.recall.restore import SqlRecalls

        return SqlRecalls(self._app.engine, self._app.tables, self.store, self.claims)

    @cached_property
    def failover(self) -> SqlFailover:
        """Settles what the database lost when it failed over."""
        from migrator.recovery.lost_window import SqlFailover

        return SqlFailover(self._app.engine, self._app.tables, self.store, self.claims)

    @cached_property
    def verifications(self) -> SqlVerifications:
        """Reads the ledger, and compares them with the tables."""
        from migrator.verify.stores import SqlVerifications

        return SqlVerifications(self._app.engine, self._app.tables, self.store)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write invented timeouts, in a new table if there is none; return where, and how many."""
        from migrator.stores.sql.seeding import create_table, insert_rows

        source = self.store.source_of(name)
        blank = self.store.blank(source)
        create_table(self._app.engine, blank)
        return source, insert_rows(self._app.engine, blank, rows)

    def close(self) -> None:
        """Do nothing: the engine is the ledger's, too."""


class DocumentBackend:
    """A document store, and a ledger in a database of its own."""

    def __init__(self, open_documents: Callable[[Settings], DocumentStore], app: App) -> None:
        self._open = open_documents
        self._app = app

    @cached_property
    def documents(self) -> DocumentStore:
        """The adapter."""
        return self._open(self._app.settings)

    @cached_property
    def store(self) -> DocumentStoreView:
        """Answers questions about the store."""
        app = self._app
        named = [endpoint.name for endpoint in app.settings.endpoints]
        return DocumentStoreView(app.engine, app.tables, self._records, self.documents, named=named)

    @cached_property
    def claims(self) -> DocumentClaims:
        """Claims in two steps."""
        app = self._app
        return DocumentClaims(
            self._records, self.documents, ledger_id=lambda: app.ledger_id, fault=app.fault
        )

    @cached_property
    def recalls(self) -> DocumentRecalls:
        """Restores in two steps."""
        from migrator.recall.restore import DocumentRecalls

        app = self._app
        return DocumentRecalls(app.engine, app.tables, self._records, self.claims, fault=app.fault)

    @cached_property
    def verifications(self) -> DocumentVerifications:
        """Reads the ledger, and lists the store."""
        from migrator.verify.stores import DocumentVerifications

        return DocumentVerifications(self._app.engine, self._app.tables, self.documents)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write documents; return where they are, and how many.

        Raises:
            PreflightRefused: This kind of store cannot be filled by us.
        """
        documents = self.documents
        seed: Callable[[str, Iterator[SeedRow]], int] | None = getattr(documents, "seed", None)
        if seed is None:
            raise PreflightRefused(
                f"timeouts for rehearsals cannot be written into {documents.kind}"
            )
        return documents.source_of(name), seed(name, rows)

    def close(self) -> None:
        """Close the adapter."""
        if (documents := self.__dict__.get("documents")) is not None:
            documents.close()

    @cached_property
    def _records(self) -> DocumentLedger:
        return DocumentLedger(self._app.engine, self._app.tables)


def _open_azure(settings: Settings) -> DocumentStore:
    try:
        from migrator.stores.azure.account import Account, AccountSettings
        from migrator.stores.azure.partitions import parse_scope
        from migrator.stores.azure.store import AzureStore
    except ImportError as exc:
        raise DriverMissing("store.kind azure", str(exc.name), extra="azure") from exc
    given = settings.store.azure
    account = Account(
        AccountSettings(
            connection_string=_url(settings),
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


def _open_ravendb(settings: Settings) -> DocumentStore:
    from migrator.stores.ravendb.http import ServerSettings
    from migrator.stores.ravendb.store import RavenOptions, RavenStore

    given = settings.store.ravendb
    if given.database is None:
        raise ConfigError("store.ravendb.database is not set: it names the database in RavenDB")
    server = ServerSettings(
        url=_url(settings),
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


def _url(settings: Settings) -> str:
    return required_secret(settings.store.url, key="store.url", option="--store-url")


StoreBackend = SqlBackend | DocumentBackend
"""All that one kind of legacy store brings."""


def open_backend(app: App) -> StoreBackend:
    """Return what the kind that the settings name brings; nothing is connected yet."""
    kind = app.settings.store.kind
    if kind is StoreKind.AZURE:
        return DocumentBackend(_open_azure, app)
    if kind is StoreKind.RAVENDB:
        return DocumentBackend(_open_ravendb, app)
    return SqlBackend(app)
