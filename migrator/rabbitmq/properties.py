"""Properties of messages from strangers, in AMQP wire format: whatever the bytes, nothing raises.

pika decodes content headers itself, and a value it cannot read ends the connection; the message
comes back, and ends the next one, for ever. Here it only costs the message its properties.
Source: AMQP 0-9-1, sections 4.2.1 and 4.2.5; RabbitMQ's table of field types.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

_MOST_LEVELS: Final = 16
"""Tables and arrays inside each other; endpoints send none."""
_PROPERTIES: Final = (
    # bit, name, kind: in the order in which they are written
    (15, "content_type", "s"),
    (14, "content_encoding", "s"),
    (13, "headers", "F"),
    (12, "delivery_mode", "B"),
    (11, "priority", "B"),
    (10, "correlation_id", "s"),
    (9, "reply_to", "s"),
    (8, "expiration", "s"),
    (7, "message_id", "s"),
    (6, "timestamp", "Q"),
    (5, "type", "s"),
    (4, "user_id", "s"),
    (3, "app_id", "s"),
    (2, "cluster_id", "s"),
)


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


class _Unreadable(ValueError):
    """The bytes are no AMQP properties."""


def read_properties(data: bytes) -> Properties:
    """Return what *data*, the flags and properties of a content header, says; never raises."""
    try:
        found = _Reader(data).properties()
    except (_Unreadable, struct.error, IndexError, ValueError, OverflowError, OSError) as exc:
        return Properties(raw=data, problem=f"unreadable properties: {exc}")
    known = {name: found.get(name) for name in _KNOWN}
    headers = found.get("headers") or {}
    return Properties(**known, headers=headers, raw=data)  # type: ignore[arg-type]  # kinds as in the table


_KNOWN: Final = (
    "message_id",
    "correlation_id",
    "type",
    "reply_to",
    "content_type",
    "delivery_mode",
    "app_id",
)


class _Reader:
    """Walks over bytes once."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def properties(self) -> dict[str, object]:
        (flags,) = self._unpack(">H")
        if flags & 1:
            raise _Unreadable("more flags than AMQP 0-9-1 has")
        found: dict[str, object] = {}
        for bit, name, kind in _PROPERTIES:
            if flags & 1 << bit:
                found[name] = self._property(kind)
        if self._at != len(self._data):
            raise _Unreadable("bytes behind the last property")
        return found

    def _property(self, kind: str) -> object:
        if kind == "s":
            return self._short_string()
        if kind == "F":
            return self._table(_MOST_LEVELS)
        (value,) = self._unpack(f">{kind}")
        return value

    def _unpack(self, form: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise _Unreadable("it ends in the middle of a value")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _short_string(self) -> str:
        (size,) = self._unpack(">B")
        return self._bytes(size).decode()

    def _sized(self) -> bytes:
        (size,) = self._unpack(">I")
        return self._bytes(size)

    def _table(self, levels: int) -> dict[str, object]:
        inner = self._nested(levels)
        found: dict[str, object] = {}
        while inner.has_more:
            key = inner._short_string()
            found[key] = inner._value(levels - 1)
        return found

    def _array(self, levels: int) -> list[object]:
        inner = self._nested(levels)
        found: list[object] = []
        while inner.has_more:
            found.append(inner._value(levels - 1))
        return found

    def _nested(self, levels: int) -> _Reader:
        if levels <= 0:
            raise _Unreadable(f"more than {_MOST_LEVELS} tables inside each other")
        return _Reader(self._sized())

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def _value(self, levels: int) -> object:
        kind = self._bytes(1)
        if kind in _NUMBERS:
            (number,) = self._unpack(_NUMBERS[kind])
            return number
        if kind == b"F":
            return self._table(levels)
        if kind == b"A":
            return self._array(levels)
        read = _OTHERS.get(kind)
        if read is None:
            raise _Unreadable(f"a value of the unknown type {kind!r}")
        return read(self)

    def text(self) -> str | bytes:
        """Read a long string; text that is not UTF-8 stays bytes."""
        data = self._sized()
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def binary(self) -> bytes:
        return self._sized()

    def truth(self) -> bool:
        return self._bytes(1) != b"\0"

    def nothing(self) -> None:
        return None

    def moment(self) -> datetime | int:
        """Read a timestamp; one beyond the calendar stays a number."""
        (seconds,) = self._unpack(">Q")
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            return seconds

    def decimal(self) -> Decimal:
        scale, unscaled = self._unpack(">Bi")
        return Decimal(unscaled).scaleb(-scale)


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
_OTHERS: Final[Mapping[bytes, Callable[[_Reader], object]]] = {
    b"S": _Reader.text,
    b"x": _Reader.binary,
    b"t": _Reader.truth,
    b"V": _Reader.nothing,
    b"T": _Reader.moment,
    b"D": _Reader.decimal,
}
