"""Bringing the ledger to the version this program needs.

Only ``migrator db upgrade`` changes tables; ``db sql`` prints SQL for a DBA.

Rules of this file: an upgrade is one transaction under one lock. A second one waits and then finds
nothing to do. Where a database commits each statement by itself (``Repeatable``), each step is done
or not, never half, and the version is written last. The next upgrade then finishes one that was
killed, and skips what exists. The daemon only checks, with ``version``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.ddl.impl import DefaultImpl
from alembic.ddl.mysql import MySQLImpl
from alembic.ddl.oracle import OracleImpl
from sqlalchemy import Column, Connection, Engine, Index, Insert, Inspector, Table, inspect, text
from sqlalchemy.schema import CreateSchema

from migrator.database import mssql, mysql
from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.database.sessions import Timeouts
from migrator.documents import Document
from migrator.errors import LedgerError, StoreUnavailable
from migrator.ledger.identity import enter_identity
from migrator.ledger.tables import LedgerTables, build_tables, ledger_names, quoted
from migrator.ledger.version import check_upgradable, script_location

UPGRADE_LOCK: Final = 6_294_018_377_315_624_229
_UPGRADE_LOCK_TIMEOUT_S: Final = 60
_UPGRADE_TIMEOUTS: Final = Timeouts(
    lock=timedelta(minutes=1), statement=timedelta(hours=1), idle=timedelta(minutes=5)
)
_GRANTED: Final = (0, 1)
_NOT_NOW: Final = (-1, -2, -3)
DIALECTS: Final = ("postgresql", "mysql", "oracle", "mssql", "sqlite")


def upgrade(engine: Engine, tables: LedgerTables) -> None:
    """Create the ledger or bring it to the newest version; repeating is harmless.

    Raises:
        LedgerError: A right is missing.
        LedgerMissing: The ledger is newer than this program. Nothing was changed.
    """
    doing = "upgrading the ledger"
    with translating(LedgerError, doing=doing), _alone(engine) as connection:
        check_upgradable(connection, tables)
        if tables.names.schema is not None:
            _create_schema(connection, tables.names.schema)
        command.upgrade(_config(tables, connection=connection), "head")
        enter_identity(connection, tables)


class SqlDocument(Document, title="migrator/db-sql/1"):
    """`migrator db sql --json`."""

    dialect: str
    sql: str


def sql(dialect: str, schema: str) -> str:
    tables = build_tables(ledger_names(dialect, schema))
    written = io.StringIO()
    config = _config(tables, dialect=dialect, output=written)
    if tables.names.schema is not None:
        written.write(_schema_sql(dialect, tables.names.schema) + "\n\n")
    command.upgrade(config, "head", sql=True)
    return written.getvalue()


_OURS_ON_MSSQL: Final = {"key": f"migrator.{UPGRADE_LOCK}"}
_LOCK_ON_MSSQL: Final = text(
    "SET NOCOUNT ON; DECLARE @taken int; EXEC @taken = sp_getapplock @Resource = :key, "
    "@LockMode = 'Exclusive', @LockOwner = 'Session', @LockTimeout = :ms; "
    "SET NOCOUNT OFF; SELECT @taken"
)
_UNLOCK_ON_MSSQL: Final = text("EXEC sp_releaseapplock @Resource = :key, @LockOwner = 'Session'")


@contextmanager
def _locked_on_mssql(connection: Connection) -> Iterator[None]:
    """Hold a lock of this database that belongs to the session, and outlives transactions.

    A transaction's lock is refused (-999) until a transaction is open. With ODBC transactions begin
    implicitly, and no lock begins one; BEGIN TRANSACTION would open a second level there.
    """
    mssql.change_timeouts(connection, _UPGRADE_TIMEOUTS)
    asked = {**_OURS_ON_MSSQL, "ms": _UPGRADE_LOCK_TIMEOUT_S * 1000}
    taken = connection.scalar(_LOCK_ON_MSSQL, asked)
    connection.commit()  # nothing: so that the upgrade begins its own transaction
    if taken not in _GRANTED:
        if taken in _NOT_NOW:
            raise StoreUnavailable("another process is upgrading the ledger; try again")
        raise LedgerError(
            f"the database refused the upgrade lock: sp_getapplock returned {taken}; no other "
            "process has it, so trying again does not help; check that this user may execute it "
            "in this database"
        )
    try:
        yield
    finally:
        if not connection.invalidated:  # a lost session has lost its locks, too
            connection.execute(_UNLOCK_ON_MSSQL, _OURS_ON_MSSQL)
            connection.commit()


def _config(
    tables: LedgerTables,
    *,
    connection: Connection | None = None,
    dialect: str | None = None,
    output: io.StringIO | None = None,
) -> Config:
    config = Config(output_buffer=output) if output else Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.attributes.update(
        connection=connection, names=tables.names, metadata=tables.metadata, dialect=dialect
    )
    return config


def _create_schema(connection: Connection, schema: str) -> None:
    if connection.dialect.name == "mssql":
        connection.exec_driver_sql(_mssql_schema(schema))
    else:
        connection.execute(CreateSchema(schema, if_not_exists=True))


def _schema_sql(dialect: str, schema: str) -> str:
    if dialect == "mssql":
        # sqlcmd sets neither, and an index on a computed column wants both
        settings = "SET QUOTED_IDENTIFIER ON;\n\nGO\n\nSET ANSI_NULLS ON;\n\nGO\n\n"
        return f"{settings}{_mssql_schema(schema)};\n\nGO"
    return f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};"


def _mssql_schema(schema: str) -> str:
    """Return a batch of its own: CREATE SCHEMA must be the only statement in its batch."""
    literal = schema.replace("'", "''")
    bracketed = schema.replace("]", "]]")
    creating = f"CREATE SCHEMA [{bracketed}]".replace("'", "''")
    return f"IF SCHEMA_ID(N'{literal}') IS NULL EXEC(N'{creating}')"


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes, while no other process upgrades this database.

    Raises:
        StoreUnavailable: Another process upgrades for longer than a minute.
        LedgerError: The lock was refused permanently.
    """
    if engine.dialect.name == "mssql":  # given back when the transaction has ended
        with (
            engine.connect() as connection,
            _locked_on_mssql(connection),
            connection.begin(),
        ):
            yield connection
        return
    with writing(engine) as connection, _locked(connection):
        yield connection


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_UPGRADE_LOCK_TIMEOUT_S}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
    if connection.dialect.name != "mysql":
        yield
        return
    mysql.change_timeouts(connection, _UPGRADE_TIMEOUTS)
    # a lock of the whole server, held by the session: no statement commits it away
    key = {"key": f"migrator.{UPGRADE_LOCK}", "seconds": _UPGRADE_LOCK_TIMEOUT_S}
    own = "concat(:key, '.', crc32(database()))"
    if connection.scalar(text(f"SELECT get_lock({own}, :seconds)"), key) != 1:
        raise StoreUnavailable("another process is upgrading the ledger; try again")
    try:
        yield
    finally:
        if not connection.invalidated:  # a lost session has lost its locks, too
            connection.execute(text(f"SELECT release_lock({own})"), {"key": key["key"]})


TABLE_OPTIONS: Final = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
"""Keys are compared byte by byte, and tables have transactions, whatever the server's defaults."""


class Repeatable(DefaultImpl):
    def create_table(self, table: Table, **options: Any) -> None:
        if not self._has_table(table):
            super().create_table(table, **options)
            return
        for index in table.indexes:
            self.create_index(index)

    def create_index(self, index: Index, **options: Any) -> None:
        table = index.table
        found = self._look().get_indexes(table.name) if table is not None and self._sees() else []
        if index.name not in {each["name"] for each in found}:
            super().create_index(index, **options)

    def add_column(self, table_name: str, column: Column[Any], **options: Any) -> None:
        found = self._look().get_columns(table_name) if self._sees() else []
        if column.name not in {each["name"] for each in found}:
            super().add_column(table_name, column, **options)

    def _has_table(self, table: Table) -> bool:
        return self._sees() and self._look().has_table(table.name)

    def _sees(self) -> bool:
        return not self.as_sql

    def _look(self) -> Inspector:
        if self.connection is None:
            raise RuntimeError("migrations are run on a connection")
        return inspect(self.connection)


class RepeatableMySQLImpl(Repeatable, MySQLImpl):
    __dialect__ = "mysql"

    def create_table(self, table: Table, **options: Any) -> None:
        for name, value in TABLE_OPTIONS.items():
            table.dialect_kwargs.setdefault(name, value)
        super().create_table(table, **options)


class RepeatableOracleImpl(Repeatable, OracleImpl):
    __dialect__ = "oracle"

    def _exec(self, construct: Any, *args: Any, **options: Any) -> Any:
        """Inserts return no values: a script has no place for them."""
        is_insert = isinstance(construct, Insert)
        return super()._exec(construct.inline() if is_insert else construct, *args, **options)
