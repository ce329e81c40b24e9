"""The same site with NHibernate's table, which other endpoints have rows in as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, Table, insert
from sqlalchemy.types import _Binary

from migrator.database.engine import writing
from migrator.ledger.work import StoreEndpoint
from migrator.stores.sql.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.sql.seeding import create_table
from tests.contract.any_site import LegacyRow
from tests.contract.site import Site

_SUFFIX = "_TimeoutData"
_CASELESS = frozenset({"mysql", "mssql"})
"""Where endpoints that differ in letter case are one, as a rule."""
_WITH_GUIDS = frozenset({"postgresql", "mssql"})
NEIGHBOUR = UUID(int=2**127)


@dataclass
class NHibernateSite(Site):
    """A database with a table that endpoints share."""

    options: NHibernateOptions = field(default_factory=NHibernateOptions)
    vendor_state = "migrationsentity"

    versions: dict[str, str | None] = field(default_factory=dict)
    """What tests gave as version; there is no column for it."""

    def open_store(self) -> NHibernateStore:
        """Return the store as wiring would build it."""
        return NHibernateStore(self.engine, self.tables, self.options)

    @property
    def table(self) -> str:
        """The table as the database spells it, with its schema."""
        if self.kind == "oracle":
            return "timeoutentity"
        if self.is_postgresql:
            return f"{self.schema}.timeoutentity"
        return f"{self.schema}.TimeoutEntity" if self.has_schemas else "TimeoutEntity"

    @property
    def source(self) -> str:
        """The endpoint's rows."""
        return self.source_of(self.endpoint_name)

    def source_of(self, table: str, schema: str | None = None) -> str:
        """Return the rows of the endpoint whose own table would be called *table*."""
        owner = table.removesuffix(_SUFFIX)
        return f"{self.table}#{owner.lower() if self.kind in _CASELESS else owner}"

    def create(self, rows: Sequence[LegacyRow] = (), source: str | None = None) -> StoreEndpoint:
        """Create the table with *rows*, and one of another endpoint."""
        is_new = self.store.endpoints() == []
        create_table(self.engine, self.blank(source or self.source))
        if is_new:
            other = LegacyRow(id=str(NEIGHBOUR), due="2026-03-01 12:00:01.000000")
            self.insert([other], source=f"{self.table}#Other.Endpoint")
        return super().create(rows, source=source)

    def _widen(self, source: str) -> None:
        """Let the table hold any text, as other databases' tables do."""
        self.execute('ALTER TABLE "TimeoutEntity" CONVERT TO CHARACTER SET utf8mb4')

    def insert(self, rows: Sequence[LegacyRow], *, source: str | None = None) -> None:
        """Insert rows as they are."""
        owner = (source or self.source).partition("#")[2]
        if owner == self.endpoint_name.lower():
            owner = self.endpoint_name  # where letter case means nothing, sources have none
        with writing(self.engine) as connection:
            table = self.as_found(connection)
            for row in rows:
                self.versions[row.id] = row.version
                values = self._values(table, row) | {"Endpoint": owner}
                connection.execute(insert(table).values(values))

    def legacy_rows(self, source: str | None = None) -> list[LegacyRow]:
        """Return the endpoint's rows, by id."""
        owner = (source or self.source).partition("#")[2]
        with self.engine.connect() as connection:
            table = self.as_found(connection)
            query = self._selecting(table).where(table.c.Endpoint == owner)
            found = [self._row(each) for each in connection.execute(query)]
        rows = [replace(row, version=self.versions.get(row.id, LegacyRow.version)) for row in found]
        return sorted(rows, key=lambda row: row.id)

    def as_found(self, connection: Connection, source: str | None = None) -> Table:
        """Return the table that endpoints share."""
        return super().as_found(connection, self.table)

    def is_mine(self, table: Table) -> ColumnElement[bool]:
        """Return whose rows of the table are the endpoint's."""
        return table.c.Endpoint == self.endpoint_name

    def quoted(self, source: str | None = None) -> str:
        """Return the table's name as SQL."""
        return self.table

    def given(self, column: Column[Any], value: str | bytes | None) -> Any:
        """Return ids as NHibernate's driver for this database writes them."""
        if column.key in {"Id", "SagaId"} and isinstance(value, str):
            is_bytes = isinstance(column.type, _Binary)
            return UUID(value).bytes_le if is_bytes else UUID(value)
        return super().given(column, value)

    def stored(self, guid: str) -> object:
        """Return a GUID as NHibernate's driver for this database writes it."""
        return UUID(guid) if self.kind in _WITH_GUIDS else UUID(guid).bytes_le
