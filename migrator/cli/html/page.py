"""What all pages share: the templates and their rules, how numbers look, verdict and figures.

Rules of this file: whatever is put into a page is escaped, and a variable that is missing is an
error. Names are chosen by strangers: characters that nobody can see, or that turn the direction
of writing, are spelt out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

Document = Mapping[str, Any]
"""What ``--format json`` writes, read again."""

_THIN: Final = "\N{NARROW NO-BREAK SPACE}"
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters: control, format, surrogate, private, unassigned, line, paragraph."""
_SPANS: Final = (
    (365 * 86_400, "year"),
    (86_400, "day"),
    (3_600, "hour"),
    (60, "minute"),
    (1, "second"),
)
_SIZES: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_FEW: Final = 10
"""Below this a decimal is shown."""


class Tone(StrEnum):
    """How a verdict is coloured."""

    GOOD = "good"
    CARE = "care"
    BAD = "bad"


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
class Figure:
    """A number that the reader sees first."""

    value: int | str
    label: str
    remark: str = ""


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


def grouped(number: int | None) -> str:
    """Return *number* in groups of three digits; None is *not known*, never 0."""
    return "not known" if number is None else f"{number:,}".replace(",", _THIN)


def counted(number: int, noun: str) -> str:
    """Return *number* with its noun: ``1 timeout``, ``12 timeouts``."""
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def span_words(seconds: float) -> str:
    """Return about how long *seconds* are, in the unit that people would use."""
    for size, unit in _SPANS:
        number = _short(seconds / size)
        if seconds >= size:
            return f"{number} {unit}{'' if number == '1' else 's'}"
    return "less than a second"


def size_words(size: int) -> str:
    """Return about how much *size* bytes are."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{_short(size / unit)} {name}"
    return counted(size, "byte")


def marked(text: str) -> Markup:
    """Return *text*, escaped, with what stands between backticks as code."""
    plain, *rest = (escape(visible(part)) for part in text.split("`"))
    pieces = [plain]
    while len(rest) > 1:
        code, plain, *rest = rest
        pieces += [Markup("<code>"), code, Markup("</code>"), plain]
    return Markup("").join([*pieces, *(Markup("`") + each for each in rest)])


def visible(value: object) -> object:
    """Return *value* with every character spelt out that nobody would see."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if value.isascii() and value.isprintable():
        return value
    return "".join(_spelt(char) for char in value)


def _spelt(char: str) -> str:
    if unicodedata.category(char) not in _UNSEEN:
        return char
    return char.encode("unicode_escape").decode("ascii")


def _short(number: float) -> str:
    if number >= _FEW:
        return grouped(round(number))
    return f"{number:.1f}".removesuffix(".0")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("migrator.cli.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(grouped=grouped, marked=marked)
    return environment
