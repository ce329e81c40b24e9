"""What differs between SQL databases, one file per kind; everything else is the same SQL.

Start with ``base``: what a kind has to define, with defaults that hold anywhere. ``dialect_for``
finds the kind by its name in SQLAlchemy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from migrator.errors import StoreError
from migrator.stores.sql.dialects.base import Dialect
from migrator.stores.sql.dialects.mssql import MssqlDialect
from migrator.stores.sql.dialects.mysql import MysqlDialect
from migrator.stores.sql.dialects.oracle import OracleDialect
from migrator.stores.sql.dialects.postgresql import PostgresqlDialect
from migrator.stores.sql.dialects.sqlite import SqliteDialect

__all__ = ["Dialect", "dialect_for"]

_DIALECTS: Final[Mapping[str, Dialect]] = {
    "mssql": MssqlDialect(),
    "mysql": MysqlDialect(),
    "oracle": OracleDialect(),
    "postgresql": PostgresqlDialect(),
    "sqlite": SqliteDialect(),
}


def dialect_for(name: str) -> Dialect:
    """Return the dialect of the kind of database that SQLAlchemy calls *name*.

    Raises:
        StoreError: Timeouts in such a database are not supported.
    """
    try:
        return _DIALECTS[name]
    except KeyError:
        raise StoreError(f"timeouts in a {name} database are not supported") from None
