"""Which index a statement walks on MariaDB and MySQL, when the planner must not have a choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, text
from sqlalchemy.exc import IntegrityError

from migrator.stores.sql.dialects.walked import beginning_with

_DUPLICATE: Final = re.compile(r"1062.* for key '(.*)'")
_INDEXES: Final = text(
    "SELECT index_name, column_name FROM information_schema.statistics "
    "WHERE table_schema = database() AND table_name = :name ORDER BY index_name, seq_in_index"
)


def index_on(connection: Connection, table: Table, keys: Sequence[str]) -> str | None:
    """Return an index that begins with the columns *keys*; None: the table has none (any more)."""
    names = [table.c[key].name for key in keys]
    found = connection.execute(_INDEXES, {"name": table.name})
    return beginning_with([(index, column) for index, column in found], names)


def walking(index: str | None, query: Select[Any], table: Table) -> Select[Any]:
    """Return *query* with no choice but to look rows up by *index*; None: as the planner likes."""
    if index is None:
        return query
    quoted = "`" + index.replace("`", "``").replace("%", "%%%%") + "`"
    return query.with_hint(table, f"FORCE INDEX ({quoted})", "mysql")


def names_index(exc: IntegrityError, index: str | None) -> bool:
    """Return whether a row was there already, by *index*; MySQL puts the table before its name."""
    found = _DUPLICATE.search(str(exc.orig))
    return found is not None and found[1].endswith(index or "PRIMARY")
