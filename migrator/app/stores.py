"""Which parts each kind of legacy store brings; a new kind is entered here, and nowhere else.

A SQL store shares its database with the ledger. A document store has its ledger elsewhere: all of
them work through ``stores.documents``, and an adapter only implements ``stores.documents.ports``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from migrator.config.servers import StoreKind
from migrator.errors import DriverMissing, PreflightRefused
from migrator.ledger.work import FaultPoint, no_fault
from migrator.recall.restore import DocumentRecalls, SqlRecalls
from migrator.recovery.lost_window import LostWindow
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import DocumentStoreView
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.sql.seeding import SeedRow, create_table, insert_rows
from migrator.stores.sql.sql_persistence import Placement, SqlOptions, SqlStore
from migrator.stores.sql.store import TableStore
from migrator.verify.stores import DocumentAudit, SqlAudit

if TYPE_CHECKING:
    from migrator.app.ledger import Ledger
    from migrator.config import Settings


class SqlBackend:
    """A SQL database that holds the ledger as well.

    Like ``DocumentBackend``, it makes each part when it is first asked for.
    """

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._engine, self._tables, self._runs = ledger.engine, ledger.tables, ledger.runs
        self.store = _table_store(settings, ledger)
        """The legacy tables: one for each endpoint, or one that they share."""
        self.claims = SqlClaims(self._engine, self._tables, self.store.legacy_table)
        """Moves rows between store and ledger."""

    @cached_property
    def recalls(self) -> SqlRecalls:
        """Puts handed-over rows back."""
        return SqlRecalls(self._engine, self._tables, self.store, self.claims)

    @cached_property
    def lost_window(self) -> LostWindow:
        """Recovers what the database lost when it failed over."""
        return LostWindow(self._engine, self._tables, self.store, self.claims, self._runs)

    @cached_property
    def audit(self) -> SqlAudit:
        """Reads the ledger, and compares them with the tables."""
        return SqlAudit(self._engine, self._tables, self.store)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write invented timeouts, in a new table if there is none; return where, and how many."""
        source = self.store.source_of(name)
        blank = self.store.blank(source)
        create_table(self._engine, blank)
        return source, insert_rows(self._engine, blank, rows)

    def close(self) -> None:
        """Do nothing: the engine is the ledger's, too."""


class DocumentBackend:
    """A document store, and a ledger in a database of its own."""

    def __init__(
        self,
        open_documents: Callable[[Settings], DocumentStore],
        settings: Settings,
        ledger: Ledger,
        fault: FaultPoint,
    ) -> None:
        self._open = open_documents
        self._settings = settings
        self._ledger = ledger
        self._records = DocumentLedger(ledger.engine, ledger.tables)
        self._fault = fault

    @cached_property
    def documents(self) -> DocumentStore:
        """The adapter."""
        return self._open(self._settings)

    @cached_property
    def store(self) -> DocumentStoreView:
        """Answers questions about the store."""
        named = [endpoint.name for endpoint in self._settings.endpoints]
        engine, tables = self._ledger.engine, self._ledger.tables
        return DocumentStoreView(engine, tables, self._records, self.documents, named=named)

    @cached_property
    def claims(self) -> DocumentClaims:
        """Claims in two steps; raises what ``Ledger.id`` does."""
        return DocumentClaims(
            self._records, self.documents, ledger_id=self._ledger.id, fault=self._fault
        )

    @cached_property
    def recalls(self) -> DocumentRecalls:
        """Restores in two steps."""
        engine, tables = self._ledger.engine, self._ledger.tables
        return DocumentRecalls(engine, tables, self._records, self.claims, fault=self._fault)

    @cached_property
    def audit(self) -> DocumentAudit:
        """Reads the ledger, and lists the store."""
        return DocumentAudit(self._ledger.engine, self._ledger.tables, self.documents)

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


StoreBackend = SqlBackend | DocumentBackend
"""All that one kind of legacy store brings."""


def new_backend(settings: Settings, ledger: Ledger, fault: FaultPoint) -> StoreBackend:
    """Return what the kind that the settings name brings; nothing is connected yet.

    Raises:
        DriverMissing: What this kind needs is not installed.
    """
    if not settings.store.kind.has_own_ledger:
        return SqlBackend(settings, ledger)
    return _new_documents(settings, ledger, fault)


def _new_documents(settings: Settings, ledger: Ledger, fault: FaultPoint) -> DocumentBackend:
    if settings.store.kind is StoreKind.RAVENDB:
        from migrator.app import ravendb

        return DocumentBackend(ravendb.open_store, settings, ledger, fault)
    try:
        from migrator.app import azure
    except ImportError as exc:
        raise DriverMissing("store.kind azure", str(exc.name), extra="azure") from exc
    return DocumentBackend(azure.open_store, settings, ledger, fault)


@contextmanager
def open_backend(
    settings: Settings, ledger: Ledger, fault: FaultPoint = no_fault
) -> Iterator[StoreBackend]:
    """Open the legacy store that *settings* name, and close it at the end.

    Raises:
        DriverMissing: What this kind needs is not installed.
    """
    backend = new_backend(settings, ledger, fault)
    try:
        yield backend
    finally:
        backend.close()


@contextmanager
def open_documents(settings: Settings, ledger: Ledger) -> Iterator[DocumentBackend]:
    """Open the document store that *settings* name, and close it at the end."""
    backend = _new_documents(settings, ledger, no_fault)
    try:
        yield backend
    finally:
        backend.close()


def demand_sql(backend: StoreBackend, settings: Settings, *, wanted_for: str) -> SqlBackend:
    """Return the backend of a SQL store.

    Raises:
        PreflightRefused: The store is of another kind, which has nothing for *wanted_for*.
    """
    if isinstance(backend, SqlBackend):
        return backend
    raise PreflightRefused(f"{wanted_for} needs a SQL store; store.kind is {settings.store.kind}")


def _table_store(settings: Settings, ledger: Ledger) -> TableStore:
    given, endpoints = settings.store, settings.endpoints
    if given.kind is StoreKind.NHIBERNATE:
        shared = NHibernateOptions(
            schema=given.schema_name,
            table=given.nhibernate.table,
            columns=given.nhibernate.columns,
            names=[endpoint.name for endpoint in endpoints],
            time_zone=given.local_zone,
        )
        return NHibernateStore(ledger.engine, ledger.tables, shared)
    placements = {
        endpoint.name: Placement(
            prefix=endpoint.table_prefix, table=endpoint.table, schema=endpoint.schema_name
        )
        for endpoint in endpoints
    }
    apart = SqlOptions(schema=given.schema_name, placements=placements, time_zone=given.local_zone)
    return SqlStore(ledger.engine, ledger.tables, apart)
