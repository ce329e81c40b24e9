"""Pages, tables and lists as text."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def page(title: str, *parts: str) -> str:
    """Return a page; the first lines say who writes it."""
    note = "<!-- written by ./dev/docs; change the code or dev/reference/words.py instead -->"
    return "\n\n".join((f"# {title}", note, *parts)) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; bars in cells are escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def word(texts: Mapping[K, T], name: K) -> T:
    """Return what *texts* say about *name*; end the program when they say nothing."""
    if name not in texts:
        raise SystemExit(f"dev/reference/words.py has no sentence for {name}; write one")
    return texts[name]


def first_line(documented: object) -> str:
    """Return the first line of a docstring, as Markdown."""
    return (inspect.getdoc(documented) or "").partition("\n")[0].replace("``", "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
