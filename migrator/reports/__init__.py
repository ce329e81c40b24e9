"""Reports as HTML, and every document as JSON, which needs no other package.

Start with ``preview`` or ``verify``, one page each that can be mailed. ``pages`` is what they
share, ``pictures`` the geometry, ``templates`` the HTML. Pure: no I/O and no clock; a page has no
script and loads nothing. A dataclass in a document is written with its fields, under their names:
those of one that is in a public document are public, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from migrator.text import is_visible

Document = dict[str, object]
_UNUSUAL: Final = re.compile(r"[^\n -~]")
"""A character by character copy of a body of 128 MiB would take gigabytes."""


def json_bytes(name: str, document: Mapping[str, object]) -> bytes:
    """Return *document* as ``migrator/<name>/1`` in JSON."""
    return json_text({"schema": f"migrator/{name}/1", **document}).encode()


def json_text(document: Mapping[str, object], *, indent: int | None = None) -> str:
    """Return *document* as JSON; what ``text.visible`` escapes is escaped as JSON does it.

    It is the same document for a program, and a terminal acts on none of it.
    """
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=plain)
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNUSUAL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0] if is_visible(found[0]) else json.dumps(found[0])[1:-1]


def plain(value: object) -> object:
    """Return *value* as something JSON has: times as ISO 8601, durations in seconds."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value):
        return fields_of(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def fields_of(value: Any) -> Document:
    """Return the fields of a dataclass by name; what is in them is as it was."""
    return {each.name: getattr(value, each.name) for each in fields(value)}
