"""What all pages share: templates, tones, what a report is about, and how its values look.

Rules of this file: whatever is put into a page is escaped, and a variable that is missing is an
error; names are untrusted, so characters that are invisible, or that turn the direction
of writing, are spelt out; what is not known is never shown as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from migrator.preview.report import BEYOND
from migrator.text import counted, grouped, rate_words, size_words, span_words, visible
from migrator.verify.report import Discrepancy


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
        finalize=spelt,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (counted, grouped, marked, rate_words, size_words, span_words)
    environment.filters.update({each.__name__: each for each in filters})
    return environment


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


# ── how names look ─────────────────────────────────────────────────────────────


def marked(text: str) -> Markup:
    """Return *text*, escaped, with what stands between backticks as code."""
    plain, *rest = (escape(visible(part)) for part in text.split("`"))
    pieces = [plain]
    while len(rest) > 1:
        code, plain, *rest = rest
        pieces += [Markup("<code>"), code, Markup("</code>"), plain]
    return Markup("").join([*pieces, *(Markup("`") + each for each in rest)])


def spelt(value: object) -> object:
    """Return *value* with every invisible character spelt out."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


DUE: Final[Mapping[str, str]] = {
    "overdue": "overdue",
    "1m": "within a minute",
    "1h": "within an hour",
    "1d": "within a day",
    "1w": "within a week",
    "30d": "within 30 days",
    "1y": "within a year",
    "8.5y": "within 8.5 years",
    BEYOND: "later",
}
"""Steps of the histogram of due times."""

DISCREPANCIES: Final[Mapping[str, tuple[str, str]]] = {
    Discrepancy.ROWS_GONE: (
        "rows are gone from the ledger",
        "They were deleted. Compare with a backup of the ledger.",
    ),
    Discrepancy.ROWS_TOO_MANY: (
        "the ledger has more rows than were claimed",
        "They were inserted by something else. Find out what.",
    ),
    Discrepancy.CONTENT_CHANGED: (
        "a row in the ledger is not what was claimed",
        "Do not recall it before you know which one is right.",
    ),
    Discrepancy.IN_BOTH_PLACES: (
        "a timeout is in its old table and in the ledger",
        "Was a backup restored? If it is sent from the table too, it is sent twice.",
    ),
    Discrepancy.MISSING: (
        "a timeout is missing from the delay levels",
        "It will not be sent. Its content is in the ledger.",
    ),
    Discrepancy.TOO_FEW: (
        "the delay levels hold too few messages",
        "`migrator verify --deep` shows which are missing.",
    ),
    Discrepancy.TWICE: (
        "a timeout is in the delay levels twice",
        "It will be delivered twice, with the same message id; an outbox drops the copy.",
    ),
    Discrepancy.DIFFERENT: (
        "a message is not what the ledger says",
        "Compare both before recalling anything.",
    ),
    Discrepancy.STRAY: (
        "a timeout that was taken back is still in a delay level",
        "If a rollback was killed, run `migrator rollback` again: it removes it.",
    ),
    Discrepancy.LATE: (
        "a timeout is due and still in a delay level",
        "`migrator delays show` shows whether a level is frozen.",
    ),
}
"""What does not agree, and what to do."""
