"""How numbers, sizes and spans of time are written for people, and durations by them; pure.

Rule of this file: an unknown number is never written as 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import timedelta
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
_DURATION_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_DURATION_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_LONGEST_DURATION: Final = timedelta(days=36_500)
"""A hundred years, which every kind of clock can add to and subtract from the present."""
_FEW: Final = 10


def grouped(number: int | None) -> str:
    """Return ``57 833``; None: ``not known``."""
    return NOT_KNOWN if number is None else f"{number:,}".replace(",", " ")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 timeout``, ``12 timeouts``; *plural*: unless it takes an s."""
    return f"{grouped(number)} {noun if number == 1 else plural or noun + 's'}"


def parse_duration(text: str) -> timedelta:
    """Return the duration that *text* names: numbers with units, one after the other.

    Raises:
        ValueError: Anything else, also a bare number, because its unit would be a guess.
    """
    compact = "".join(text.split())
    parts = _DURATION_PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError("must be a duration such as 250ms, 30s, 1m, 2h or 30d")
    try:
        span = sum((float(number) * _DURATION_UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        span = timedelta.max
    if span > _LONGEST_DURATION:
        raise ValueError(f"must be a duration of at most {build_duration(_LONGEST_DURATION)}")
    return span


def build_duration(span: timedelta) -> str:
    """Return *span* in the largest unit that divides it: ``0s``, ``90s``, ``30d``."""
    for unit in ("d", "h", "m", "s"):
        if span and span % _DURATION_UNITS[unit] == timedelta(0):
            return f"{span // _DURATION_UNITS[unit]}{unit}"
    ms = f"{span / _DURATION_UNITS['ms']:.3f}".rstrip("0").rstrip(".")
    return f"{ms}ms" if span else "0s"


def span_text(seconds: int) -> str:
    """Return the two largest units, for a table: ``8s``, ``17m 4s``, ``1553d 10h``."""
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part) or "0s"


def span_words(seconds: float) -> str:
    """Return an approximate span, for a sentence: ``10 seconds``, ``1.5 hours``."""
    for size, unit in _SPANS:
        number = _short(seconds / size)
        if seconds >= size:
            return f"{number} {unit}{'' if number == '1' else 's'}"
    return "less than a second"


def about(seconds: float) -> str:
    """Return ``about 10 seconds`` or ``less than a second``."""
    words = span_words(seconds)
    return words if seconds < 1 else f"about {words}"


def listed(names: Sequence[str], most: int, *, between: str = ", ") -> str:
    left = len(names) - most
    return between.join(names[:most]) + (f" and {grouped(left)} more" if left > 0 else "")


def rate_words(per_s: float) -> str:
    """Return ``2 000 messages/s``, ``0.5 messages/s``."""
    number = _short(per_s)
    return f"{number} message{'' if number == '1' else 's'}/s"


def size_words(size: int) -> str:
    """Return ``12 bytes``, ``1.5 MiB``."""
    for unit, name in _SIZES:
        if size >= unit:
            return f"{_short(size / unit)} {name}"
    return counted(size, "byte")


def visible(text: str, *, keep: str = "") -> str:
    """Return *text* with each character escaped, as in Python, that a terminal may act on.

    Invisible characters, those that change the direction of writing, and half a surrogate pair are
    escaped as well; those of *keep* are not.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or is_visible(each) else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def is_visible(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _short(number: float) -> str:
    if number >= _FEW:
        return grouped(round(number))
    return f"{number:.1f}".removesuffix(".0")
