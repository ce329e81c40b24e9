"""How numbers, spans and names look in a page.

Rules of this file: names are chosen by strangers, so characters that nobody can see, or that turn
the direction of writing, are spelt out; what is not known is never shown as 0.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from markupsafe import Markup, escape

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
