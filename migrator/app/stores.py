"""Which parts each kind of legacy store brings; a new kind is entered here, and nowhere else.

A SQL store shares its database with the ledger. A document store has its ledger elsewhere: all of
them work through ``stores.documents``, and an adapter only implements ``stores.documents.ports``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy import Engine

from migrator.config import Settings
from migrator.config.secrets import required_secret
from migrator.config.servers import StoreKind
from migrator.errors import ConfigError, PreflightRefused
from migrator.failover.store import SqlFailover
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import FaultPoint
from migrator.recall.restore import DocumentRecalls, SqlRecalls
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.sql.seeding import SeedRow, create_table, insert_rows
from migrator.stores.sql.sql_persistence import Placement, SqlOptions, SqlStore
from migrator.stores.sql.store import TableStore
from migrator.verify.stores import DocumentVerifications, SqlVerifications


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContext:
    """What every backend is made of."""

    settings: Settings
    engine: Engine
    """The ledger's database; of a SQL store, the store's as well."""
    tables: LedgerTables
    ledger_id: Callable[[], str]
    """Asked when the ledger is first written to; raises when it cannot be used."""
    fault: FaultPoint


class SqlBackend:
    """A SQL database that holds the ledger as well.

    Like ``DocumentBackend``, it makes each part when it is first asked for.
    """

    def __init__(self, context: StoreContext) -> None:
        """Remember *context*; nothing is opened."""
        self._context = context

    @cached_property
    def store(self) -> TableStore:
        """The legacy tables: one for each endpoint, or one that they share."""
        context, given = self._context, self._context.settings.store
        endpoints = context.settings.endpoints
        if given.kind is StoreKind.NHIBERNATE:
            shared = NHibernateOptions(
                schema=given.schema_name,
                table=given.nhibernate.table,
                columns=given.nhibernate.columns,
                names=[endpoint.name for endpoint in endpoints],
                time_zone=given.local_zone,
            )
            return NHibernateStore(context.engine, context.tables, shared)
        placements = {
            endpoint.name: Placement(
                prefix=endpoint.table_prefix, table=endpoint.table, schema=endpoint.schema_name
            )
            for endpoint in endpoints
        }
        apart = SqlOptions(
            schema=given.schema_name, placements=placements, time_zone=given.local_zone
        )
        return SqlStore(context.engine, context.tables, apart)

    @cached_property
    def claims(self) -> SqlClaims:
        """Moves rows between store and ledger."""
        return SqlClaims(self._context.engine, self._context.tables, self.store.legacy_table)

    @cached_property
    def recalls(self) -> SqlRecalls:
        """Puts handed-over rows back."""
        return SqlRecalls(self._context.engine, self._context.tables, self.store, self.claims)

    @cached_property
    def failover(self) -> SqlFailover:
        """Settles what the database lost when it failed over."""
        return SqlFailover(self._context.engine, self._context.tables, self.store, self.claims)

    @cached_property
    def verifications(self) -> SqlVerifications:
        """Reads the books, and compares them with the tables."""
        return SqlVerifications(self._context.engine, self._context.tables, self.store)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write invented timeouts, in a new table if there is none; return where, and how many."""
        source = self.store.source_of(name)
        blank = self.store.blank(source)
        create_table(self._context.engine, blank)
        return source, insert_rows(self._context.engine, blank, rows)

    def close(self) -> None:
        """Do nothing: the engine is the ledger's, too."""


class DocumentBackend:
    """A document store, and a ledger in a database of its own."""

    def __init__(
        self, open_documents: Callable[[Settings], DocumentStore], context: StoreContext
    ) -> None:
        """Remember *context*; *open_documents* is called when the store is first needed."""
        self._open = open_documents
        self._context = context

    @cached_property
    def documents(self) -> DocumentStore:
        """The adapter."""
        return self._open(self._context.settings)

    @cached_property
    def store(self) -> DocumentStoreView:
        """Answers questions about the store."""
        context = self._context
        named = [endpoint.name for endpoint in context.settings.endpoints]
        return DocumentStoreView(
            context.engine, context.tables, self._records, self.documents, named=named
        )

    @cached_property
    def claims(self) -> DocumentClaims:
        """Claims in two steps."""
        context = self._context
        return DocumentClaims(
            self._records, self.documents, ledger_id=context.ledger_id, fault=context.fault
        )

    @cached_property
    def recalls(self) -> DocumentRecalls:
        """Restores in two steps."""
        context = self._context
        return DocumentRecalls(
            context.engine, context.tables, self._records, self.claims, fault=context.fault
        )

    @cached_property
    def verifications(self) -> DocumentVerifications:
        """Reads the books, and lists the store."""
        return DocumentVerifications(self._context.engine, self._context.tables, self.documents)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write documents; return where they are, and how many.

        Raises:
            PreflightRefused: This kind of store cannot be filled by us.
        """
        documents = self.documents
        seed: Callable[[str, Iterator[SeedRow]], int] | None = getattr(documents, "seed", None)
        if seed is None:
            raise PreflightRefused(f"invented timeouts cannot be written into {documents.kind}")
        return documents.source_of(name), seed(name, rows)

    def close(self) -> None:
        """Close the adapter."""
        if (documents := self.__dict__.get("documents")) is not None:
            documents.close()

    @cached_property
    def _records(self) -> DocumentLedger:
        return DocumentLedger(self._context.engine, self._context.tables)


def _open_azure(settings: Settings) -> DocumentStore:
    with _needing("azure"):
        from migrator.stores.azure.account import Account, AccountSettings
        from migrator.stores.azure.partitions import parse_scope
        from migrator.stores.azure.store import AzureStore
    given = settings.store.azure
    account = Account(
        AccountSettings(
            connection_string=_url(settings),
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


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Say which extra brings what cannot be imported."""
    try:
        yield
    except ImportError as exc:
        raise ConfigError(
            f"store.kind {extra} wants packages that are not here ({exc.name}); install "
            f"migrator[{extra}]"
        ) from exc


StoreBackend = SqlBackend | DocumentBackend
"""All that one kind of legacy store brings."""


def open_backend(context: StoreContext) -> StoreBackend:
    """Return what the kind that the settings name brings; nothing is connected yet."""
    kind = context.settings.store.kind
    if kind is StoreKind.AZURE:
        return DocumentBackend(_open_azure, context)
    if kind is StoreKind.RAVENDB:
        return DocumentBackend(_open_ravendb, context)
    return SqlBackend(context)
