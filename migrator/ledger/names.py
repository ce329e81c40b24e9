"""What the ledger's tables are called: in a schema of their own, or with a prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

DEFAULT_SCHEMA: Final = "migrator"
PREFIX: Final = "migrator_"
_WITH_SCHEMAS: Final = frozenset({"postgresql", "mssql"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerNames:
    """Schema and prefix of all ledger tables; exactly one of the two is used."""

    dialect: str
    """The kind of database, as SQLAlchemy calls it."""
    schema: str | None
    prefix: str

    def table(self, noun: str) -> str:
        """Return the name of a table, view or index, without its schema."""
        return self.prefix + noun


def ledger_names(dialect: str, schema: str = DEFAULT_SCHEMA) -> LedgerNames:
    """Return how the ledger is named on *dialect*; *schema* counts only where there are any."""
    if dialect in _WITH_SCHEMAS:
        return LedgerNames(dialect=dialect, schema=schema, prefix="")
    return LedgerNames(dialect=dialect, schema=None, prefix=PREFIX)


def quoted(name: str) -> str:
    """Return *name* as SQL text, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def names_for(engine: Engine, schema: str = DEFAULT_SCHEMA) -> LedgerNames:
    """Return how the ledger is named in the database of *engine*."""
    return ledger_names(engine.dialect.name, schema)
