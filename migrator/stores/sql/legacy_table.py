"""A legacy timeouts table as a SQLAlchemy table, whatever the names of its columns.

The columns of SQL Persistence and of NHibernate have the vendor's names (``table.c.Time``). Other
columns of the table are ignored.
Source: reference ``legacy-stores.md`` 1.2, 1.3, 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.types import TypeEngine, Uuid
from sqlalchemy.types import _Binary as Binary

from migrator.database.types import ColumnTime, GuidBytes, UtcDateTime
from migrator.stores.sql.local_time import LocalTime

COLUMNS: Final = (
    "Id",
    "Destination",
    "SagaId",
    "State",
    "Time",
    "Headers",
    "PersistenceVersion",
)
SHARED_COLUMNS: Final = (*COLUMNS[:4], "Endpoint", *COLUMNS[4:6])
_GUIDS: Final = ("Id", "SagaId")
EARLIEST: Final = datetime(1000, 1, 1, tzinfo=UTC)
"""The begin of the timeout manager's search; it never sends rows due before."""
LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_ORACLE_TIME: Final = "expiretime"
_TYPED: Final = frozenset({"mssql", "oracle"})
_PLAIN: Final = re.compile(r'[^."#]+')
_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([^."#]+)')
_SHARED: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^"#])+#(.*)', re.DOTALL)


class NotATimeoutsTable(ValueError):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyTable:
    source: str
    """As ``build_source`` returns it; the ledger stores it, unique in the database."""
    table: sa.Table
    owner: str | None = None
    """The endpoint whose rows are meant in a shared table. None: all rows are one endpoint's."""

    before: str | None = None
    """Only rows with a lower key are meant; None: all."""

    @property
    def is_owned(self) -> tuple[sa.ColumnElement[bool], ...]:
        key = self.table.c.Id
        owned = () if self.owner is None else (self.table.c.Endpoint == self.owner,)
        below = () if self.before is None else (key < sa.literal(self.before, key.type),)
        return *owned, *below

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in COLUMNS if key in self.table.c)

    @property
    def lock_column(self) -> str:
        """A column that no claim reads by, for the right to lock rows."""
        key = "PersistenceVersion" if "PersistenceVersion" in self.table.c else "Headers"
        return self.table.c[key].name

    @property
    def constants(self) -> Mapping[str, str]:
        """Values of the endpoint's rows in columns that the ledger does not store."""
        return {} if self.owner is None else {"Endpoint": self.owner}


def build_source(schema: str | None, table: str, owner: str | None = None) -> str:
    """Return ``schema.table``; of a shared table with ``#`` and *owner* behind it.

    A part that contains a dot, a quote or a ``#`` is in double quotes.
    """
    parts = [table] if schema is None else [schema, table]
    named = ".".join(part if _PLAIN.fullmatch(part) else _quote(part) for part in parts)
    return named if owner is None else f"{named}#{owner}"


def parse_source(source: str) -> tuple[str | None, str]:
    """Return schema (None: there is none) and table.

    Raises:
        ValueError: It was not built by ``build_source``, or with an owner.
    """
    parts = [plain or quoted.replace('""', '"') for quoted, plain in _PART.findall(source)]
    if not 1 <= len(parts) <= 2 or build_source(*(place := _place(parts))) != source:
        raise ValueError(f"{source!r} names no table")
    return place


def owner_of(source: str) -> str:
    """Raise ``ValueError`` if *source* has no owner."""
    found = _SHARED.fullmatch(source)
    if found is None:
        raise ValueError(f"{source!r} names no endpoint's part of a table")
    return found[1]


def timeouts_table(
    schema: str | None,
    name: str,
    columns: Iterable[Mapping[str, Any]],
    wanted: Mapping[str, str],
    *,
    dialect: str = "",
    time_zone: str | None = None,
) -> sa.Table:
    """Return the table called *name*, with *columns* as an inspector reports them.

    *wanted*: required columns by the vendor's names, with their actual names. *dialect*: where it
    matters, columns are compared in their own type. *time_zone*: of a due column with local time;
    None: it has UTC.

    Raises:
        NotATimeoutsTable: A column is missing, or its ids have no type for a GUID.
    """
    actual = {column["name"].casefold(): column for column in columns}
    if _ORACLE_TIME in actual:
        actual.setdefault("time", actual[_ORACLE_TIME])
    missing = [called for called in wanted.values() if called.casefold() not in actual]
    if missing:
        raise NotATimeoutsTable(f"{name} has no column {', '.join(missing)}")
    by_key = {key: actual[called.casefold()] for key, called in wanted.items()}
    for key in _GUIDS:
        if not isinstance(by_key[key]["type"], Uuid | Binary | sa.String):
            called = by_key[key]["name"]
            raise NotATimeoutsTable(f"{name}.{called} is not of a type that holds a GUID")
    found = [_column(key, each, dialect, time_zone) for key, each in by_key.items()]
    return sa.Table(name, sa.MetaData(), *found, schema=schema)


def _column(
    key: str, found: Mapping[str, Any], dialect: str, time_zone: str | None
) -> sa.Column[Any]:
    type_of = _own_type_of if dialect in _TYPED else _type_of
    kind = type_of(key, found["type"])
    if key == "Time" and time_zone is not None and not getattr(found["type"], "timezone", False):
        kind = LocalTime(time_zone)
    return sa.Column(found["name"], kind, key=key)


def _own_type_of(key: str, found: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the type that values are converted to, so that the column is not."""
    if isinstance(found, Uuid):
        return mssql.UNIQUEIDENTIFIER(as_uuid=False)
    if key in _GUIDS and isinstance(found, Binary):
        return GuidBytes()
    return ColumnTime(found) if key == "Time" else found


def _type_of(key: str, found: TypeEngine[Any]) -> TypeEngine[Any]:
    if isinstance(found, Uuid):
        return UUID(as_uuid=False)
    if key in _GUIDS and isinstance(found, Binary):
        return GuidBytes()
    if key == "Time":
        return UtcDateTime(
            with_zone=bool(getattr(found, "timezone", False)),
            # MySQL's DATETIME has none unless it says so
            fraction_digits=(found.fsp or 0) if isinstance(found, mysql.DATETIME) else 6,
        )
    return sa.LargeBinary() if key == "State" else sa.Text()


def _quote(part: str) -> str:
    return '"' + part.replace('"', '""') + '"'


def _place(parts: list[str]) -> tuple[str | None, str]:
    return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])
