"""Properties of messages from strangers, in AMQP wire format: whatever the bytes, nothing raises.

pika decodes content headers itself, and a value it cannot read ends the connection; the message
comes back, and ends the next one, for ever. Here it only costs the message its properties.
Source: AMQP 0-9-1, sections 4.2.1 and 4.2.5; RabbitMQ's table of field types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

_MOST_LEVELS: Final = 16
"""Tables and arrays inside each other; endpoints send none."""
FIXED_BYTES: Final = {12: 1, 11: 1, 6: 8}
"""Properties that are no short strings, by bit: delivery mode, priority, timestamp."""
HEADERS: Final = 13
_DELIVERY_MODE: Final = 12
_TEXTS: Final = {15: "content_type", 10: "correlation_id", 9: "reply_to", 7: "message_id"} | {
    5: "type",
    3: "app_id",
}
_UINT32: Final = struct.Struct(">I")
_NUMBERS: Final = {
    b"b": ">b",
    b"B": ">B",
    b"s": ">h",
    b"U": ">h",
    b"u": ">H",
    b"I": ">i",
    b"i": ">I",
    b"l": ">q",
    b"L": ">q",
    b"f": ">f",
    b"d": ">d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What a content header says."""

    message_id: str | None = None
    correlation_id: str | None = None
    type: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    delivery_mode: int | None = None
    app_id: str | None = None
    headers: Mapping[str, object] = field(default_factory=dict)
    raw: bytes = field(default=b"", repr=False)
    """Flags and properties as they came."""
    problem: str | None = None
    """Why nothing else of this is known; None: it was read."""


def property_spans(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the bit of each property in *raw*, flags and properties, and where it begins and ends.

    Raises:
        struct.error, IndexError: The bytes are no AMQP properties.
    """
    flags, at = raw[0] << 8 | raw[1], 2
    for bit in range(15, 1, -1):
        if not flags & 1 << bit:
            continue
        if bit == HEADERS:
            end = at + _UINT32.size + _UINT32.unpack_from(raw, at)[0]
        else:
            end = at + (FIXED_BYTES.get(bit) or 1 + raw[at])
        if end > len(raw):
            raise IndexError("it ends in the middle of a value")
        yield bit, at, end
        at = end


def read_properties(data: bytes) -> Properties:
    """Return what *data*, the flags and properties of a content header, says; never raises."""
    try:
        return Properties(**_read(data), raw=data)
    except (struct.error, IndexError, ValueError, OverflowError, OSError) as exc:
        return Properties(raw=data, problem=f"unreadable properties: {exc}")


def _read(data: bytes) -> dict[str, Any]:
    found, end = dict[str, Any](), 2
    for bit, start, end in property_spans(data):
        if bit == HEADERS:
            found["headers"] = _nested(BytesIO(data[start:end]), b"F", _MOST_LEVELS)
        elif bit == _DELIVERY_MODE:
            found["delivery_mode"] = data[start]
        elif bit not in FIXED_BYTES:
            text = data[start + 1 : end].decode()
            if bit in _TEXTS:
                found[_TEXTS[bit]] = text
    if data[1] & 1:
        raise ValueError("more flags than AMQP 0-9-1 has")
    if end != len(data):
        raise ValueError("bytes behind the last property")
    return found


def _value(data: BytesIO, kind: bytes, levels: int) -> object:
    """Return the next value of *data*; *levels* more tables and arrays may be inside.

    Raises:
        ValueError, struct.error: It is no value.
    """
    if kind in _NUMBERS:
        return _unpacked(data, _NUMBERS[kind])
    match kind:
        case b"F" | b"A":
            return _nested(data, kind, levels)
        case b"S":
            return _text(_sized(data))
        case b"x":
            return _sized(data)
        case b"T":
            return _moment(_unpacked(data, ">Q"))
        case b"t":
            return _bytes(data, 1) != b"\0"
        case b"V":
            return None
        case b"D":
            scale = _unpacked(data, ">B")
            return Decimal(_unpacked(data, ">i")).scaleb(-scale)
    raise ValueError(f"a value of the unknown type {kind!r}")


def _nested(data: BytesIO, kind: bytes, levels: int) -> dict[str, object] | list[object]:
    """Return the next table, or array, of *data*."""
    if levels <= 0:
        raise ValueError(f"more than {_MOST_LEVELS} tables inside each other")
    inner = BytesIO(_sized(data))
    table, array = dict[str, object](), list[object]()
    while first := inner.read(1):
        if kind == b"A":
            array.append(_value(inner, first, levels - 1))
        else:
            key = _bytes(inner, first[0]).decode()
            table[key] = _value(inner, _bytes(inner, 1), levels - 1)
    return array if kind == b"A" else table


def _text(data: bytes) -> str | bytes:
    """Return a long string; text that is not UTF-8 stays bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _moment(seconds: int) -> datetime | int:
    """Return a timestamp; one beyond the calendar stays a number."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return seconds


def _unpacked(data: BytesIO, form: str) -> int:
    (found,) = struct.unpack(form, _bytes(data, struct.calcsize(form)))
    return found  # type: ignore[no-any-return]  # or a float


def _sized(data: BytesIO) -> bytes:
    return _bytes(data, _unpacked(data, ">I"))


def _bytes(data: BytesIO, size: int) -> bytes:
    found = data.read(size)
    if len(found) < size:
        raise ValueError("it ends in the middle of a value")
    return found
