"""Does a legacy table have the indexes that its queries walk, and if not, what does that cost?

Rules of this file: nothing is changed; what is printed is for a DBA to run. An index counts when
it begins with the columns in their order, and covers all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Index, Inspector, Table, Text
from sqlalchemy.schema import CreateIndex

from migrator.stores.ports import StoreRemark

_PREFIX_CHARS: Final = 190
"""Of a text column without a length, MySQL indexes a prefix; so much fits in any row format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedIndex:
    """An index that some query walks."""

    name: str
    """As the vendor calls it."""
    keys: tuple[str, ...]
    """Its columns, by the vendor's names."""
    without: str
    """What happens without it."""
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
    without="each row that is taken is looked for in the whole table, and mode dispatch cannot "
    "store",
    is_unique=True,
)


def has_index(inspector: Inspector, table: Table, key: str) -> bool:
    """Return whether the column *key* is the first of an index, whole."""
    name = table.c[key].name
    return any(
        each.columns[:1] == (name,) and name not in each.prefixes
        for each in _indexes(inspector, table)
    )


def missing_indexes(
    inspector: Inspector, table: Table, source: str, wanted: Sequence[WantedIndex]
) -> Iterator[StoreRemark]:
    """Yield what is to be said of each index in *wanted* that *table* does not have."""
    there = _indexes(inspector, table)
    for each in wanted:
        columns = tuple(table.c[key].name for key in each.keys)
        if any(
            found.columns[: len(columns)] == columns
            if not each.is_unique
            else found.is_unique and found.columns == columns
            for found in there
        ):
            continue
        near = [f for f in there if {*f.columns[:2]} & {*columns}]
        yield StoreRemark(
            subject=source,
            text=f"no index on ({', '.join(columns)}){_instead(near)}: {each.without}",
            remedy=f"have your DBA run: {_statement(inspector, table, each)}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    name: str
    columns: tuple[str, ...]
    is_unique: bool
    prefixes: Mapping[str, int]


def _indexes(inspector: Inspector, table: Table) -> Sequence[_Found]:
    primary = inspector.get_pk_constraint(table.name, schema=table.schema)
    found = [
        _Found(
            name="the primary key",
            columns=tuple(primary["constrained_columns"]),
            is_unique=True,
            prefixes={},
        )
    ]
    for each in inspector.get_indexes(table.name, schema=table.schema):
        options: Mapping[str, Any] = each.get("dialect_options", {})
        if options.get("postgresql_where") or options.get("sqlite_where"):
            continue
        found.append(
            _Found(
                name=str(each["name"]),
                columns=tuple(name or "" for name in each["column_names"]),
                is_unique=bool(each["unique"]),
                prefixes=options.get("mysql_length", {}),
            )
        )
    return found


def _instead(near: Sequence[_Found]) -> str:
    if not near:
        return ""
    return "; there is " + ", ".join(f"{each.name} on ({', '.join(each.columns)})" for each in near)


def _statement(inspector: Inspector, table: Table, wanted: WantedIndex) -> str:
    types = {
        column["name"]: column["type"]
        for column in inspector.get_columns(table.name, schema=table.schema)
    }
    columns = [table.c[key] for key in wanted.keys]
    name = f"{table.name}_{wanted.name}"
    prefixes = {
        column.name: _PREFIX_CHARS for column in columns if isinstance(types[column.name], Text)
    }
    index = Index(
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
