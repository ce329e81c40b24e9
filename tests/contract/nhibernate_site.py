"""The same site with NHibernate's table, which other endpoints have rows in as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text

from migrator.database.engine import writing
from migrator.ports import StoreEndpoint
from migrator.stores.nhibernate import NHibernateOptions, NHibernateStore
from migrator.stores.seeding import create_table
from tests.contract.site import LegacyRow, Site

COLUMNS = ("Id", "Destination", "SagaId", "State", "Endpoint", "Time", "Headers")
_SUFFIX = "_TimeoutData"
NEIGHBOUR = UUID(int=2**127)


@dataclass
class NHibernateSite(Site):
    """A database with a table that endpoints share."""

    options: NHibernateOptions = field(default_factory=NHibernateOptions)
    versions: dict[str, str | None] = field(default_factory=dict)
    """What tests gave as version; there is no column for it."""

    def open_store(self) -> NHibernateStore:
        """Return the store as wiring would build it."""
        return NHibernateStore(self.engine, self.tables, self.options)

    @property
    def table(self) -> str:
        """The table as the database spells it, with its schema."""
        return f"{self.schema}.timeoutentity" if self.has_schemas else "TimeoutEntity"

    @property
    def source(self) -> str:
        """The endpoint's rows."""
        return self.source_of(self.endpoint_name)

    def source_of(self, table: str, schema: str | None = None) -> str:
        """Return the rows of the endpoint whose own table would be called *table*."""
        del schema
        owner = table.removesuffix(_SUFFIX)
        return f"{self.table}#{owner.lower() if self.is_mysql else owner}"

    def create(self, rows: Sequence[LegacyRow] = (), source: str | None = None) -> StoreEndpoint:
        """Create the table with *rows*, and one of another endpoint."""
        is_new = self.store.endpoints() == []
        create_table(self.engine, self.store.blank(source or self.source))
        if is_new:
            other = LegacyRow(id=str(NEIGHBOUR), due="2026-03-01 12:00:01.000000")
            self.insert([other], source=f"{self.table}#Other.Endpoint")
        return super().create(rows, source=source)

    def _widen(self, source: str) -> None:
        """Let the table hold any text, as other databases' tables do."""
        del source
        self.execute('ALTER TABLE "TimeoutEntity" CONVERT TO CHARACTER SET utf8mb4')

    def insert(self, rows: Sequence[LegacyRow], *, source: str | None = None) -> None:
        """Insert rows as they are."""
        owner = (source or self.source).partition("#")[2]
        if owner == self.endpoint_name.lower():
            owner = self.endpoint_name  # where letter case means nothing, sources have none
        columns = ", ".join(COLUMNS)
        given = ":id, :destination, :saga_id, :body, :owner, CAST(:due AS timestamp), :headers"
        if not self.has_schemas:
            given = given.replace("CAST(:due AS timestamp)", ":due")
        statement = text(f"INSERT INTO {self.quoted(source)} ({columns}) VALUES ({given})")
        with writing(self.engine) as connection:
            for row in rows:
                self.versions[row.id] = row.version
                ids = {"id": self.stored(row.id), "saga_id": self.stored(row.saga_id)}
                connection.execute(statement, {**vars(row), **ids, "owner": owner})

    def legacy_rows(self, source: str | None = None) -> list[LegacyRow]:
        """Return the endpoint's rows, by id."""
        owner = (source or self.source).partition("#")[2]
        due = "Time" if self.is_sqlite else "to_char(Time, 'YYYY-MM-DD HH24:MI:SS.US')"
        if self.is_mysql:
            due = "date_format(Time, '%Y-%m-%d %H:%i:%s.%f')"
        query = (
            f"SELECT Id, Destination, SagaId, State, {due}, Headers FROM {self.quoted(source)} "
            "WHERE Endpoint = :owner ORDER BY Id"
        )
        with self.engine.connect() as connection:
            found = [
                LegacyRow(
                    id=str(_guid(r[0])),
                    destination=r[1],
                    saga_id=None if r[2] is None else str(_guid(r[2])),
                    body=r[3],
                    due=r[4],
                    headers=r[5],
                    version=self.versions.get(str(_guid(r[0])), LegacyRow.version),
                )
                for r in connection.execute(text(query), {"owner": owner})
            ]
        return sorted(found, key=lambda row: row.id)

    def quoted(self, source: str | None = None) -> str:
        """Return the table's name as SQL."""
        del source
        return self.table

    def stored(self, guid: str | None) -> object:
        """Return a GUID as NHibernate's driver for this database writes it."""
        if guid is None:
            return None
        return UUID(guid) if self.has_schemas else UUID(guid).bytes_le


def _guid(value: object) -> UUID:
    return UUID(bytes_le=value) if isinstance(value, bytes) else UUID(str(value))
