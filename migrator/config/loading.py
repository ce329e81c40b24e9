"""Validate the merged sources, report every problem, and list the settings in force.

A value has a path, its keys from the top: ``("store", "url")``; see ``sources``.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path as FilePath
from typing import Any, Final, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from migrator.config.secrets import MASK, mask, show_address
from migrator.config.settings import Settings
from migrator.config.sources import (
    DEFAULT,
    PREFIX,
    SECRETS,
    Option,
    Origin,
    Path,
    dotted,
    merged,
    nested,
    variable,
    variables_of,
)
from migrator.config.values import meanings
from migrator.config.work import Endpoint
from migrator.documents import Document
from migrator.errors import ConfigError
from migrator.text import build_duration

_NOT_SETTINGS: Final = re.compile(
    r"MIGRATOR_(CONFIG|FAULT\w*|TEST_\w*"  # --config; the crash tests' switches
    r"|EVENT|EVENT_TEXT"  # in a hook, which may call migrator
    r"|SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)"  # by Kubernetes, of a service `migrator`
)
_LONGEST_SHOWN_VALUE: Final = 60


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


def _variables() -> Mapping[Path, bool]:
    found = {path: get_origin(field.annotation) in (dict, tuple) for path, field in leaves()}
    return variables_of(found)


def _unknown_variables(environ: Mapping[str, str]) -> Sequence[str]:
    """Return the names of ``MIGRATOR_*`` variables that are no setting, sorted."""
    ours = {name.upper() for name in environ if name.upper().startswith(PREFIX)}
    unknown = ours - {variable(path) for path in _variables()}
    return sorted(name for name in unknown if not _NOT_SETTINGS.fullmatch(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    settings: Settings
    origins: Mapping[Path, Origin]
    """By path; a missing path has its default."""
    file: FilePath | None

    def origin(self, path: Sequence[str | int]) -> Origin:
        """Of the value at *path*, or of the list or table around it."""
        return _origin(self.origins, path)


def load(
    *,
    file: FilePath | None = None,
    options: Sequence[Option] = (),
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Return the settings of all sources together.

    Args:
        file: The TOML file; None: ``$MIGRATOR_CONFIG``, else ``migrator.toml`` if it exists.
        options: Command options that were given.
        environ: The environment; None: the process's own.

    Raises:
        ConfigError: Anything is wrong; lists every problem with its key and its origin.
    """
    environ = os.environ if environ is None else environ
    found = merged(file=file, options=options, environ=environ, variables=_variables())
    values, known = found.values, [variable(path) for path, _ in leaves()]
    unknown = _unknown_variables(environ)
    problems = [f"{name} (environment): {_unknown(name, known)}" for name in unknown]
    problems += found.problems
    origins = {path: sourced.origin for path, sourced in values.items()}
    try:
        settings = Settings.model_validate(nested(values))
    except ValidationError as exc:
        problems += _invalid(exc, origins)
        raise _refusal(problems) from exc
    if problems:
        raise _refusal(problems)
    return Loaded(settings=settings, origins=origins, file=found.file)


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
        return "must be set"
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
    key: str
    """``store.url``; of an endpoint ``endpoints[0].name``."""
    value: Plain
    """As it would be written in the file; secrets masked; None: not set."""
    origin: str
    """``default``, ``file …``, ``env …`` or ``option …``."""
    meaning: str


class ConfigDocument(Document, title="migrator/config/1"):
    """`migrator config --json`."""

    file: str | None
    settings: Sequence[Row]


def describe(loaded: Loaded) -> Sequence[Row]:
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
    for path, _ in leaves():
        if path == ("endpoints",):
            for index, endpoint in enumerate(settings.endpoints):
                for (key,), _ in leaves(Endpoint):
                    is_set = _attribute(key) in endpoint.model_fields_set
                    origin = loaded.origin(("endpoints", index)) if is_set else DEFAULT
                    yield _row(f"endpoints[{index}].{key}", endpoint, (key,), origin)
        else:
            yield _row(".".join(path), settings, path, loaded.origin(path))


def _row(key: str, model: BaseModel, path: Path, origin: Origin) -> Row:
    *above, name = map(_attribute, path)
    section = reduce(getattr, above, model)
    value, meaning = getattr(section, name), meanings(type(section))[name]
    if path == ("web", "token") and value is not None:
        return Row(key=key, value=MASK, origin=origin.text, meaning=meaning)
    return Row(key=key, value=_plain(value), origin=origin.text, meaning=meaning)


def _attribute(key: str) -> str:
    return "schema_name" if key == "schema" else key  # ``schema`` is a method of every model


def _plain(value: object) -> Plain:
    if isinstance(value, SecretStr):
        shown = [show_address(line) for line in value.get_secret_value().split("\n")]
        return shown if len(shown) > 1 else shown[0]
    if isinstance(value, timedelta):
        return build_duration(value)
    if isinstance(value, tuple):
        return [str(_plain(part)) for part in value]
    return value if value is None or isinstance(value, int | dict) else str(value)
