"""The templates of the status page, and what it serves besides: a style, a script and an icon."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment

from migrator import __version__
from migrator.reports.drawing.pages import new_environment
from migrator.reports.drawing.texts import size_words

_PACKAGE: Final = "migrator.web.page"


def render(template: str, values: Mapping[str, object]) -> str:
    """Return *template*, filled with *values*."""
    return _environment().get_template(template).render(values)


def asset(name: str) -> bytes:
    """Return what is served as *name*."""
    if name.endswith(".css"):
        return render(name, {}).encode()
    return (files(_PACKAGE) / "static" / name).read_bytes()


def moment(at: datetime) -> str:
    """Return a time as people read it, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def host(owner: str) -> str:
    """Return of a process that has a lease what people know: on which machine it is."""
    return owner.partition("/")[0]


@cache
def _environment() -> Environment:
    environment = new_environment(_PACKAGE)
    environment.filters.update(host=host, moment=moment, size_words=size_words)
    return environment


@cache
def build() -> str:
    """Return what tells pages apart that were made by different versions."""
    known = hashlib.sha256(__version__.encode())
    for name in ("style.css", "script.js"):
        known.update(asset(name))
    return known.hexdigest()[:12]
