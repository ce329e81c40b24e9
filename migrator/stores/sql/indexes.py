"""Does a legacy table have the indexes that its queries need, and what is the cost if not?

Rules of this file: nothing is changed; statements are printed for a DBA to run. An index counts
when it begins with the columns in their order, and covers all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex

from migrator.stores.ports import StoreRemark

_PREFIX_CHARS: Final = 190
"""MySQL indexes a prefix of a text column without length; this one fits in any row format."""
_OF_SOME_ROWS: Final = ("postgresql_where", "sqlite_where", "mssql_where", "mssql_columnstore")
"""Properties of an index that lacks rows, or has no key order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIndex:
    name: str
    keys: tuple[str, ...]
    without: str
    is_unique: bool = False


TIME_INDEX: Final = WantedIndex(
    name="TimeIdx", keys=("Time",), without="each claim reads the whole table and sorts it"
)
SAGA_INDEX: Final = WantedIndex(
    name="SagaIdIdx",
    keys=("SagaId",),
    without="in mode dispatch or forward, the end of a saga reads the whole table",
)
ENDPOINT_INDEX: Final = WantedIndex(
    name="EndpointIdx",
    keys=("Endpoint", "Time"),
    without="each claim reads rows of all endpoints, and often the whole table",
)
ID_INDEX: Final = WantedIndex(
    name="IdIdx",
    keys=("Id",),
    without="each claimed row is searched for in the whole table, and mode dispatch cannot store "
    "timeouts",
    is_unique=True,
)


def has_index(inspector: sa.Inspector, table: sa.Table, key: str) -> bool:
    name = table.c[key].name
    return any(columns[:1] == [name] for _, columns, _ in _indexes(inspector, table))


def missing_indexes(
    inspector: sa.Inspector, table: sa.Table, source: str, wanted: Sequence[WantedIndex]
) -> Iterator[StoreRemark]:
    there = _indexes(inspector, table)
    for each in wanted:
        columns = [table.c[key].name for key in each.keys]
        if any(
            (is_unique and its == columns) if each.is_unique else its[: len(columns)] == columns
            for _, its, is_unique in there
        ):
            continue
        near = [
            f"{name} on ({', '.join(its)})" for name, its, _ in there if {*its[:2]} & {*columns}
        ]
        instead = "; there is " + ", ".join(near) if near else ""
        yield StoreRemark(
            subject=source,
            text=f"no index on ({', '.join(columns)}){instead}: {each.without}",
            remedy=f"have your DBA run: {_statement(inspector, table, each)}",
        )


def _indexes(inspector: sa.Inspector, table: sa.Table) -> Sequence[tuple[str, list[str], bool]]:
    """Return name and columns of each index that covers all rows, and whether it is unique."""
    primary = inspector.get_pk_constraint(table.name, schema=table.schema)
    found = [("the primary key", [*primary["constrained_columns"]], True)]
    for each in inspector.get_indexes(table.name, schema=table.schema):
        options: Mapping[str, Any] = each.get("dialect_options", {})
        if not any(options.get(option) for option in _OF_SOME_ROWS):
            columns = [name or "" for name in each["column_names"]]
            found.append((str(each["name"]), columns, bool(each["unique"])))
    return found


def _statement(inspector: sa.Inspector, table: sa.Table, wanted: WantedIndex) -> str:
    found = inspector.get_columns(table.name, schema=table.schema)
    is_long = {column["name"]: isinstance(column["type"], sa.Text) for column in found}
    columns, name = [table.c[key] for key in wanted.keys], f"{table.name}_{wanted.name}"
    prefixes = {column.name: _PREFIX_CHARS for column in columns if is_long[column.name]}
    index = sa.Index(
        name.lower() if table.name.islower() else name,
        *columns,
        unique=wanted.is_unique,
        postgresql_concurrently=True,
        mysql_length=prefixes,
    )
    # the engine's own dialect doubles percent signs, for a driver and not for a reader
    dialect: Any = type(inspector.dialect)
    try:
        return str(CreateIndex(index).compile(dialect=dialect(paramstyle="named"))).strip()
    finally:
        table.indexes.discard(index)
