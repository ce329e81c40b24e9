"""The page of settings, from the models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dev.reference.markdown import first_line, page, table
from migrator.config import Endpoint, Settings
from migrator.config.sources import variable
from migrator.config.values import Size, meanings
from migrator.text import build_duration

_IS_SIZE: Final = get_args(Size)[1]
"""What tells a size from any other number."""
_SIZE_UNITS: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def settings() -> str:
    """Return every setting, section by section."""
    return page(
        "Settings",
        "Defaults, then `migrator.toml`, then `MIGRATOR_*` variables, then options; "
        "each overrides those before it.",
        "A `migrator.toml` that was not named with `--config` or `MIGRATOR_CONFIG` counts only if "
        "it belongs to root or the caller, nobody else may write it, and no other user can have "
        "put it there: each folder above it is root's or the caller's, and no group and no other "
        "user may write to it, unless it is sticky, as `/tmp` is. Root takes one that was not "
        "named from `/etc` only.",
        "A file with a secret (`…_file`) must not be readable by every user of the machine.",
        "`migrator config` prints what is in force and where each value came from.\n"
        "Unknown keys are errors, and all problems are reported at once.",
        "A duration is a number with a unit, `250ms`, `30s`, `1m`, `2h`, `30d`, `1w`; "
        "a size is a number of bytes, or one with `KiB`, `MiB` or `GiB`.\n"
        "In the environment a list or a table is written as JSON: "
        '`MIGRATOR_ENDPOINTS=[{"name": "Sales"}]`.',
        *(_section(path, model) for path, model in sections()),
    )


def sections(
    model: type[BaseModel] = Settings, above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Yield every section of the settings with its path, in the order of the models."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield (*above, name), field.annotation
            yield from sections(field.annotation, (*above, name))
        elif Endpoint in get_args(field.annotation):
            yield (*above, name), Endpoint


def _section(path: tuple[str, ...], model: type[BaseModel]) -> str:
    is_list = model is Endpoint
    name = ".".join(path)
    rows, meant = [], meanings(model)
    for attribute, field in model.model_fields.items():
        key = field.alias or attribute
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            continue  # a section of its own
        env = variable(path) if is_list else variable((*path, key))
        meaning = meant.get(attribute, "")
        rows.append((f"`{key}`", _kind(model, field, key), _default(field), f"`{env}`", meaning))
    title = f"[[{name}]]" if is_list else f"[{name}]"
    listed = table(("key", "type", "default", "environment", "meaning"), rows)
    return f"## {title}\n\n{first_line(model)}\n\n{listed}"


def _kind(model: type[BaseModel], field: FieldInfo, key: str) -> str:
    kind = _inner(field.annotation)
    if issubclass(kind, StrEnum):
        return ", ".join(f"`{member}`" for member in kind if _accepts(model, key, member.value))
    if kind is int:
        return "size" if _IS_SIZE in field.metadata else f"number{_limits(field)}"
    if kind is tuple:
        return f"list of {'durations' if _holds_durations(field) else 'texts'}"
    names = {
        bool: "`true`, `false`",
        SecretStr: "text, secret",
        timedelta: "duration",
        dict: "table",
        str: "text",
    }
    return "file" if issubclass(kind, Path) else names[kind]


def _holds_durations(field: FieldInfo) -> bool:
    return any(_inner(part) is timedelta for part in get_args(field.annotation) if part is not ...)


def _inner(annotation: Any) -> type:
    """Return the class behind ``X | None``, ``Annotated[X, …]``, ``dict[…]`` and ``tuple[…]``."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation
    origin = getattr(annotation, "__origin__", None)
    return origin if origin in (dict, tuple) else _inner(get_args(annotation)[0])


def _limits(field: FieldInfo) -> str:
    least = [str(rule.ge) for rule in field.metadata if hasattr(rule, "ge")]
    most = [str(rule.le) for rule in field.metadata if hasattr(rule, "le")]
    if least and most:
        return f", {least[0]} to {most[0]}"
    return f", from {least[0]}" if least else ""


def _accepts(model: type[BaseModel], key: str, value: str) -> bool:
    """Return whether this version takes *value*; the models name later ones as well."""
    try:
        model.model_validate({key: value})
    except ValidationError as exc:
        return all(problem["loc"] != (key,) for problem in exc.errors())
    return True


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "must be given"
    if value is None or value == {}:
        return ""
    if isinstance(value, timedelta):
        return f"`{build_duration(value)}`"
    if isinstance(value, tuple):
        parts = [build_duration(part) if isinstance(part, timedelta) else part for part in value]
        return f"`[{', '.join(map(json.dumps, parts))}]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    is_size = _IS_SIZE in field.metadata
    return f"`{_size(value) if is_size else value}`"


def _size(count: int) -> str:
    for unit, factor in _SIZE_UNITS:
        if count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)
