"""Writing results: one value, shown as a table for people or as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:  # drawing is imported by those who draw: a verb that writes JSON does not
    from rich.console import Console
    from rich.table import Table

_WIDTH_WITHOUT_TERMINAL: Final = 240
"""Characters; so that nothing is cut when a table goes into a file or a pipe."""


def write_json(name: str, data: Mapping[str, object]) -> None:
    """Write *data* to stdout as the document ``migrator/<name>/1``."""
    document = {"schema": f"migrator/{name}/1", **data}
    print(json_text(document))  # noqa: T201 - stdout is where data goes


def json_text(document: Mapping[str, object]) -> str:
    """Return *document* as indented JSON."""
    from migrator.reports.documents import plain

    return json.dumps(document, indent=2, ensure_ascii=False, default=plain)


def write_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """Write a table to stdout; numbers stand on the right."""
    from rich.table import Table

    listed = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.show_header = any(columns)
    for index, column in enumerate(columns):
        is_number = bool(listed) and all(_is_number(row[index]) for row in listed)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in listed:
        table.add_row(*(_cell(value) for value in row))
    write_drawn(table, stream=stream)


def write_drawn(table: Table, *, stream: TextIO | None = None) -> None:
    """Write what is drawn already to stdout, without blanks at the ends of lines in a file."""
    target = console(stream)
    if target.is_terminal:
        target.print(table)
        return
    with target.capture() as captured:
        target.print(table)
    for line in captured.get().splitlines():
        target.file.write(line.rstrip() + "\n")


def write_text(text: str) -> None:
    """Write lines of data to stdout."""
    print(text)  # noqa: T201 - stdout is where data goes


def say(text: str) -> None:
    """Tell a person something, on stderr."""
    print(text, file=sys.stderr)  # noqa: T201 - talk goes to stderr


def console(stream: TextIO | None = None) -> Console:
    """Return a console that takes text as it is: queue names may hold brackets."""
    from rich.console import Console

    stream = sys.stdout if stream is None else stream
    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else _WIDTH_WITHOUT_TERMINAL,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)
