"""How numbers, sizes and spans of time are written wherever people read them; pure.

Rule of this file: what is not known is never written as 0.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

NOT_KNOWN: Final = "not known"

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
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
    """Return *number* in groups of three digits: ``57 833``; None: ``not known``."""
    return NOT_KNOWN if number is None else f"{number:,}".replace(",", " ")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return *number* with its noun: ``1 timeout``, ``12 timeouts``; *plural*: not with an s."""
    return f"{grouped(number)} {noun if number == 1 else plural or noun + 's'}"


def span_text(seconds: int) -> str:
    """Return a span for a table, as its two largest units: ``8s``, ``17m 4s``, ``1553d 10h``."""
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0s"


def span_words(seconds: float) -> str:
    """Return about how long a span is, for a sentence: ``10 seconds``, ``1.5 hours``."""
    for size, unit in _SPANS:
        number = _short(seconds / size)
        if seconds >= size:
            return f"{number} {unit}{'' if number == '1' else 's'}"
    return "less than a second"


def about(seconds: float) -> str:
    """Return an estimate for a sentence: ``about 10 seconds``, ``less than a second``."""
    words = span_words(seconds)
    return words if seconds < 1 else f"about {words}"


def listed(names: Sequence[str], most: int, *, between: str = ", ") -> str:
    """Return the first *most* of *names*, and how many there are besides: ``a, b and 3 more``."""
    left = len(names) - most
    return between.join(names[:most]) + (f" and {grouped(left)} more" if left > 0 else "")


def rate_words(per_s: float) -> str:
    """Return how many messages go each second: ``2 000 messages/s``, ``0.5 messages/s``."""
    number = _short(per_s)
    return f"{number} message{'' if number == '1' else 's'}/s"


def size_words(size: int) -> str:
    """Return about how much *size* bytes are: ``12 bytes``, ``1.5 MiB``."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{_short(size / unit)} {name}"
    return counted(size, "byte")


def visible(text: str, *, keep: str = "") -> str:
    """Return *text* with each character that a terminal may act on escaped, as in Python.

    So is what nobody sees or what turns the direction of writing, and half a character, which
    cannot be written at all; those of *keep* are not.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or is_visible(each) else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def is_visible(character: str) -> bool:
    """Return whether *character* is one that people see, or a space of any width."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _short(number: float) -> str:
    if number >= _FEW:
        return grouped(round(number))
    return f"{number:.1f}".removesuffix(".0")
