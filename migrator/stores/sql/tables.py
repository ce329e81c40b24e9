"""What a store in a SQL database can tell of its tables, beyond what any store can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Table

from migrator.stores.ports import Store
from migrator.stores.sql.claims import LegacyTables


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A table as the vendor makes it, to be created and filled for rehearsals."""

    table: Table
    """With its types and indexes; columns keyed by the vendor's names."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """What every row of the endpoint has beyond what a timeout has."""
    has_compact_headers: bool = False
    """Headers are one line, with slashes escaped; else they are indented."""
    time_zone: str | None = None
    """In which due times are written; None: UTC."""


class TableStore(Store, LegacyTables, Protocol):
    """A store whose timeouts are rows of tables."""

    @property
    def shares_table(self) -> bool:
        """Whether endpoints share one table."""
        ...

    def source_of(self, name: str) -> str:
        """Return where the rows of the endpoint *name* are, or would be."""
        ...

    def location(self, source: str) -> tuple[str | None, str]:
        """Return schema (None: the database has none) and name of the table of *source*.

        Raises:
            StoreError: *source* is none of this store's.
        """
        ...

    def blank(self, source: str) -> Blank:
        """Return the table of *source* as the vendor would make it."""
        ...
