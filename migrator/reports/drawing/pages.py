"""What all pages share: the rules of their templates, tones, and the numbers one sees first.

Rules of this file: whatever is put into a page is escaped, and a variable that is missing is an
error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from migrator.reports.drawing.texts import grouped, marked, visible


class Tone(StrEnum):
    """How a verdict is coloured."""

    GOOD = "good"
    CARE = "care"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that the reader sees first."""

    value: int | str
    label: str
    remark: str = ""


def new_environment(package: str) -> Environment:
    """Return where the templates of *package* are found, and those that all pages share."""
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader(package, "templates"),
                PackageLoader("migrator.reports.drawing", "templates"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(grouped=grouped, marked=marked)
    return environment
