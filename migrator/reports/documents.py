"""JSON as every command and every answer of a daemon has it; imports nothing but this."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

Document = dict[str, object]


def json_bytes(name: str, document: Mapping[str, object]) -> bytes:
    """Return *document* as ``migrator/<name>/1`` in JSON."""
    whole = {"schema": f"migrator/{name}/1", **document}
    return json.dumps(whole, ensure_ascii=False, default=plain).encode()


def plain(value: object) -> object:
    """Return *value* as something JSON has: times as ISO 8601, durations in seconds."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return dict(value) if isinstance(value, Mapping) else str(value)
