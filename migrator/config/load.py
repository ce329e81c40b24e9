"""Put all sources together into settings, or report every problem in them at once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import ValidationError

from migrator.config.models import Endpoint, Settings
from migrator.config.secrets import mask, read_secret, secret_path
from migrator.config.sources import (
    DEFAULT,
    PREFIX,
    Option,
    Origin,
    Path,
    Rank,
    Sourced,
    dotted,
    from_environment,
    from_file,
    from_options,
    leaves,
    merged,
    nested,
    variable,
)
from migrator.errors import ConfigError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    key: str
    origin: str
    text: str

    def __str__(self) -> str:
        return f"{self.key} ({self.origin}): {self.text}"


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
    values = merged(from_toml, from_env, from_options(options))
    problems = [_unknown_variable(name) for name in unknown]
    problems += _resolve_secrets(values, beside=file and file.parent, environ=environ)
    origins = {path: sourced.origin for path, sourced in values.items()}
    try:
        settings = Settings(**nested(values))  # type: ignore[arg-type]  # the model checks them
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
) -> Iterator[_Problem]:
    """Read ``…_file`` keys into *values*; a plain value from a stronger source makes them moot."""
    for path in SECRETS:
        file_path = (*path[:-1], f"{path[-1]}_file")
        named, plain = values.get(file_path), values.get(path)
        if named is None or not isinstance(named.value, str) or not named.value:
            continue
        if plain is not None and plain.origin.rank == named.origin.rank:
            yield _Problem(
                key=dotted(file_path),
                origin=named.origin.text,
                text=f"{dotted(path)} is set as well ({plain.origin.text}); keep one of the two",
            )
        elif plain is None or plain.origin.rank < named.origin.rank:
            in_file = named.origin.rank is Rank.FILE
            found = secret_path(named.value, beside=beside if in_file else None, environ=environ)
            try:
                text = read_secret(found, may_be_list=path in _LISTS)
                values[path] = Sourced(text, Origin(named.origin.rank, f"file {found}"))
            except ValueError as exc:
                yield _Problem(key=dotted(file_path), origin=named.origin.text, text=str(exc))


def _unknown_variable(name: str) -> _Problem:
    known = [variable(path) for path, _ in leaves()]
    return _Problem(key=name, origin="environment", text=_unknown(name, known))


def _unknown(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key"


def _invalid(error: ValidationError, origins: Mapping[Path, Origin]) -> Iterator[_Problem]:
    for found in error.errors(include_url=False):
        loc = found["loc"]
        key = dotted(loc)
        if found["type"] == "extra_forbidden":
            text = _unknown(key, _known_keys(loc))
        else:
            text = _allowed(found)
            if _may_be_shown(loc, found["input"]):
                key += f" = {_short(found['input'])}"
        yield _Problem(key=key, origin=_origin(origins, loc).text, text=text)


def _known_keys(loc: Sequence[str | int]) -> list[str]:
    if loc[0] == "endpoints" and len(loc) > 1:
        return [dotted((*loc[:2], *path)) for path, _ in leaves(Endpoint)]
    return [dotted(path) for path, _ in leaves()]


def _may_be_shown(loc: Sequence[str | int], value: object) -> bool:
    return tuple(loc) not in SECRETS and isinstance(value, str | int | float | bool)


def _short(value: object) -> str:
    text = mask(repr(value))
    return text if len(text) <= _LONGEST_SHOWN_VALUE else text[:_LONGEST_SHOWN_VALUE] + "…"


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


def _refusal(problems: Sequence[_Problem]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(f"wrong setting: {problems[0]}")
    listed = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{len(problems)} wrong settings:{listed}")
