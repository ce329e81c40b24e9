"""Durations, sizes and time zones as people write them: ``250ms``, ``30d``, ``32MiB``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator

UTC_NAME: Final = "UTC"
_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_LONGEST: Final = timedelta(days=36_500)
"""A hundred years: from now on or back, that is a time that there is, on every kind of clock."""
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(KiB|MiB|GiB|)")
_SIZE_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_duration(text: str) -> timedelta:
    """Return the duration that *text* names: numbers with units, one after the other.

    Raises:
        ValueError: Anything else; a bare number too, because its unit would be a guess.
    """
    compact = "".join(text.split())
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ValueError("must be a duration such as 250ms, 30s, 1m, 2h or 30d")
    try:
        span = sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        span = timedelta.max
    if span > _LONGEST:
        raise ValueError(f"must be a duration of at most {build_duration(_LONGEST)}")
    return span


def build_duration(span: timedelta) -> str:
    """Return *span* in the largest unit that divides it: ``0s``, ``90s``, ``30d``."""
    for unit in ("d", "h", "m", "s"):
        if span and span % _UNITS[unit] == timedelta(0):
            return f"{span // _UNITS[unit]}{unit}"
    ms = f"{span / _UNITS['ms']:.3f}".rstrip("0").rstrip(".")
    return f"{ms}ms" if span else "0s"


def known_zone(name: str) -> str:
    """Return *name*; UTC is known on machines that know no other zone.

    Raises:
        ValueError: This machine does not know it.
    """
    try:
        if name != UTC_NAME:
            ZoneInfo(name)
    except (OSError, ValueError, LookupError) as exc:
        raise ValueError(
            "must be a time zone this machine knows, such as UTC or Europe/Vienna"
        ) from exc
    return name


def parse_size(text: str) -> int:
    """Return the number of bytes that *text* names: a number, or one with KiB, MiB or GiB.

    Raises:
        ValueError: Anything else.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be a number of bytes, or a size such as 512KiB or 32MiB")
    return int(found[1]) * _SIZE_UNITS[found[2]]


def _as_duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise ValueError('must be a duration in quotes, such as "30s" or "1m"')
    return value


def _as_size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_as_duration)]
Size = Annotated[int, BeforeValidator(_as_size)]


def longer_than(shortest: timedelta) -> AfterValidator:
    """Return the rule that a duration is longer than *shortest*."""

    def check(value: timedelta) -> timedelta:
        if value <= shortest:
            raise ValueError(f"must be longer than {build_duration(shortest)}")
        return value

    return AfterValidator(check)


def at_least(shortest: timedelta, why: str) -> AfterValidator:
    """Return the rule that a duration is not shorter than *shortest*, with its reason."""

    def check(value: timedelta) -> timedelta:
        if value < shortest:
            raise ValueError(f"must be at least {build_duration(shortest)}: {why}")
        return value

    return AfterValidator(check)


def at_most(longest: timedelta) -> AfterValidator:
    """Return the rule that a duration is not longer than *longest*."""

    def check(value: timedelta) -> timedelta:
        if value > longest:
            raise ValueError(f"must be at most {build_duration(longest)}")
        return value

    return AfterValidator(check)


SOME_TIME: Final = longer_than(timedelta(0))
ZoneName = Annotated[str, AfterValidator(known_zone)]
"""An IANA name of a time zone that this machine knows."""
