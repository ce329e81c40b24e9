"""Tell people which settings are in force, and why; secrets are masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from migrator.config.load import DEFAULT, Loaded, Origin, leaves
from migrator.config.secrets import MASK, mask
from migrator.config.values import build_duration
from migrator.config.work import Endpoint

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


def _row(key: str, model: object, path: Sequence[str], origin: Origin, field: FieldInfo) -> Row:
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
