"""Where settings come from, and which source wins; the models validate them.

A value has a path, its keys from the top: ``("store", "url")``. Tables are split into single
values, so that sources can be merged key by key; lists stay whole. This file imports no model,
because they take long to import and a verb that only asks a daemon needs none.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path as FilePath
from typing import Any, Final

from migrator.config.secrets import (
    UntrustedError,
    mask_address,
    open_trusted,
    passwords_in,
    read_secret,
    remember,
    secret_path,
)
from migrator.errors import ConfigError

PREFIX: Final = "MIGRATOR_"
_DELIMITER: Final = "__"
DEFAULT_FILE: Final = FilePath("migrator.toml")
SECRETS: Final = (
    ("store", "url"),
    ("ledger", "url"),
    ("broker", "url"),
    ("broker", "management_url"),
    ("web", "token"),
)
LEDGER_PLACE: Final = (
    ("store", "kind"),
    ("store", "url"),
    ("store", "ledger_schema"),
    ("ledger", "url"),
)
"""What determines where the ledger is."""
AUTO: Final = "auto"
"""Of ``web.socket``: at the usual place."""
_LISTS: Final = (("broker", "url"), ("broker", "management_url"))

Path = tuple[str, ...]


class Rank(IntEnum):
    """The highest wins."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    OPTION = 3


@dataclass(frozen=True, slots=True)
class Origin:
    rank: Rank
    text: str


@dataclass(frozen=True, slots=True)
class Sourced:
    value: object
    origin: Origin


@dataclass(frozen=True, slots=True)
class Option:
    path: Path
    value: object
    name: str
    """As typed: ``--cutoff``."""


Flat = Mapping[Path, Sourced]
DEFAULT: Final = Origin(Rank.DEFAULT, "default")


def dotted(path: Sequence[str | int]) -> str:
    """Return *path* as operators write it: ``store.url``, ``endpoints[0].name``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def variable(path: Path) -> str:
    return PREFIX + _DELIMITER.join(path).upper()


def from_file(file: FilePath) -> Flat:
    """Raise ``ValueError`` if the file cannot be read or is not TOML."""
    try:
        return _from_toml(file, file.read_bytes())
    except OSError as exc:
        raise ValueError(f"{file} cannot be read: {exc.strerror}") from exc


def _from_toml(file: FilePath, raw: bytes) -> Flat:
    import tomllib  # who has no file need not wait for it

    try:
        tables = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise ValueError(f"{file} is not UTF-8 text") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ValueError(f"{file} is not TOML: {str(exc)[:1].lower()}{str(exc)[1:]}") from exc
    return dict(_flat(tables, Origin(Rank.FILE, f"file {file}")))


def from_options(options: Sequence[Option]) -> Flat:
    """Mappings are merged with those of other sources."""
    return {
        path: sourced
        for each in options
        for path, sourced in _flat(
            each.value, Origin(Rank.OPTION, f"option {each.name}"), each.path
        )
    }


def variables_of(values: Mapping[Path, bool]) -> Mapping[Path, bool]:
    """*values*: paths and whether their text is JSON; the result adds sections, which are JSON."""
    sections = {path[:size] for path in values for size in range(1, len(path))}
    return {**values, **dict.fromkeys(sections, True)}


def from_environment(environ: Mapping[str, str], variables: Mapping[Path, bool]) -> Flat:
    """Lists, tables and sections are JSON, validated by the models; a more exact variable wins."""
    ours = {name.upper(): text for name, text in environ.items() if name.upper().startswith(PREFIX)}
    values: dict[Path, Sourced] = {}
    for path, is_json in sorted(variables.items(), key=lambda item: len(item[0])):
        name = variable(path)
        if name in ours:
            value: object = ours[name]
            with suppress(ValueError):
                value = json.loads(ours[name]) if is_json else value
            values |= dict(_flat(value, Origin(Rank.ENVIRONMENT, f"env {name}"), path))
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    values: Flat
    problems: Sequence[str]
    """Of secrets in files."""
    file: FilePath | None


def merged(
    *,
    file: FilePath | None,
    options: Sequence[Option],
    environ: Mapping[str, str],
    variables: Mapping[Path, bool],
) -> Merged:
    """Merge all sources, and read secrets from their files; see ``loading.load``.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or was not named and is not trusted.
    """
    if file is None and (named := environ.get(f"{PREFIX}CONFIG")):
        file = FilePath(named)
    try:
        if file is not None:
            from_toml = from_file(file)
        elif (raw := _read_default_file()) is not None:
            from_toml, file = _from_toml(DEFAULT_FILE, raw), DEFAULT_FILE
        else:
            from_toml = {}
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    values = {**from_toml, **from_environment(environ, variables), **from_options(options)}
    problems = list(_resolve_secrets(values, beside=file and file.parent, environ=environ))
    for path in SECRETS:
        given = values[path].value if path in values else []
        for text in given if isinstance(given, list) else [given]:
            remember(*([str(text)] if "token" in path else passwords_in(str(text))))
    return Merged(values=values, problems=problems, file=file)


def peek(
    paths: Sequence[Path],
    *,
    file: FilePath | None = None,
    options: Sequence[Option] = (),
    environ: Mapping[str, str] | None = None,
) -> Mapping[Path, object] | None:
    """Return what is set at *paths*, unchecked, without defaults; None: a source cannot be read."""
    environ = os.environ if environ is None else environ
    files = [(*path[:-1], f"{path[-1]}_file") for path in paths if path in SECRETS]
    variables = variables_of(dict.fromkeys([*paths, *files], False))
    try:
        found = merged(file=file, options=options, environ=environ, variables=variables)
    except ConfigError:
        return None
    if found.problems:
        return None
    return {path: found.values[path].value for path in paths if path in found.values}


def ledger_place(given: Mapping[Path, object]) -> str:
    """Return the same text for the same ledger, from what is *given* at ``LEDGER_PLACE``.

    Different spellings of one address give different texts. The text contains neither the address
    nor a password.
    """
    defaults = {("store", "kind"): "sql", ("store", "ledger_schema"): "migrator"}
    texts = [mask_address(str(given.get(path) or defaults.get(path, ""))) for path in LEDGER_PLACE]
    if any(text.startswith("sqlite") for text in texts):
        texts.append(str(FilePath.cwd()))  # its file is named from there
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]


def _flat(value: object, origin: Origin, path: Path = ()) -> Iterator[tuple[Path, Sourced]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, origin, (*path, key))
    else:
        yield path, Sourced(value, origin)


def nested(flat: Flat) -> dict[str, object]:
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


def _read_default_file() -> bytes | None:
    """Return the content of the file in the current folder that was not named; None: there is none.

    It may name programs and servers, so it counts only if no other user can have put it there. Root
    uses one from /etc only: root often works in folders of other users.

    Raises:
        ConfigError: It does not count, or cannot be read.
    """
    try:
        if not DEFAULT_FILE.is_file():
            return None
        if os.geteuid() == 0 and not FilePath.cwd().is_relative_to("/etc"):
            why = "root takes one that was not named from /etc only"
        else:
            with os.fdopen(open_trusted(DEFAULT_FILE), "rb") as file:
                return file.read()
    except UntrustedError as exc:
        why = str(exc)
    except OSError as exc:
        raise ConfigError(f"{DEFAULT_FILE} cannot be read: {exc.strerror}") from exc
    raise ConfigError(
        f"{DEFAULT_FILE} in the current folder is not used: {why}; if you trust it, name it with "
        f"--config {DEFAULT_FILE}, otherwise start from another folder"
    )


def _resolve_secrets(
    values: dict[Path, Sourced], *, beside: FilePath | None, environ: Mapping[str, str]
) -> Iterator[str]:
    """Read ``…_file`` keys into *values*, unless a stronger source has the plain value."""
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
