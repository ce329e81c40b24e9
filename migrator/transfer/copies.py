"""Properties of copies: byte for byte those of the original, but for what must change.

Works on the wire format, so that what we do not understand stays what it is. The broker has read
every message that it holds, so the outer form is right; header tables are only taken apart where
``read_properties`` had nothing to complain of. Source: AMQP 0-9-1, sections 2.3.5 and 4.2.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final

from migrator.rabbitmq.messages import encode_table
from migrator.rabbitmq.properties import HEADERS, property_spans

_FLAGS: Final = struct.Struct(">H")
_UINT32: Final = struct.Struct(">I")
_EXPIRATION, _USER_ID = 8, 4
_PROPERTY_BITS: Final = range(15, 1, -1)
_SHED: Final = frozenset({_EXPIRATION, _USER_ID})
"""The first would end the copy before its time, the second is refused from another user."""

_VALUE_BYTES: Final = dict(
    zip(b"tbBsUuIifdlLTD", (1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8, 5), strict=True)
)
_VALUES_WITH_SIZE: Final = frozenset(b"SxFA")
_VOID: Final = b"V"[0]


def moved_properties(raw: bytes, *, drop: Collection[str], put: Mapping[str, str | int]) -> bytes:
    """Return *raw* with the headers *put* instead of its own, and without those in *drop*.

    Args:
        raw: Flags and properties that ``read_properties`` could read.
        drop: Names of headers.
        put: Text becomes a long string, a number an int32; they come last.
    """
    parts = dict(_properties(raw))
    gone = _names(frozenset((*drop, *put)))
    table = parts.get(HEADERS, b"\0\0\0\0")
    kept = [entry for name, entry in _entries(table) if name not in gone]
    parts[HEADERS] = _table(b"".join(kept), put)
    return _joined(parts)


def poison_properties(raw: bytes, *, put: Mapping[str, str | int]) -> bytes:
    """Return *raw* with the headers *put* before its own, which are not looked at.

    It comes back unchanged where not even the outer form is that of properties.
    """
    try:
        parts = dict(_properties(raw))
    except (struct.error, IndexError):
        return raw
    own = parts.get(HEADERS, b"\0\0\0\0")[_UINT32.size :]
    added = encode_table(put)[_UINT32.size :]
    parts[HEADERS] = _UINT32.pack(len(added) + len(own)) + added + own
    return _joined(parts)


@lru_cache(maxsize=64)
def _names(names: frozenset[str]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in names)


def _properties(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each property, but those that a copy sheds, by the bit of its flag."""
    for bit, start, end in property_spans(raw):
        if bit not in _SHED:
            yield bit, raw[start:end]


def _joined(parts: Mapping[int, bytes]) -> bytes:
    flags = sum(1 << bit for bit in parts)
    return b"".join((_FLAGS.pack(flags), *(parts[bit] for bit in _PROPERTY_BITS if bit in parts)))


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each header's name, and its bytes with name, type and value."""
    at, end = _UINT32.size, len(table)
    while at < end:
        begin = at
        at += 1 + table[at]
        name = table[begin + 1 : at]
        kind = table[at]
        at += 1
        if kind in _VALUES_WITH_SIZE:
            at += _UINT32.size + _UINT32.unpack_from(table, at)[0]
        elif kind != _VOID:
            at += _VALUE_BYTES[kind]
        yield name, table[begin:at]


def _table(kept: bytes, put: Mapping[str, str | int]) -> bytes:
    added = encode_table(put)[_UINT32.size :]
    return _UINT32.pack(len(kept) + len(added)) + kept + added
