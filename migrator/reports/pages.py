"""What all pages share: the rules of their templates, tones, and what a report is about.

Rules of this file: whatever is put into a page is escaped, and a variable that is missing is an
error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from migrator.reports.words import counted, grouped, marked, size_words, span_words, visible


class Tone(StrEnum):
    """How a verdict is coloured."""

    GOOD = "good"
    CARE = "care"
    BAD = "bad"


def new_environment(package: str) -> Environment:
    """Return where the templates of *package* are found, and those that all pages share."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader(package, "templates"), PackageLoader("migrator.reports", "templates")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (counted, grouped, marked, size_words, span_words)
    environment.filters.update({each.__name__: each for each in filters})
    return environment


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


def page(template: str, **values: object) -> str:
    """Return *template*, filled with *values*."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    return new_environment("migrator.reports")
