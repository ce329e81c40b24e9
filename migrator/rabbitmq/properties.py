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
    ord(kind): struct.Struct(form)
    for kind, form in {
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "U": ">h",
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
        "f": ">f",
        "d": ">d",
        "t": ">?",
    }.items()
}
_LONG_TEXT: Final = ord("S")
_MOMENT: Final = struct.Struct(">Q")
_DECIMAL: Final = struct.Struct(">Bi")
_CUT: Final = "it ends in the middle of a value"


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
            raise IndexError(_CUT)
        yield bit, at, end
        at = end


def read_properties(data: bytes) -> Properties:
    """Return what *data*, the flags and properties of a content header, says; never raises."""
    try:
        return Properties(**_read(data), raw=data)
    except (struct.error, IndexError, ValueError, OverflowError, OSError) as exc:
        return Properties(raw=data, problem=f"unreadable properties: {exc}")


def find_header(data: bytes, name: str) -> object | None:
    """Return the header *name* in *data*, flags and properties, without reading the others.

    None: it is not there, or the properties are not what they should be.
    """
    wanted, found = name.encode(), None
    try:
        for bit, start, end in property_spans(data):
            if bit != HEADERS:
                continue
            at = start + _UINT32.size
            while at < end:
                key, at = at + 1, at + 1 + data[at]
                if data[key:at] == wanted:
                    found, at = _value(data, at, end, _MOST_LEVELS)
                elif data[at] == _LONG_TEXT:
                    at += 1 + _UINT32.size + _UINT32.unpack_from(data, at + 1)[0]
                else:
                    _, at = _value(data, at, end, _MOST_LEVELS)
            return found if at == end else None
    except (struct.error, IndexError, ValueError, OverflowError, OSError):
        pass
    return None


def _read(data: bytes) -> dict[str, Any]:
    found, end = dict[str, Any](), 2
    for bit, start, end in property_spans(data):
        if bit == HEADERS:
            found["headers"] = _table(data, start + _UINT32.size, end, _MOST_LEVELS)
        elif bit == _DELIVERY_MODE:
            found["delivery_mode"] = data[start]
        elif bit not in FIXED_BYTES:
            text = data[start + 1 : end].decode()
            if bit in _TEXTS:
                found[_TEXTS[bit]] = text
    if data[1] & 1:
        raise ValueError("more flags than AMQP 0-9-1 has")
    if end != len(data):
        raise ValueError("bytes after the last property")
    return found


def _table(data: bytes, at: int, end: int, levels: int) -> dict[str, object]:
    """Return the table from *at* to *end*; *levels* tables and arrays may be inside each other.

    Raises:
        ValueError, struct.error: It is no table.
    """
    _demand_shallow(levels)
    found = dict[str, object]()
    while at < end:
        key, at = at + 1, at + 1 + data[at]
        if at >= end:
            raise ValueError(_CUT)
        name = data[key:at].decode()
        found[name], at = _value(data, at, end, levels)
    return found


def _array(data: bytes, at: int, end: int, levels: int) -> list[object]:
    """Return the array from *at* to *end*; raises what ``_table`` does."""
    _demand_shallow(levels)
    found = list[object]()
    while at < end:
        value, at = _value(data, at, end, levels)
        found.append(value)
    return found


def _value(data: bytes, at: int, end: int, levels: int) -> tuple[object, int]:
    """Return the value at *at*, which begins with its type, and where it ends: *end* at most."""
    kind, at = data[at], at + 1
    if kind in b"SxFA":  # each header of an endpoint is text
        start = at + _UINT32.size
        after = start + _UINT32.unpack_from(data, at)[0]
        if after > end:
            raise ValueError(_CUT)
        if kind in b"Sx":
            value = data[start:after]
            return _text(value) if kind in b"S" else value, after
        nested = _table if kind in b"F" else _array
        return nested(data, start, after, levels - 1), after
    found, after = _plain(data, kind, at)
    if after > end:
        raise ValueError(_CUT)
    return found, after


def _plain(data: bytes, kind: int, at: int) -> tuple[object, int]:
    """Return the value of a type with a fixed size, and where it ends."""
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, at)[0], at + number.size
    match kind:
        case 0x54:  # T
            return _moment(_MOMENT.unpack_from(data, at)[0]), at + _MOMENT.size
        case 0x56:  # V
            return None, at
        case 0x44:  # D
            scale, digits = _DECIMAL.unpack_from(data, at)
            return Decimal(digits).scaleb(-scale), at + _DECIMAL.size
    raise ValueError(f"a value of the unknown type {bytes((kind,))!r}")


def _demand_shallow(levels: int) -> None:
    if levels <= 0:
        raise ValueError(f"more than {_MOST_LEVELS} nested tables")


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
