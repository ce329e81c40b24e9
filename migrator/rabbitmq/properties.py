"""Properties of messages from strangers, in AMQP wire format: whatever the bytes, nothing raises.

pika decodes content headers itself, and a value it cannot read ends the connection; the message
comes back, and ends the next one, for ever. Here it only costs the message its properties.
Most messages are asked for one header or for their ``app-id`` alone, so nothing is read ahead.
Source: AMQP 0-9-1, sections 4.2.1 and 4.2.5; RabbitMQ's table of field types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

_MOST_LEVELS: Final = 16
"""Tables and arrays inside each other; endpoints send none."""
_FIXED_BYTES: Final = {12: 1, 11: 1, 6: 8}
"""Properties that are no short strings, by bit: delivery mode, priority, timestamp."""
HEADERS: Final = 13
_DELIVERY_MODE: Final = 12
_APP_ID: Final = 3
_TEXTS: Final = {15: "content_type", 10: "correlation_id", 9: "reply_to", 7: "message_id"} | {
    5: "type",
    _APP_ID: "app_id",
}
_TABLE, _SHORT_STRING = -1, 0
_FLAGS_KNOWN: Final = 64
"""Messages have a few forms only; what is remembered of them is bounded."""
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
_VALUE_BYTES: Final = {kind: number.size for kind, number in _NUMBERS.items()} | {
    ord("T"): _MOMENT.size,
    ord("V"): 0,
    ord("D"): _DECIMAL.size,
}
"""Of types with a fixed size; the others begin with theirs."""
_CUT: Final = "it ends in the middle of a value"
_UNREADABLE: Final = (struct.error, IndexError, ValueError, OverflowError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValues:
    """What a content header says."""

    message_id: str | None = None
    correlation_id: str | None = None
    type: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    delivery_mode: int | None = None
    app_id: str | None = None
    headers: Mapping[str, object] = field(default_factory=dict)
    """As AMQP values: str, bytes, bool, int, float, Decimal, datetime, list, dict or None."""
    problem: str | None = None
    """Why nothing else of this is known; None: it was read."""


class Properties:
    """Flags and properties of one message; each is read when it is asked for. Never raises."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        """As they came."""

    @property
    def app_id(self) -> str | None:
        """The property; the others are not read for it."""
        return read_app_id(self.raw, 0, len(self.raw))

    def header(self, name: str) -> object:
        """Return one of the headers, without reading the others.

        None: it is not there, or the properties are not what they should be.
        """
        wanted = name.encode()
        if wanted not in self.raw:
            return None
        try:
            return _find_header(self.raw, wanted)
        except _UNREADABLE:
            return None

    @cached_property
    def values(self) -> PropertyValues:
        """All of them."""
        try:
            return PropertyValues(**_read(self.raw))
        except _UNREADABLE as exc:
            return PropertyValues(problem=f"unreadable properties: {exc}")

    @property
    def headers(self) -> Mapping[str, object]:
        """All headers."""
        return self.values.headers


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
            end = at + (_FIXED_BYTES.get(bit) or 1 + raw[at])
        if end > len(raw):
            raise IndexError(_CUT)
        yield bit, at, end
        at = end


def header_spans(raw: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield where each header of the table from *start* to *end* begins, its value, and its end.

    *start* is where the property begins, with the size of the table. A header begins with the size
    of its name, its value with its type.

    Raises:
        struct.error, IndexError, ValueError: The bytes are no table.
    """
    at = start + _UINT32.size
    while at < end:
        value = at + 1 + raw[at]
        if raw[value] == _LONG_TEXT:  # each header of an endpoint is text
            after = value + 5 + _UINT32.unpack_from(raw, value + 1)[0]
        else:
            after = _value_end(raw, value)
        if after > end:
            raise ValueError(_CUT)
        yield at, value, after
        at = after


def read_app_id(data: bytes, begin: int, end: int) -> str | None:
    """Return the ``app-id`` among flags and properties; None: there is none to be read."""
    try:
        at = begin + 2
        for fixed_bytes in _before_app_id(data[begin] << 8 | data[begin + 1]):
            if fixed_bytes == _SHORT_STRING:
                at += 1 + data[at]
            elif fixed_bytes == _TABLE:
                at += _UINT32.size + _UINT32.unpack_from(data, at)[0]
            else:
                at += fixed_bytes
        after = at + 1 + data[at]
        return data[at + 1 : after].decode() if after <= end else None
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def _before_app_id(flags: int) -> tuple[int, ...]:
    """Return the bytes of each property before the ``app-id``, or what tells them.

    Raises:
        IndexError: There is no ``app-id``.
    """
    known = _known_flags.get(flags)
    if known is None:
        if not flags & 1 << _APP_ID:
            raise IndexError("no app-id")
        bits = (bit for bit in range(15, _APP_ID, -1) if flags & 1 << bit)
        known = tuple(
            _TABLE if bit == HEADERS else _FIXED_BYTES.get(bit, _SHORT_STRING) for bit in bits
        )
        if len(_known_flags) >= _FLAGS_KNOWN:
            _known_flags.clear()
        _known_flags[flags] = known
    return known


_known_flags: Final = dict[int, tuple[int, ...]]()


def _find_header(raw: bytes, wanted: bytes) -> object:
    for bit, start, end in property_spans(raw):
        if bit == HEADERS:
            found = None
            for at, value, after in header_spans(raw, start, end):
                if raw[at + 1 : value] == wanted:  # of several, the last counts
                    found = value, after
            return None if found is None else _value(raw, *found, _MOST_LEVELS)
    return None


def _read(raw: bytes) -> dict[str, Any]:
    found, end = dict[str, Any](), 2
    for bit, start, end in property_spans(raw):
        if bit == HEADERS:
            found["headers"] = _table(raw, start, end, _MOST_LEVELS)
        elif bit == _DELIVERY_MODE:
            found["delivery_mode"] = raw[start]
        elif bit not in _FIXED_BYTES:
            text = raw[start + 1 : end].decode()
            if bit in _TEXTS:
                found[_TEXTS[bit]] = text
    if raw[1] & 1:
        raise ValueError("more flags than AMQP 0-9-1 has")
    if end != len(raw):
        raise ValueError("bytes after the last property")
    return found


def _table(raw: bytes, start: int, end: int, levels: int) -> dict[str, object]:
    """Return a table; *levels* tables and arrays may be inside each other."""
    _demand_shallow(levels)
    return {
        raw[at + 1 : value].decode(): _value(raw, value, after, levels)
        for at, value, after in header_spans(raw, start, end)
    }


def _array(raw: bytes, start: int, end: int, levels: int) -> list[object]:
    _demand_shallow(levels)
    found, at = list[object](), start + _UINT32.size
    while at < end:
        after = _value_end(raw, at)
        if after > end:
            raise ValueError(_CUT)
        found.append(_value(raw, at, after, levels))
        at = after
    return found


def _value_end(raw: bytes, at: int) -> int:
    """Return where the value ends that begins, with its type, at *at*."""
    kind = raw[at]
    if kind in b"SxFA":
        return at + 5 + int(_UINT32.unpack_from(raw, at + 1)[0])
    size = _VALUE_BYTES.get(kind)
    if size is None:
        raise ValueError(f"a value of the unknown type {bytes((kind,))!r}")
    return at + 1 + size


def _value(raw: bytes, at: int, after: int, levels: int) -> object:
    kind = raw[at]
    if kind == _LONG_TEXT:
        return _text(raw[at + 5 : after])
    match kind:
        case 0x78:  # x
            return raw[at + 5 : after]
        case 0x46:  # F
            return _table(raw, at + 1, after, levels - 1)
        case 0x41:  # A
            return _array(raw, at + 1, after, levels - 1)
        case 0x54:  # T
            return _moment(_MOMENT.unpack_from(raw, at + 1)[0])
        case 0x56:  # V
            return None
        case 0x44:  # D
            scale, digits = _DECIMAL.unpack_from(raw, at + 1)
            return Decimal(digits).scaleb(-scale)
    found: object = _NUMBERS[kind].unpack_from(raw, at + 1)[0]
    return found


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
