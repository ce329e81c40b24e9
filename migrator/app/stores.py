"""Which parts each kind of legacy store brings; a new kind is entered here, and nowhere else.

A SQL store shares its database with the ledger. A document store has its ledger elsewhere: all of
them work through ``stores.documents``, and an adapter only implements ``stores.documents.ports``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Protocol, runtime_checkable

from sqlalchemy import Engine

from migrator.config import Settings
from migrator.config.servers import StoreKind
from migrator.errors import ConfigError, PreflightRefused
from migrator.failover.store import SqlFailover
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import FaultPoint
from migrator.recall.restore import DocumentRecalls, Recalls, SqlRecalls
from migrator.stores.documents.claims import DocumentClaims
from migrator.stores.documents.ledger import DocumentLedger
from migrator.stores.documents.ports import DocumentStore
from migrator.stores.documents.store import DocumentCounting, DocumentPulse, DocumentStoreView
from migrator.stores.measuring_ports import Counting, Pulse
from migrator.stores.ports import Claims, Store
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.counting import SqlCounting
from migrator.stores.sql.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.sql.pulse import SqlPulse
from migrator.stores.sql.seeding import SeedRow, create_table, insert_rows
from migrator.stores.sql.sql_persistence import Placement, SqlOptions, SqlStore
from migrator.stores.sql.tables import TableStore
from migrator.verify.documents import DocumentVerifications
from migrator.verify.ports import Verifications
from migrator.verify.store import SqlVerifications


class StoreSide(Protocol):
    """All that one kind of legacy store brings; each part is made when it is first asked for."""

    @property
    def store(self) -> Store:
        """Answers questions about the store."""
        ...

    @property
    def claims(self) -> Claims:
        """Moves timeouts between store and ledger."""
        ...

    @property
    def recalls(self) -> Recalls:
        """Puts handed-over timeouts back."""
        ...

    @property
    def verifications(self) -> Verifications:
        """Reads the books, and compares them with the store."""
        ...

    @property
    def counting(self) -> Counting:
        """Counts for the page."""
        ...

    @property
    def pulse(self) -> Pulse:
        """Measures for the throttle."""
        ...

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write invented timeouts of the endpoint *name*; return where they are, and how many.

        Raises:
            PreflightRefused: This kind of store cannot be filled by us.
        """
        ...

    def close(self) -> None:
        """Close what was opened; the ledger's engine is not this side's."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What every side stands on."""

    settings: Settings
    engine: Engine
    """The ledger's database; of a SQL store, the store's as well."""
    tables: LedgerTables
    ledger_id: Callable[[], str]
    """Asked when the ledger is first written to; raises when it cannot be used."""
    fault: FaultPoint


class SqlSide:
    """A SQL database that holds the ledger as well; implements ``StoreSide``."""

    def __init__(self, ground: Ground) -> None:
        """Remember *ground*; nothing is opened."""
        self._ground = ground

    @cached_property
    def store(self) -> TableStore:
        """The legacy tables."""
        settings = self._ground.settings
        placements = {
            endpoint.name: Placement(
                prefix=endpoint.table_prefix, table=endpoint.table, schema=endpoint.schema_name
            )
            for endpoint in settings.endpoints
        }
        options = SqlOptions(
            schema=settings.store.schema_name,
            placements=placements,
            time_zone=settings.store.local_zone,
        )
        return SqlStore(self._ground.engine, self._ground.tables, options)

    @cached_property
    def claims(self) -> SqlClaims:
        """Moves rows between store and ledger."""
        return SqlClaims(self._ground.engine, self._ground.tables, self.store)

    @cached_property
    def recalls(self) -> SqlRecalls:
        """Puts handed-over rows back."""
        return SqlRecalls(self._ground.engine, self._ground.tables, self.store, self.claims)

    @cached_property
    def failover(self) -> SqlFailover:
        """Settles what the database lost when it failed over."""
        return SqlFailover(self._ground.engine, self._ground.tables, self.store, self.claims)

    @cached_property
    def verifications(self) -> SqlVerifications:
        """Reads the books, and compares them with the tables."""
        return SqlVerifications(self._ground.engine, self._ground.tables, self.store)

    @cached_property
    def counting(self) -> SqlCounting:
        """Counts the rows of tables."""
        return SqlCounting(self._ground.engine, self.store)

    @cached_property
    def pulse(self) -> SqlPulse:
        """Measures what every claim needs."""
        return SqlPulse(self._ground.engine, self.store)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write rows, and make the table where there is none."""
        source = self.store.source_of(name)
        blank = self.store.blank(source)
        create_table(self._ground.engine, blank)
        return source, insert_rows(self._ground.engine, blank, rows)

    def close(self) -> None:
        """Do nothing: the engine is the ledger's, too."""


class NHibernateSide(SqlSide):
    """The same with one table for all endpoints."""

    @cached_property
    def store(self) -> TableStore:
        """The legacy table."""
        settings = self._ground.settings
        options = NHibernateOptions(
            schema=settings.store.schema_name,
            table=settings.store.nhibernate.table,
            columns=settings.store.nhibernate.columns,
            names=[endpoint.name for endpoint in settings.endpoints],
            time_zone=settings.store.local_zone,
        )
        return NHibernateStore(self._ground.engine, self._ground.tables, options)


@runtime_checkable
class Seeder(Protocol):
    """A document store that rehearsals can fill."""

    def seed(self, name: str, rows: Iterable[SeedRow]) -> int:
        """Write invented timeouts of the endpoint *name*; return how many."""
        ...


class DocumentSide:
    """A document store, and a ledger in a database of its own; implements ``StoreSide``."""

    def __init__(self, open_documents: Callable[[Settings], DocumentStore], ground: Ground) -> None:
        """Remember *ground*; *open_documents* is called when the store is first needed."""
        self._open = open_documents
        self._ground = ground

    @cached_property
    def documents(self) -> DocumentStore:
        """The adapter."""
        return self._open(self._ground.settings)

    @cached_property
    def store(self) -> DocumentStoreView:
        """Answers questions about the store."""
        ground = self._ground
        named = [endpoint.name for endpoint in ground.settings.endpoints]
        return DocumentStoreView(
            ground.engine, ground.tables, self._records, self.documents, named=named
        )

    @cached_property
    def claims(self) -> DocumentClaims:
        """Claims in two steps."""
        ground = self._ground
        return DocumentClaims(
            self._records, self.documents, ledger_id=ground.ledger_id, fault=ground.fault
        )

    @cached_property
    def recalls(self) -> DocumentRecalls:
        """Restores in two steps."""
        ground = self._ground
        return DocumentRecalls(
            ground.engine, ground.tables, self._records, self.claims, fault=ground.fault
        )

    @cached_property
    def verifications(self) -> DocumentVerifications:
        """Reads the books, and lists the store."""
        return DocumentVerifications(self._ground.engine, self._ground.tables, self.documents)

    @cached_property
    def counting(self) -> DocumentCounting:
        """Counts by listing."""
        return DocumentCounting(self.documents)

    @cached_property
    def pulse(self) -> DocumentPulse:
        """Measures a look for the soonest due."""
        return DocumentPulse(self.documents)

    def seed(self, name: str, rows: Iterator[SeedRow]) -> tuple[str, int]:
        """Write documents, where the adapter can."""
        documents = self.documents
        if not isinstance(documents, Seeder):
            raise PreflightRefused(f"invented timeouts cannot be written into {documents.kind}")
        return documents.source_of(name), documents.seed(name, rows)

    def close(self) -> None:
        """Close the adapter."""
        if (documents := self.__dict__.get("documents")) is not None:
            documents.close()

    @cached_property
    def _records(self) -> DocumentLedger:
        return DocumentLedger(self._ground.engine, self._ground.tables)


def _open_azure(settings: Settings) -> DocumentStore:
    with _needing("azure"):
        from migrator.app.azure import open_azure
    return open_azure(settings)


def _open_ravendb(settings: Settings) -> DocumentStore:
    from migrator.app.ravendb import open_ravendb

    return open_ravendb(settings)


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


_SIDES: Final[Mapping[StoreKind, Callable[[Ground], StoreSide]]] = {
    StoreKind.SQL: SqlSide,
    StoreKind.NHIBERNATE: NHibernateSide,
    StoreKind.AZURE: partial(DocumentSide, _open_azure),
    StoreKind.RAVENDB: partial(DocumentSide, _open_ravendb),
}


def open_side(ground: Ground) -> StoreSide:
    """Return the side of the kind that the settings name; nothing is connected yet."""
    return _SIDES[ground.settings.store.kind](ground)
