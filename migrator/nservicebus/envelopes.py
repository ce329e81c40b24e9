"""Messages in AMQP terms: as the broker delivers them, and as we publish them at once.

Source: reference ``timeout-manager.md`` sections 4 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """One message as the broker delivered it; nothing in it can be trusted."""

    message_id: str | None
    correlation_id: str | None
    type: str | None
    reply_to: str | None
    content_type: str | None
    delivery_mode: int | None
    raw_headers: Mapping[str, object]
    """As AMQP values: str, bytes, bool, int, float, Decimal, datetime, list, dict or None."""
    body: bytes = field(repr=False)
    raw_properties: bytes = field(repr=False)
    """Flags and properties as they came, for a copy that changes nothing."""
    problem: str | None = None
    """Why the properties could not be read; the fields above are then empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """One message to be published as it is."""

    message_id: str | None
    correlation_id: str | None
    type: str | None
    reply_to: str | None
    content_type: str | None
    headers: Mapping[str, str | int | None]
    body: bytes = field(repr=False)
    raw_properties: bytes | None = field(default=None, repr=False)
    """In place of all properties above, byte for byte: a copy of what could not be read."""
