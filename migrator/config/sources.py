"""Where settings come from: each source as a flat table of values with their origin.

A value's path is its keys from the top: ``("store", "url")``. Tables are taken apart down to
single values, so that sources can be laid over each other key by key; lists stay whole.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from migrator.config.models import Settings

PREFIX: Final = "MIGRATOR_"
_DELIMITER: Final = "__"
_NOT_SETTINGS: Final = re.compile(
    r"MIGRATOR_(CONFIG|FAULT\w*|TEST_\w*"  # --config; the crash tests' switches
    r"|EVENT|EVENT_TEXT"  # in a hook, which may call migrator
    r"|SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)"  # by Kubernetes, of a service `migrator`
)

Path = tuple[str, ...]


class Rank(IntEnum):
    """Which source wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    OPTION = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from, for people."""

    rank: Rank
    text: str


@dataclass(frozen=True, slots=True)
class Sourced:
    """A raw value and its origin."""

    value: object
    origin: Origin


@dataclass(frozen=True, slots=True)
class Option:
    """A command option that was given."""

    path: Path
    value: object
    name: str
    """As typed: ``--cutoff``."""


Flat = Mapping[Path, Sourced]
DEFAULT: Final = Origin(Rank.DEFAULT, "default")


def dotted(path: Sequence[str | int]) -> str:
    """Return *path* as people write it: ``store.url``, ``endpoints[0].name``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def variable(path: Path) -> str:
    """Return the name of the environment variable that sets the value at *path*."""
    return PREFIX + _DELIMITER.join(path).upper()


def leaves(model: type[BaseModel] = Settings, above: Path = ()) -> Iterator[tuple[Path, FieldInfo]]:
    """Yield the path and field of everything that can be set, in the order of the models.

    A list or a mapping is one leaf.
    """
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, path)
        else:
            yield path, field


def from_file(file: FilePath) -> Flat:
    """Return the values of a TOML file.

    Raises:
        ValueError: It cannot be read or is not TOML; says why.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ValueError(f"{file} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ValueError(f"{file} is not UTF-8 text") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"{file} is not TOML: {str(exc)[:1].lower()}{str(exc)[1:]}") from exc
    origin = Origin(Rank.FILE, f"file {file}")
    return {path: Sourced(value, origin) for path, value in _flatten(tables)}


def from_options(options: Sequence[Option]) -> Flat:
    """Return the values of command options; mappings are laid over those of other sources."""
    return {
        path: Sourced(value, Origin(Rank.OPTION, f"option {option.name}"))
        for option in options
        for path, value in _nested(option.path, option.value)
    }


def from_environment(environ: Mapping[str, str]) -> tuple[Flat, Sequence[str]]:
    """Return the values of ``MIGRATOR_*`` variables, and the names that set nothing we know."""
    ours = {name.upper(): text for name, text in environ.items() if name.upper().startswith(PREFIX)}
    known = {variable(path) for path, _ in leaves()}
    known |= {variable(path[:n]) for path, _ in leaves() for n in range(1, len(path))}
    unknown = [name for name in ours if name not in known and not _NOT_SETTINGS.fullmatch(name)]
    used = {name: text for name, text in ours.items() if name in known}
    values = {
        path: Sourced(value, Origin(Rank.ENVIRONMENT, f"env {_variable_of(path, used)}"))
        for path, value in _flatten(_Environment(used)())
    }
    return values, sorted(unknown)


class _Environment(EnvSettingsSource):
    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(
            Settings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter=_DELIMITER
        )
        self.env_vars = {name.lower(): text for name, text in environ.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Return the JSON in *value*, or *value* as it is: the models say what is wrong with it."""
        try:
            return super().decode_complex_value(field_name, field, value)
        except ValueError:
            return value


def _variable_of(path: Path, used: Mapping[str, str]) -> str:
    names = (variable(path[:n]) for n in range(len(path), 0, -1))
    return next((name for name in names if name in used), variable(path))


def _nested(path: Path, value: object) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict):
        yield from _flatten(value, path)
    else:
        yield path, value


def _flatten(tables: Mapping[str, object], above: Path = ()) -> Iterator[tuple[Path, object]]:
    for key, value in tables.items():
        yield from _nested((*above, key), value)


def merged(*flats: Flat) -> dict[Path, Sourced]:
    """Return the values of all sources, later ones winning."""
    together: dict[Path, Sourced] = {}
    for flat in flats:
        together.update(flat)
    return together


def nested(flat: Flat) -> dict[str, object]:
    """Return the values as nested tables, as the models take them."""
    tables: dict[str, Any] = {}
    for path, sourced in sorted(flat.items(), key=lambda item: len(item[0])):
        table = tables
        for key in path[:-1]:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                break  # a scalar where a table belongs: the models complain about that one
        else:
            table[path[-1]] = sourced.value
    return tables
