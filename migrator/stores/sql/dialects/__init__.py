"""The differences between SQL databases, one file per kind; all other SQL is the same.

Start with ``base``: what a kind has to define, with defaults that are valid anywhere.
``dialect_for`` finds the kind by its name in SQLAlchemy.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from migrator.errors import StoreError
from migrator.stores.sql.dialects.base import Dialect

__all__ = ["Dialect", "dialect_for"]

_KINDS: Final = {
    "mssql": "MssqlDialect",
    "mysql": "MysqlDialect",
    "oracle": "OracleDialect",
    "postgresql": "PostgresqlDialect",
    "sqlite": "SqliteDialect",
}
"""Imported when a database of its kind is opened, because each imports SQLAlchemy's types."""


@cache
def dialect_for(name: str) -> Dialect:
    """Raise ``StoreError`` if timeouts in such a database are not supported."""
    if name not in _KINDS:
        raise StoreError(f"timeouts in a {name} database are not supported")
    kind: Dialect = getattr(import_module(f"{__name__}.{name}"), _KINDS[name])()
    return kind
