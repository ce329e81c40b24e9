"""Lets pages that are written for CommonMark be read by the Python-Markdown of the site.

Pages are read on code hosts and in editors as well, where what belongs to a list item is indented
as far as the item's text. Python-Markdown wants four columns for each depth, and an empty line
before each item of a list that has one somewhere; else code, tables and items fall out of their
list. MkDocs calls ``on_page_markdown`` for each page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_ITEM: Final = re.compile(r"(?:[-*+]|\d+[.)]) +(?=\S)")
_FENCE: Final = re.compile(r"`{3,}|~{3,}")
_DEPTH: Final = 4
"""Columns; Python-Markdown's tab length."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as Python-Markdown wants it."""
    return "\n".join(_indented(markdown.splitlines())) + "\n"


def _indented(lines: list[str]) -> Iterator[str]:
    columns: list[int] = []  # where the text of each open list item begins
    fence = ""
    is_loose = False  # the list has an empty line, so that each item wants one before it
    after_text = False  # the line before has text, and begins no item
    after_any = False
    for line in lines:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        item = None if fence else _ITEM.match(text)
        opened = len(columns)
        if text and not fence:
            columns = [column for column in columns if column <= indent]
        if item and after_text and columns and len(columns) == opened:
            is_loose = True  # a list within an item that has more than one line of text
        if item and after_any and is_loose:
            yield ""
        inside = max(indent - columns[-1], 0) if columns else indent
        yield " " * (_DEPTH * len(columns) + inside) + text if text else ""
        if item:
            columns = [*columns, indent + item.end()]
        is_loose = bool(columns) and (is_loose or not text)
        after_text, after_any = bool(text) and not item, bool(text)
        fence = _fence_after(fence, text)


def _fence_after(fence: str, text: str) -> str:
    """Return the fence that is open after a line; empty: none is."""
    found = _FENCE.match(text)
    if not fence:
        return found.group() if found else ""
    return "" if found and text.rstrip() == found.group() and found.group() >= fence else fence
