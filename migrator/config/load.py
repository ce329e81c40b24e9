"""Put all sources together into settings, or report every problem; and tell what is in force.

A value has a path, its keys from the top: ``("store", "url")``. Tables are taken apart down to
single values, so that sources can be laid over each other key by key; lists stay whole.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from functools import reduce
from pathlib import Path as FilePath
from typing import Any, Final, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from migrator.config.secrets import MASK, mask, read_secret, secret_path
from migrator.config.settings import Settings
from migrator.config.values import build_duration
from migrator.config.work import Endpoint
from migrator.errors import ConfigError

PREFIX: Final = "MIGRATOR_"
_DELIMITER: Final = "__"
_NOT_SETTINGS: Final = re.compile(
    r"MIGRATOR_(CONFIG|FAULT\w*|TEST_\w*"  # --config; the crash tests' switches
    r"|EVENT|EVENT_TEXT"  # in a hook, which may call migrator
    r"|SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)"  # by Kubernetes, of a service `migrator`
)

DEFAULT_FILE: Final = FilePath("migrator.toml")
SECRETS: Final = (
    ("store", "url"),
    ("ledger", "url"),
    ("broker", "url"),
    ("broker", "management_url"),
    ("web", "token"),
)
_LISTS: Final = (("broker", "url"), ("broker", "management_url"))
_LONGEST_SHOWN_VALUE: Final = 60

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
    return dict(_flat(tables, Origin(Rank.FILE, f"file {file}")))


def from_options(options: Sequence[Option]) -> Flat:
    """Return the values of command options; mappings are laid over those of other sources."""
    return {
        path: sourced
        for each in options
        for path, sourced in _flat(
            each.value, Origin(Rank.OPTION, f"option {each.name}"), each.path
        )
    }


def from_environment(environ: Mapping[str, str]) -> tuple[Flat, Sequence[str]]:
    """Return the values of ``MIGRATOR_*`` variables, and the names that set nothing we know.

    A list, a table or a whole section is JSON; what is none is left to the models to refuse. A more
    exact variable wins.
    """
    ours = {name.upper(): text for name, text in environ.items() if name.upper().startswith(PREFIX)}
    values: dict[Path, Sourced] = {}
    known = set()
    for path, is_json in sorted(_variables().items(), key=lambda item: len(item[0])):
        name = variable(path)
        known.add(name)
        if name in ours:
            value: object = ours[name]
            with suppress(ValueError):
                value = json.loads(ours[name]) if is_json else value
            values |= dict(_flat(value, Origin(Rank.ENVIRONMENT, f"env {name}"), path))
    unknown = [name for name in ours if name not in known and not _NOT_SETTINGS.fullmatch(name)]
    return values, sorted(unknown)


def _variables() -> dict[Path, bool]:
    """Return the path of all that a variable can set, and whether it is JSON there."""
    found = {path: get_origin(field.annotation) in (dict, tuple) for path, field in leaves()}
    sections = {path[:size] for path in found for size in range(1, len(path))}
    return found | dict.fromkeys(sections, True)


def _flat(value: object, origin: Origin, path: Path = ()) -> Iterator[tuple[Path, Sourced]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, origin, (*path, key))
    else:
        yield path, Sourced(value, origin)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings in force and where each value came from."""

    settings: Settings
    origins: Mapping[Path, Origin]
    """By path; a path that is not here has its default."""
    file: FilePath | None

    def origin(self, path: Sequence[str | int]) -> Origin:
        """Return where the value at *path*, or the list or table around it, came from."""
        return _origin(self.origins, path)


def load(
    *,
    file: FilePath | None = None,
    options: Sequence[Option] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Return the settings of all sources together.

    Args:
        file: The TOML file; None: ``$MIGRATOR_CONFIG``, else ``migrator.toml`` if there is one.
        options: Command options that were given.
        environ: The environment; None: the process's own.

    Raises:
        ConfigError: Anything is wrong; lists every problem with its key and its origin.
    """
    environ = os.environ if environ is None else environ
    file = _chosen_file(file, environ)
    try:
        from_toml = from_file(file) if file else {}
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    from_env, unknown = from_environment(environ)
    values = {**from_toml, **from_env, **from_options(options)}
    known = [variable(path) for path, _ in leaves()]
    problems = [f"{name} (environment): {_unknown(name, known)}" for name in unknown]
    problems += _resolve_secrets(values, beside=file and file.parent, environ=environ)
    origins = {path: sourced.origin for path, sourced in values.items()}
    try:
        settings = Settings.model_validate(nested(values))
    except ValidationError as exc:
        problems += _invalid(exc, origins)
        raise _refusal(problems) from exc
    if problems:
        raise _refusal(problems)
    return Loaded(settings=settings, origins=origins, file=file)


def _chosen_file(file: FilePath | None, environ: Mapping[str, str]) -> FilePath | None:
    if file is not None:
        return file
    if environ.get(f"{PREFIX}CONFIG"):
        return FilePath(environ[f"{PREFIX}CONFIG"])
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _resolve_secrets(
    values: dict[Path, Sourced], *, beside: FilePath | None, environ: Mapping[str, str]
) -> Iterator[str]:
    """Read ``…_file`` keys into *values*; a plain value from a stronger source makes them moot."""
    for path in SECRETS:
        file_path = (*path[:-1], f"{path[-1]}_file")
        named, plain = values.get(file_path), values.get(path)
        if named is None or not isinstance(named.value, str) or not named.value:
            continue
        if plain is not None and plain.origin.rank == named.origin.rank:
            yield (
                f"{dotted(file_path)} ({named.origin.text}): {dotted(path)} is set as well "
                f"({plain.origin.text}); keep one of the two"
            )
        elif plain is None or plain.origin.rank < named.origin.rank:
            in_file = named.origin.rank is Rank.FILE
            found = secret_path(named.value, beside=beside if in_file else None, environ=environ)
            try:
                text = read_secret(found, may_be_list=path in _LISTS)
                values[path] = Sourced(text, Origin(named.origin.rank, f"file {found}"))
            except ValueError as exc:
                yield f"{dotted(file_path)} ({named.origin.text}): {exc}"


def _unknown(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key"


def _invalid(error: ValidationError, origins: Mapping[Path, Origin]) -> Iterator[str]:
    for found in error.errors(include_url=False):
        loc = found["loc"]
        key = dotted(loc)
        if found["type"] == "extra_forbidden":
            text = _unknown(key, _known_keys(loc))
        else:
            text, given = _allowed(found), found["input"]
            if loc not in SECRETS and isinstance(given, str | int | float):
                shown = mask(repr(given))
                is_long = len(shown) > _LONGEST_SHOWN_VALUE
                key += f" = {shown[:_LONGEST_SHOWN_VALUE]}" + "…" * is_long
        yield f"{key} ({_origin(origins, loc).text}): {text}"


def _known_keys(loc: Sequence[str | int]) -> list[str]:
    if loc[0] == "endpoints" and len(loc) > 1:
        return [dotted((*loc[:2], *path)) for path, _ in leaves(Endpoint)]
    return [dotted(path) for path, _ in leaves()]


def _allowed(found: Any) -> str:
    kind, context = found["type"], found.get("ctx", {})
    if kind == "missing":
        return "must be given"
    if kind in ("enum", "literal_error"):
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        return "must be a table"
    if kind == "tuple_type":
        return "must be a list"
    if kind == "value_error":
        return str(context["error"])
    return str(found["msg"]).partition(", ")[0].replace("should", "must", 1).removeprefix("Input ")


def _origin(origins: Mapping[Path, Origin], loc: Sequence[str | int]) -> Origin:
    keys = tuple(str(part) for part in loc)
    for size in range(len(keys), 0, -1):
        if keys[:size] in origins:
            return origins[keys[:size]]
    inside = [origin for path, origin in origins.items() if path[: len(keys)] == keys]
    if not inside:
        return DEFAULT
    return Origin(max(o.rank for o in inside), ", ".join(dict.fromkeys(o.text for o in inside)))


def _refusal(problems: Sequence[str]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(f"wrong setting: {problems[0]}")
    return ConfigError("\n  ".join((f"{len(problems)} wrong settings:", *problems)))


# ── what is in force ────────────────────────────────────────────────────────────────────────────

Plain = str | int | bool | None | dict[str, str] | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting in force."""

    key: str
    """``store.url``; of an endpoint ``endpoints[0].name``."""
    value: Plain
    """As it would be written in the file; secrets masked; None: not set."""
    origin: str
    """``default``, ``file …``, ``env …`` or ``option …``."""
    meaning: str


def describe(loaded: Loaded) -> Sequence[Row]:
    """Return every setting, in the order of the documentation."""
    return tuple(_rows(loaded))


def show_text(value: Plain) -> str:
    """Return *value* as one cell of a table."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{old}={new}" for old, new in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rows(loaded: Loaded) -> Iterator[Row]:
    settings = loaded.settings
    for path, field in leaves():
        if path == ("endpoints",):
            for index, endpoint in enumerate(settings.endpoints):
                for (key,), inner in leaves(Endpoint):
                    is_set = _attribute(key) in endpoint.model_fields_set
                    origin = loaded.origin(("endpoints", index)) if is_set else DEFAULT
                    yield _row(f"endpoints[{index}].{key}", endpoint, (key,), origin, inner)
        else:
            yield _row(".".join(path), settings, path, loaded.origin(path), field)


def _row(key: str, model: object, path: Path, origin: Origin, field: FieldInfo) -> Row:
    value = reduce(getattr, map(_attribute, path), model)
    return Row(key=key, value=_plain(value), origin=origin.text, meaning=field.description or "")


def _attribute(key: str) -> str:
    return "schema_name" if key == "schema" else key  # ``schema`` is a method of every model


def _plain(value: object) -> Plain:
    if isinstance(value, SecretStr):
        shown = [_masked(line) for line in value.get_secret_value().split("\n")]
        return shown if len(shown) > 1 else shown[0]
    if isinstance(value, timedelta):
        return build_duration(value)
    if isinstance(value, tuple):
        return [str(_plain(part)) for part in value]
    return value if value is None or isinstance(value, int | dict) else str(value)


def _masked(secret: str) -> str:
    shown = mask(secret)
    # without a recognised user part nobody knows where the password is
    return shown if MASK in shown else MASK
