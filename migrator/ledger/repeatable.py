"""Migrations on MariaDB, MySQL and Oracle, where each statement is committed by itself.

Rules of this file: each step is done or not, never half (the servers' own promise for a single
statement); so an upgrade that was killed in between is brought to its end by the next one, which
leaves out what is there already. The version is written last. The scripts need not know.
"""

from __future__ import annotations

from typing import Any, Final

from alembic.ddl.impl import DefaultImpl
from alembic.ddl.mysql import MySQLImpl
from alembic.ddl.oracle import OracleImpl
from sqlalchemy import Column, Index, Insert, Inspector, Table, inspect

TABLE_OPTIONS: Final = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
"""Keys are compared byte by byte, and a table has transactions, whatever the server's defaults."""


class Repeatable(DefaultImpl):
    """Steps that are left out when they are done already."""

    def create_table(self, table: Table, **options: Any) -> None:
        """Create a table with its indexes, or those of its indexes that are missing."""
        if not self._has_table(table):
            super().create_table(table, **options)
            return
        for index in table.indexes:
            self.create_index(index)

    def create_index(self, index: Index, **options: Any) -> None:
        """Create an index that is not there yet."""
        table = index.table
        found = self._look().get_indexes(table.name) if table is not None and self._sees() else []
        if index.name not in {each["name"] for each in found}:
            super().create_index(index, **options)

    def add_column(self, table_name: str, column: Column[Any], **options: Any) -> None:
        """Add a column that is not there yet."""
        found = self._look().get_columns(table_name) if self._sees() else []
        if column.name not in {each["name"] for each in found}:
            super().add_column(table_name, column, **options)

    def _has_table(self, table: Table) -> bool:
        return self._sees() and self._look().has_table(table.name)

    def _sees(self) -> bool:
        """Whether there is a database to look at; for a DBA to read, all is printed."""
        return not self.as_sql

    def _look(self) -> Inspector:
        if self.connection is None:
            raise RuntimeError("migrations are run on a connection")
        return inspect(self.connection)


class RepeatableMySQLImpl(Repeatable, MySQLImpl):
    """What alembic does on MariaDB and MySQL from here on."""

    __dialect__ = "mysql"

    def create_table(self, table: Table, **options: Any) -> None:
        """Create a table as all of them are."""
        for name, value in TABLE_OPTIONS.items():
            table.dialect_kwargs.setdefault(name, value)
        super().create_table(table, **options)


class RepeatableOracleImpl(Repeatable, OracleImpl):
    """What alembic does on Oracle from here on."""

    __dialect__ = "oracle"

    def _exec(self, construct: Any, *args: Any, **options: Any) -> Any:
        """Have no row return what it was given: a script has no place for it."""
        is_insert = isinstance(construct, Insert)
        return super()._exec(construct.inline() if is_insert else construct, *args, **options)


DIALECTS: Final = (RepeatableMySQLImpl.__dialect__, RepeatableOracleImpl.__dialect__)
"""Kinds of database that commit each step by itself."""
