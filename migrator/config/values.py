"""What one setting can be: durations, sizes, time zones."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, timedelta, tzinfo
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, cast
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from migrator.text import build_duration, parse_duration

UTC_NAME: Final = "UTC"
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(KiB|MiB|GiB|)")
_SIZE_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


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


def parse_size(text: str) -> int:
    """A number of bytes, or one with KiB, MiB or GiB; ``ValueError`` otherwise."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be a number of bytes, or a size such as 512KiB or 32MiB")
    return int(found[1]) * _SIZE_UNITS[found[2]]


def find_zone(name: str) -> tzinfo:
    """UTC works on machines that know no other zone; ``ValueError`` for an unknown one."""
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
PositiveDuration = Annotated[Duration, longer_than(timedelta(0))]
OptionalDuration = Annotated[PositiveDuration | None, EMPTY_IS_NONE]
Size = Annotated[
    int, BeforeValidator(lambda value: parse_size(value) if isinstance(value, str) else value)
]
ZoneName = Annotated[str, checked(find_zone)]
"""An IANA name that this machine knows."""
