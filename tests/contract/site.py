"""One database with a ledger and a legacy table, and shortcuts to look at both.

The legacy table is filled and read with statements of the test's own, over the columns that the
database tells, so that a mistake in the store cannot hide behind the same mistake here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, oracle
from sqlalchemy.types import TypeEngine

from migrator.database.engine import open_engine, reading, writing
from migrator.ledger.work import StoreEndpoint
from migrator.recall.restore import SqlRecalls
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.intake import SqlIntake
from migrator.stores.sql.legacy_table import build_source, parse_source
from migrator.stores.sql.seeding import create_table
from migrator.stores.sql.sql_persistence import Placement, SqlOptions, SqlStore, default_table
from migrator.stores.sql.store import Blank, TableStore
from migrator.verify.stores import SqlAudit
from tests.contract.any_site import LONG, NOW, AnySite, LegacyRow, due_in, hours, timeout_id

__all__ = ["LONG", "NOW", "LegacyRow", "Site", "due_in", "hours", "locked", "timeout_id"]

COLUMNS: Final[Mapping[str, str]] = {
    "Id": "id",
    "Destination": "destination",
    "SagaId": "saga_id",
    "State": "body",
    "Time": "due",
    "Headers": "headers",
    "PersistenceVersion": "version",
}
"""The vendor's names of columns, and what ``LegacyRow`` calls them."""
_SCHEMAS: Final[Mapping[str, str | None]] = {"mssql": "dbo", "oracle": None}
_WIDE: Final[Mapping[str, TypeEngine[Any]]] = {
    "mssql": mssql.DATETIME2(6),  # type: ignore[no-untyped-call] # SQLAlchemy's
    "oracle": oracle.TIMESTAMP(),
}
"""Of a due time that keeps all parts of a second, where the vendor's does not."""


@dataclass
class Site(AnySite):
    """A database with timeouts and the ledger, as one process sees it."""

    schema: str | None = ""
    """Empty: where the vendor's tables are by default."""
    placements: dict[str, Placement] = field(default_factory=dict)
    time_zone: str | None = None
    """Of the due column; None: UTC."""

    store: TableStore = field(init=False)
    claims: SqlClaims = field(init=False)

    def _open(self) -> None:
        self.schema = _SCHEMAS.get(self.kind, "public") if self.schema == "" else self.schema
        self.store = self.open_store()
        self.claims = SqlClaims(self.engine, self.tables, self.store.legacy_table)
        self.intake = SqlIntake(self.engine, self.tables, self.store.legacy_table)

    def open_store(self) -> TableStore:
        """Return the store as wiring would build it."""
        options = SqlOptions(
            schema=self.schema, placements=self.placements, time_zone=self.time_zone
        )
        return SqlStore(self.engine, self.tables, options)

    @property
    def kind(self) -> str:
        """The kind of database, as SQLAlchemy calls it."""
        return self.engine.dialect.name

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL."""
        return self.kind == "postgresql"

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite."""
        return self.kind == "sqlite"

    @property
    def is_mysql(self) -> bool:
        """Whether the database is MariaDB or MySQL."""
        return self.kind == "mysql"

    @property
    def has_schemas(self) -> bool:
        """Whether tables are in schemas, the ledger's too."""
        return not (self.is_sqlite or self.is_mysql)

    @property
    def unusable_times(self) -> Sequence[str | None]:
        """Due times that a row may have, and at which no timeout manager would send it."""
        found = super().unusable_times
        if not self.is_postgresql:
            return found
        return [*found, "infinity", "-infinity", "0044-03-15 12:00:00 BC", "12000-01-01 00:00:00"]

    @property
    def source(self) -> str:
        """The endpoint's table, by the vendor's rule."""
        if self.kind == "oracle":
            return self.store.source_of(self.endpoint_name)
        return self.source_of(default_table(self.endpoint_name))

    def source_of(self, table: str, schema: str | None = None) -> str:
        """Return the source of a table in this database."""
        return build_source(schema or self.schema if self.has_schemas else None, table)

    def create(self, rows: Sequence[LegacyRow] = (), source: str | None = None) -> StoreEndpoint:
        """Create the legacy table with *rows*; return its endpoint."""
        create_table(self.engine, self.blank(source or self.source))
        if self.is_mysql:
            self._widen(source or self.source)
        self.insert(rows, source=source)
        return StoreEndpoint(name=self.endpoint_name, source=source or self.source)  # type: ignore[arg-type]

    def blank(self, source: str) -> Blank:
        """Return the table as the vendor makes it, but for due times that keep all of a second."""
        blank = self.store.blank(source)
        if self.kind in _WIDE:
            blank.table.c.Time.type = _WIDE[self.kind]
        return blank

    def _widen(self, source: str) -> None:
        """Let the table hold what other databases' tables do: any text, and parts of a second.

        What the vendor's own types do to a row is looked at in ``test_store_mariadb``.
        """
        longer = 'MODIFY "Time" datetime(6), MODIFY "Headers" longtext CHARACTER SET utf8mb4'
        # not by way of the store, which would remember the table as it was
        quoted = self.engine.dialect.identifier_preparer.quote(parse_source(source)[1])
        self.execute(f"ALTER TABLE {quoted.replace('%%', '%')} {longer}")

    def insert(self, rows: Sequence[LegacyRow], *, source: str | None = None) -> None:
        """Insert rows as they are."""
        with writing(self.engine) as connection:
            table = self.as_found(connection, source)
            for row in rows:
                connection.execute(sa.insert(table).values(self._values(table, row)))

    def _values(self, table: sa.Table, row: LegacyRow) -> dict[str, Any]:
        """Return *row* as this database takes it; nothing of the store's own."""
        return {
            key: self.given(table.c[key], getattr(row, name))
            for key, name in COLUMNS.items()
            if key in table.c
        }

    def given(self, column: sa.Column[Any], value: str | bytes | None) -> Any:
        """Return *value* as this database takes it."""
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(column.type, sa.Uuid):
            return UUID(value)
        text_ = sa.literal(value, sa.String())
        if column.key == "Time" and self.is_postgresql:
            return sa.cast(text_, column.type)
        if column.key == "Time" and self.kind == "oracle":
            return sa.func.to_timestamp(text_, "YYYY-MM-DD HH24:MI:SS.FF6")
        return text_

    def legacy_rows(self, source: str | None = None) -> list[LegacyRow]:
        """Return the legacy table, by id."""
        with self.engine.connect() as connection:
            table = self.as_found(connection, source)
            found = connection.execute(self._selecting(table)).all()
        return sorted((self._row(each) for each in found), key=lambda row: row.id)

    def _selecting(self, table: sa.Table) -> sa.Select[Any]:
        """Return all rows, with columns called as in ``LegacyRow``."""
        columns = {key: table.c[key] for key in COLUMNS if key in table.c}
        read = columns | {
            "Time": self._due(table.c.Time),
            "Headers": sa.type_coerce(table.c.Headers, sa.Text),
        }
        return sa.select(*(column.label(COLUMNS[key]) for key, column in read.items()))

    def _row(self, found: sa.Row[Any]) -> LegacyRow:
        values = {**found._mapping}
        due, saga = values["due"], values["saga_id"]
        is_moment = isinstance(due, datetime)
        return LegacyRow(
            **values
            | {
                "id": str(guid_of(values["id"])),
                "saga_id": None if saga is None else str(guid_of(saga)),
                "due": due.isoformat(" ", "microseconds") if is_moment else due,
            }
        )

    def _due(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Return a due time as text, where what it may be is more than Python has moments."""
        if self.is_postgresql:
            return sa.func.to_char(column, "YYYY-MM-DD HH24:MI:SS.US")
        if self.is_mysql:
            return sa.func.date_format(column, "%Y-%m-%d %H:%i:%s.%f")
        return column

    def as_found(self, connection: sa.Connection, source: str | None = None) -> sa.Table:
        """Return the legacy table as the database tells it, by the vendor's names of columns."""
        schema, name = parse_source(source or self.source)
        keys = {key.casefold(): key for key in (*COLUMNS, "Endpoint")} | {"expiretime": "Time"}
        columns = [
            sa.Column(each["name"], each["type"], key=keys.get(each["name"].casefold()))
            for each in sa.inspect(connection).get_columns(name, schema=schema)
        ]
        return sa.Table(name, sa.MetaData(), *columns, schema=schema)

    def quoted(self, source: str | None = None) -> str:
        """Return the legacy table's name as SQL."""
        table = self.store.legacy_table(source or self.source).table
        return self.engine.dialect.identifier_preparer.format_table(table).replace("%%", "%")

    def execute(self, statement: str, **values: Any) -> None:
        """Run SQL of the test's own."""
        if self.kind in _WIDE:
            pytest.skip(f"the test's own SQL is not written for {self.kind}")
        with writing(self.engine) as connection:
            connection.execute(sa.text(statement), values)

    vendor_state = "TimeoutsMigration_State"

    @contextmanager
    def vendor_run(self) -> Iterator[None]:
        """Leave an open run in the vendor's table, and afterwards a finished one."""
        self.execute(
            f'CREATE TABLE "{self.vendor_state}" ("MigrationRunId" varchar(50), '
            '"EndpointName" varchar(100), "Status" int, "RunParameters" varchar(50))'
        )
        self.execute(
            f"INSERT INTO \"{self.vendor_state}\" VALUES ('run-1', :name, 1, 'secret')",
            name=self.endpoint_name,
        )
        yield
        self.execute(f'UPDATE "{self.vendor_state}" SET "Status" = 2')

    @contextmanager
    def default_zone(self, zone: str) -> Iterator[None]:
        """Have the server give new sessions a time zone, where it has such a thing."""
        name = self.engine.url.database
        there, back = {
            "postgresql": (
                f"ALTER DATABASE {name} SET timezone = '{zone}'",
                f"ALTER DATABASE {name} RESET timezone",
            ),
            "mysql": ("SET GLOBAL time_zone = '+12:45'", "SET GLOBAL time_zone = DEFAULT"),
        }.get(self.engine.dialect.name, ("", ""))
        if there:
            self.execute(there)
        yield
        if back:
            self.execute(back)

    @property
    def manager(self) -> TableManager:
        """The endpoint's timeout manager."""
        return TableManager(self)

    def is_mine(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Return whose rows of the table are the endpoint's: all."""
        return sa.true()

    def recalls(self) -> SqlRecalls:
        """Return what puts handed-over rows back."""
        return SqlRecalls(self.engine, self.tables, self.store, self.claims)

    def audit(self) -> SqlAudit:
        """Return what reads the ledger to verify it."""
        return SqlAudit(self.engine, self.tables, self.store)

    def second(self, endpoint_name: str | None = None) -> Self:
        """Return the same database as another process would open it."""
        return type(self)(
            engine=open_engine(self.engine.url),
            endpoint_name=endpoint_name or self.endpoint_name,
            schema=self.schema,
            placements=self.placements,
            time_zone=self.time_zone,
        )


def guid_of(value: object) -> object:
    """Return an id as a database gives it: bytes are a GUID's, all else is its text."""
    return UUID(bytes_le=value) if isinstance(value, bytes) else value


def locked(connection: sa.Connection, quoted: str, row_id: str) -> None:
    """Delete a row like a timeout manager does, without committing yet."""
    key = "CAST(:id AS uuid)" if connection.dialect.name == "postgresql" else ":id"
    statement = sa.text(f'DELETE FROM {quoted} WHERE "Id" = {key}')
    assert connection.execute(statement, {"id": row_id}).rowcount == 1


@dataclass(frozen=True)
class TableManager:
    """A timeout manager at a legacy table: asks what the persistence asks, and no more.

    Each call is a transaction of its own. Source: reference ``timeout-manager.md``.
    """

    site: Site

    def due(self) -> Sequence[str]:
        """Return the ids of all timeouts that it knows of, soonest first."""
        with reading(self.site.engine) as connection:
            table = self.site.as_found(connection)
            query = sa.select(table.c.Id).where(self.site.is_mine(table)).order_by(table.c.Time)
            return [str(guid_of(each)) for each in connection.scalars(query)]

    def peek(self, row_id: str) -> bool:
        """Return whether it would send this timeout now."""
        with reading(self.site.engine) as connection:
            key = self.site.as_found(connection).c.Id
            query = sa.select(key).where(key == self.site.given(key, row_id))
            return connection.execute(query).first() is not None

    def remove(self, row_id: str) -> bool:
        """Remove a timeout that is about to be sent; False: it is gone, and is not sent."""
        return self._removed("Id", row_id) == 1

    def remove_saga(self, saga_id: str) -> int:
        """Remove all timeouts of a saga that has ended; return how many there were."""
        return self._removed("SagaId", saga_id)

    def _removed(self, name: str, guid: str) -> int:
        with writing(self.site.engine) as connection:
            table = self.site.as_found(connection)
            is_called = table.c[name] == self.site.given(table.c[name], guid)
            which = sa.delete(table).where(is_called, self.site.is_mine(table))
            return connection.execute(which).rowcount
