"""What all reports share: what is said about a report, its verdict, and the lines of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from migrator.reports.drawing.pages import Tone, new_environment

Document = Mapping[str, Any]
"""What ``--format json`` writes, read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a reader has to know about a report besides its numbers."""

    version: str
    """Of migrator."""
    ledger: str | None
    """Its id; None: there is none, or it could not be read."""
    options: str = ""
    """What to add to another verb so that it means the same rows; quoted for a shell."""
    not_checked: Sequence[str] = ()
    """What could not be looked at besides what the document tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do next."""

    text: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What it comes to, in plain words."""

    tone: Tone
    title: str
    meaning: Sequence[str]
    """Paragraphs."""
    steps: Sequence[Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a table: what is counted, how many, and what that means."""

    label: str
    count: int | None
    meaning: str = ""
    is_part: bool = False
    """Part of the line above."""


def page(template: str, **values: object) -> str:
    """Return *template*, filled with *values*."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    return new_environment("migrator.reports.html")
