"""Messages in AMQP terms, and their headers as the endpoint's own transport would have read them.

The timeout manager stores what its transport makes of a message, so we make the same of it: as
the transports 4.3 to 7.x do. Reading what we made once more changes nothing, because a message
that was retried must be recognised. Source: reference ``timeout-manager.md`` sections 4 and 12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from migrator.nservicebus import headers as h
from migrator.nservicebus.wiretime import build_wire_time

_REMOVED: Final = (
    frozenset(
        {
            h.DELAY_IN_SECONDS,
            h.CONFIRMATION_ID,
            h.OUR_RETRIES,
            h.OUR_RENEWAL,
            "x-death",
            "x-delivery-count",
            "x-acquired-count",  # newer brokers; like the count above, it changes by itself
        }
    )
    | {
        # the transports leave `last` alone, and it is new with every delayed retry by migrator
        f"x-{which}-death-{what}"
        for which in ("first", "last")
        for what in ("exchange", "queue", "reason")
    }
    | h.BROKER_INSTRUCTIONS
)
_MOST_LEVELS: Final = 32
"""Tables in tables are read so deep; no sender needs more, and each level costs a copy."""
_TRANSIENT: Final = 1
_PLAIN_POWERS: Final = range(-4, 15)
"""Powers of ten that .NET writes without an exponent."""


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
class OutgoingMessage:
    """One message to be published as it is."""

    message_id: str | None = None
    correlation_id: str | None = None
    type: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    headers: Mapping[str, str | int | None] = field(default_factory=dict)
    body: bytes = field(repr=False)
    raw_properties: bytes | None = field(default=None, repr=False)
    """In place of all properties above, byte for byte: a copy of what could not be read."""


def normalised_headers(message: IncomingMessage) -> dict[str, str | None]:
    """Return the headers of *message* as text, in their order, with its properties among them.

    Two things differ from the transports, so that ids made of the headers stay what they are
    when a message comes back by way of a retry queue: every mark of dead-lettering goes, and a
    missing delivery mode is read like a given one. What UTF-8 cannot carry becomes U+FFFD.
    """
    found = {
        unicode_text(key): _text(value)
        for key, value in message.raw_headers.items()
        if key not in _REMOVED
    }
    if message.reply_to is not None:
        found[h.REPLY_TO_ADDRESS] = unicode_text(message.reply_to)
    if message.correlation_id is not None:
        found[h.CORRELATION_ID] = unicode_text(message.correlation_id)
    if message.type is not None:
        found.setdefault(h.ENCLOSED_MESSAGE_TYPES, unicode_text(message.type))
    found[h.NON_DURABLE] = str(_is_transient(message, found))
    if h.CALLBACK_QUEUE in found:
        found[h.REPLY_TO_ADDRESS] = found[h.CALLBACK_QUEUE]
    return found


def unicode_text(text: str) -> str:
    """Return *text* with U+FFFD in place of halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _is_transient(message: IncomingMessage, found: h.StoredHeaders) -> bool:
    # a retry copy is persistent whatever the original was
    if message.delivery_mode is None or h.OUR_RETRIES in message.raw_headers:
        return h.is_non_durable(found)
    return message.delivery_mode == _TRANSIENT


def _text(value: object) -> str | None:
    return None if value is None else _written(value, 0)


def _written(value: object, level: int) -> str:
    """Return *value* as .NET's ``ToString`` and the transport's own rules write it."""
    match value:
        case None:  # only within tables and lists
            return ""
        case str():
            return unicode_text(value)
        case bytes():
            return value.decode(errors="replace")
        case dict() | list() if level == _MOST_LEVELS:
            return "..."
        case dict():
            pairs = (f"{unicode_text(k)}={_written(v, level + 1)}" for k, v in value.items())
            return ",".join(pairs)
        case list():
            return ";".join(_written(entry, level + 1) for entry in value)
        case datetime():
            return build_wire_time(value if value.tzinfo else value.replace(tzinfo=UTC))
        case float():
            return _float_text(value)
        case Decimal():
            return f"{value:f}"
        case _:  # bool and int are written alike on both sides
            return unicode_text(str(value))


def _float_text(value: float) -> str:
    """Return the shortest text that reads back as *value*, in the manner of .NET."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    exact = Decimal(repr(value)).normalize()
    power = exact.adjusted()
    if not value or power in _PLAIN_POWERS:
        return f"{exact:f}"
    digits, _, _ = f"{exact:E}".partition("E")
    return f"{digits}E{power:+03d}"
