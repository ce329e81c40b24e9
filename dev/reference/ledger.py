"""The page of the ledger, from its tables and the table of states."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dev.reference import words
from dev.reference.markdown import page, table, word
from migrator.database.engine import open_engine
from migrator.database.types import AsciiText, KeyText, LongBytes, LongText
from migrator.ledger.migrations import upgrade
from migrator.ledger.states import NEXT, RAISES_ATTEMPT, BatchState, RowState
from migrator.ledger.tables import BATCH_TIMES, build_tables, ledger_names, names_for


def ledger() -> str:
    """Return tables, columns and views of the ledger, and the steps of a batch."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(f"sqlite:///{Path(folder) / 'ledger.db'}")
        tables = build_tables(names_for(engine))
        upgrade(engine, tables)
        seen = sa.inspect(engine)
        views = [_view(seen, name, tables.names.prefix) for name in sorted(seen.get_view_names())]
        engine.dispose()
    nouns = {
        found.name.removeprefix(tables.names.prefix): found
        for found in tables.metadata.tables.values()
    }
    order = [*words.TABLES, *(nouns.keys() - words.TABLES.keys())]
    return page(
        "Ledger",
        "The ledger lives beside the timeouts: on PostgreSQL in the schema `migrator` "
        "(`store.ledger_schema`), on SQLite in tables that begin with `migrator_`.\n"
        "Names of tables, columns and views are public; read as you like, change nothing.\n"
        "All times are UTC, by the database's clock.",
        *(_ledger_table(nouns[noun], noun) for noun in order),
        "## Views\n\n" + "\n".join(views),
        "## States of a batch\n\n" + _states(BatchState, words.BATCH_STATES),
        "A row has the state of its batch, unless it has one of its own:\n\n"
        + _states(RowState, words.ROW_STATES),
        "## Steps of a batch\n\nThere are no others.\n"
        "A step with an asterisk raises the attempt number, so that whatever an older attempt left "
        "in a staging queue is waste.\n\n" + "\n".join(_steps()),
    )


def ledger_columns() -> Iterator[tuple[str, str]]:
    """Yield table and column of everything the ledger holds."""
    names = ledger_names("postgresql")
    for found in build_tables(names).metadata.sorted_tables:
        for column in found.columns:
            yield found.name, column.name


def _view(seen: sa.Inspector, name: str, prefix: str) -> str:
    noun = name.removeprefix(prefix)
    columns = ", ".join(f"`{column['name']}`" for column in seen.get_columns(name))
    return f"- `{noun}`: {word(words.VIEWS, noun)}\n  Columns: {columns}."


def _ledger_table(found: sa.Table, noun: str) -> str:
    rows = []
    for column in found.columns:
        if column.name in BATCH_TIMES and noun == "batch":
            meaning = f"when it became `{column.name.removesuffix('_at')}` last"
        else:
            meaning = word(words.COLUMNS, f"{noun}.{column.name}")
        rows.append((f"`{column.name}`", _sql_type(column), meaning))
    return f"## {noun}\n\n{word(words.TABLES, noun)}\n\n" + table(
        ("column", "type", "meaning"), rows
    )


def _sql_type(column: sa.Column[Any]) -> str:
    kinds: Sequence[tuple[Any, str]] = (
        (sa.Integer, "number"),
        (sa.String | LongText | KeyText | AsciiText, "text"),
        (LongBytes, "bytes"),
    )
    name = next((name for kind, name in kinds if isinstance(column.type, kind)), "time")
    return f"{name}, may be empty" if column.nullable else name


def _states(names: Iterable[str], texts: Mapping[Any, str]) -> str:
    return "\n".join(f"- `{name}`: {word(texts, name)}" for name in names)


def _steps() -> Iterator[str]:
    for (state, event), following in NEXT.items():
        mark = "*" if event in RAISES_ATTEMPT else ""
        yield f"- `{state}` → `{following}` by `{event}`{mark}: {word(words.EVENTS, event)}"
