"""What one setting can be: durations, sizes, time zones, maintenance windows.

A window follows the local clock and belongs to the day on which it begins, so ``Fri 22:00-06:00``
ends on Saturday. Source: docs/throttling.md.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, cast
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

UTC_NAME: Final = "UTC"
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
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
"""A hundred years, which every kind of clock can add to and subtract from the present."""
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(KiB|MiB|GiB|)")
_SIZE_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DAY: Final = "|".join(DAYS)
_WINDOW: Final = re.compile(
    rf"(?:(?P<first>{_DAY})(?:-(?P<last>{_DAY}))?\s+)?"
    r"(?P<start>[0-9]{2}:[0-9]{2})-(?P<end>[0-9]{2}:[0-9]{2})"
)
_MINUTES: Final = 24 * 60


class Section(BaseModel):
    """Frozen, without unknown keys; defaults are checked like given values.

    The string below a key is its meaning in ``config`` and in the reference.
    """

    model_config = ConfigDict(
        # one validator for all sections, made when settings are read, instead of one for each
        defer_build=True,
        frozen=True,
        extra="forbid",
        validate_default=True,
    )


DEFAULTS: Final[Any] = Field(default={})
"""A section that is not given is built with its parent."""


@cache
def meanings(section: type) -> Mapping[str, str]:
    """Return the meaning of each field of *section*, by its name in Python, in one line each.

    Read from the source on demand: pydantic's ``use_attribute_docstrings`` does it for every class
    at every start, which takes as long as all else that it does.
    """
    found: dict[str, str] = {}
    for each in reversed(section.__mro__):
        if each.__module__.startswith("migrator."):
            (tree,) = ast.parse(inspect.getsource(each)).body
            found |= _strings_below(cast("ast.ClassDef", tree))
    return found


def _strings_below(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for above, below in pairwise(tree.body):
        match above, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def parse_duration(text: str) -> timedelta:
    """Return the duration that *text* names: numbers with units, one after the other.

    Raises:
        ValueError: Anything else, also a bare number, because its unit would be a guess.
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


def parse_size(text: str) -> int:
    """Return the bytes that *text* names: a number, or one with KiB, MiB or GiB.

    Raises:
        ValueError: Anything else.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be a number of bytes, or a size such as 512KiB or 32MiB")
    return int(found[1]) * _SIZE_UNITS[found[2]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    text: str
    """As the operator wrote it."""
    days: frozenset[int]
    """Those on which it begins; 0: Monday."""
    start: int
    """Minute of the day; included."""
    end: int
    """Minute of the day; not included; below *start*: of the next day."""

    def is_open(self, local: datetime) -> bool:
        """*local* is a time of the configured zone."""
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        began_yesterday = (day - 1) % 7 in self.days and minute < self.end
        return began_yesterday or (day in self.days and minute >= self.start)


def parse_window(text: str) -> Window:
    """Return the window that *text* names: ``22:00-06:00``, ``Sat-Sun 00:00-24:00``.

    Raises:
        ValueError: Anything else.
    """
    found = _WINDOW.fullmatch(text.strip())
    start, end = (_minute(found[key]) if found else -1 for key in ("start", "end"))
    if not found or not 0 <= start < _MINUTES or not 0 <= end <= _MINUTES or start == end:
        raise ValueError("must be times such as 22:00-06:00, or Sat-Sun 00:00-24:00")
    days = _days(found["first"], found["last"])
    return Window(text=text.strip(), days=days, start=start, end=end)


def _days(first: str | None, last: str | None) -> frozenset[int]:
    if first is None:
        return frozenset(range(7))
    start, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((start + more) % 7 for more in range((end - start) % 7 + 1))


def _minute(text: str) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    return hours * 60 + minutes if minutes < 60 else -1


def find_zone(name: str) -> tzinfo:
    """UTC works on machines that know no other zone.

    Raises:
        ValueError: This machine does not know it.
    """
    try:
        return UTC if name == UTC_NAME else ZoneInfo(name)
    except (OSError, ValueError, LookupError) as exc:
        raise ValueError(
            "must be a time zone that this machine knows, such as UTC or Europe/Vienna"
        ) from exc


def _as_duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise ValueError('must be a duration in quotes, such as "30s" or "1m"')
    return value


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that calls *check* unless the value is None."""

    def validate(value: Any) -> Any:
        if value is not None:
            check(value)
        return value

    return AfterValidator(validate)


def demand(is_fine: Callable[[Any], object], text: str) -> AfterValidator:
    """Refuse a value with *text*, unless it passes *is_fine* or is None."""

    def check(value: Any) -> None:
        if not is_fine(value):
            raise ValueError(text)

    return checked(check)


def at_most(longest: timedelta) -> AfterValidator:
    return demand(lambda span: span <= longest, f"must be at most {build_duration(longest)}")


def longer_than(shortest: timedelta) -> AfterValidator:
    return demand(lambda span: span > shortest, f"must be longer than {build_duration(shortest)}")


EMPTY_IS_NONE: Final = BeforeValidator(lambda value: None if value == "" else value)
"""In a file or a variable, an empty text means "not set"."""
SAME_FILE: Final = demand(
    lambda file: not isinstance(file, Path) or file.is_absolute(),
    "must be an absolute path, so that every process uses the same file",
)
Duration = Annotated[timedelta, BeforeValidator(_as_duration)]
SomeTime = Annotated[Duration, longer_than(timedelta(0))]
MaybeTime = Annotated[SomeTime | None, EMPTY_IS_NONE]
Size = Annotated[
    int, BeforeValidator(lambda value: parse_size(value) if isinstance(value, str) else value)
]
ZoneName = Annotated[str, checked(find_zone)]
"""An IANA name that this machine knows."""
