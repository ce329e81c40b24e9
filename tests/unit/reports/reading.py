"""Reading a page as a reader and a browser see it: tables, text, tags and what they load."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

Cell = str | int | None
_VOID = {"meta", "col"}


@dataclass
class Table:
    """One table: its caption, and its rows; numbers are those of their ``<data>`` elements."""

    caption: str = ""
    rows: list[list[Cell]] = field(default_factory=list)


class Page(HTMLParser):
    """What is in a page."""

    def __init__(self) -> None:
        """Have seen nothing."""
        super().__init__()
        self.tables: list[Table] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.style = ""
        self._words: list[str] = []
        self._open: list[str] = []
        self._cell: list[str] = []
        self._number: int | None = None

    @property
    def text(self) -> str:
        """All text but the style, with single spaces."""
        return spaced(" ".join(self._words))

    def table(self, caption: str) -> dict[str, list[Cell]]:
        """Return the rows of the first table with *caption*: what is not drawn, by first cell."""
        table = next(each for each in self.tables if each.caption.startswith(caption))
        return {
            str(first): [cell for cell in rest if cell != ""] for first, *rest in table.rows if rest
        }

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append(Table())
        elif tag == "tr":
            self.tables[-1].rows.append([])
        elif tag in ("th", "td"):
            self._cell, self._number = [], None
        elif tag == "data":
            self._number = int(dict(attrs)["value"] or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close an element; all that were opened have to be closed in turn."""
        assert self._open.pop() == tag
        if tag in ("th", "td"):
            shown = spaced("".join(self._cell))
            if self._number is not None:  # a reader sees the number that a program reads
                assert shown.replace(" ", "") == str(self._number)
            unknown = None if shown == "not known" else shown
            self.tables[-1].rows[-1].append(unknown if self._number is None else self._number)

    def handle_data(self, data: str) -> None:
        """Take text."""
        if "style" in self._open:
            self.style += data
            return
        if "title" in self._open and "svg" in self._open:
            return
        self._words.append(data)
        if "caption" in self._open:
            self.tables[-1].caption += data
        if {"th", "td"} & set(self._open):
            self._cell.append(data)


def spaced(text: str) -> str:
    """Return *text* with single spaces, as a browser shows it; others than blanks are kept."""
    return re.sub("[ \n]+", " ", text).strip(" ")


def read(text: str) -> Page:
    """Return what is in the page *text*, which must be well-formed."""
    page = Page()
    page.feed(text)
    page.close()
    return page
