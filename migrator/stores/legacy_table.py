"""A legacy timeouts table as a SQLAlchemy table, whatever its columns are really called.

The seven columns of SQL Persistence are reached by the vendor's names (``table.c.Time``); what
else somebody added to the table is left alone. Source: reference ``legacy-stores.md`` 1.2, 1.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.types import TypeEngine, Uuid

from migrator.database.types import UtcDateTime

COLUMNS: Final = (
    "Id",
    "Destination",
    "SagaId",
    "State",
    "Time",
    "Headers",
    "PersistenceVersion",
)
EARLIEST: Final = datetime(1000, 1, 1, tzinfo=UTC)
"""Where the timeout manager's search begins; what is due before it is never sent."""
LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_PLAIN: Final = re.compile(r'[^."]+')
_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


class NotATimeoutsTable(ValueError):
    """The table lacks columns of a timeouts table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyTable:
    """One endpoint's table."""

    source: str
    """``schema.table``, unique in the database; what the ledger remembers."""
    table: Table
    """Columns keyed by the vendor's names."""
    owner: str | None = None
    """In a table that endpoints share: whose rows are meant. None: all rows are one endpoint's."""

    @property
    def is_owned(self) -> tuple[ColumnElement[bool], ...]:
        """The conditions under which a row is the endpoint's; none where all of them are."""
        return () if self.owner is None else (self.table.c.Endpoint == self.owner,)

    @property
    def keys(self) -> tuple[str, ...]:
        """Those of ``COLUMNS`` that the table has."""
        return tuple(key for key in COLUMNS if key in self.table.c)

    @property
    def constants(self) -> Mapping[str, str]:
        """What every row of the endpoint has in columns that the ledger does not keep."""
        return {} if self.owner is None else {"Endpoint": self.owner}


def build_source(schema: str | None, table: str) -> str:
    """Return ``schema.table``, with double quotes round a part that holds a dot or a quote."""
    parts = [table] if schema is None else [schema, table]
    return ".".join(part if _PLAIN.fullmatch(part) else _quote(part) for part in parts)


def parse_source(source: str) -> tuple[str | None, str]:
    """Return the schema (None: the database has none) and table that *source* was built from.

    Raises:
        ValueError: It was not built by ``build_source``.
    """
    parts = [plain or quoted.replace('""', '"') for quoted, plain in _PART.findall(source)]
    if not 1 <= len(parts) <= 2 or build_source(*(_padded(parts))) != source:
        raise ValueError(f"{source!r} names no table")
    return _padded(parts)


def timeouts_table(
    schema: str | None, name: str, columns: Iterable[Mapping[str, Any]]
) -> LegacyTable:
    """Return the table called *name* with *columns* as an inspector reports them.

    Raises:
        NotATimeoutsTable: Not all seven columns are there.
    """
    actual = {column["name"].casefold(): column for column in columns}
    missing = [wanted for wanted in COLUMNS if wanted.casefold() not in actual]
    if missing:
        raise NotATimeoutsTable(f"{name} has no column {', '.join(missing)}")
    table = Table(
        name,
        MetaData(),
        *(_column(wanted, actual[wanted.casefold()]) for wanted in COLUMNS),
        schema=schema,
    )
    return LegacyTable(source=build_source(schema, name), table=table)


def _column(key: str, found: Mapping[str, Any]) -> Column[Any]:
    return Column(found["name"], _type_of(key, found["type"]), key=key)


def _type_of(key: str, found: TypeEngine[Any]) -> TypeEngine[Any]:
    if isinstance(found, Uuid):
        return UUID(as_uuid=False)
    if key == "Time":
        return UtcDateTime(
            with_zone=bool(getattr(found, "timezone", False)),
            # MySQL's DATETIME has none unless it says so
            fraction_digits=(found.fsp or 0) if isinstance(found, mysql.DATETIME) else 6,
        )
    return LargeBinary() if key == "State" else Text()


def _quote(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def _padded(parts: list[str]) -> tuple[str | None, str]:
    return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])
