"""From stored timeouts to AMQP bytes, in one pass.

``nservicebus/conversion.py`` has the rules, written for people. This does the same for usual
rows, several times as fast: parts that repeat are taken from the first row of a kind, which
``convert`` made. Every unusual row goes to ``convert``, so only it decides about quarantine. A
property test compares the two, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic_core import from_json

from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import (
    FRAME_RESERVE_BYTES,
    BrokerLimits,
    Quarantine,
    convert,
    quarantine,
    refined_due,
)
from migrator.nservicebus.timeouts import (
    MAX_DELAY_S,
    EncodedTimeout,
    NativeMessage,
    QueueName,
    StoredTimeout,
)
from migrator.nservicebus.wiretime import build_wire_time, parse_wire_time, seconds_up
from migrator.rabbitmq.messages import PERSISTENT, encode_parts, short_string

_UNUSUAL: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
"""Raised for unusual rows: headers that are no flat object of text, a size beyond AMQP, a bad date.
"""
_UINT32: Final = struct.Struct(">I")
_INT32: Final = struct.Struct(">i")
_DELAY_FIELD: Final = short_string(h.DELAY_IN_SECONDS) + b"I"
_TYPES: Final = frozenset({str, type(None)})


def encode(
    rows: Iterable[StoredTimeout], *, rules: BrokerLimits, now: datetime
) -> list[EncodedTimeout | Quarantine]:
    """Return the message of each row, or why it has none; see ``convert``."""
    encoder = _Encoder(rules, now)
    found: list[EncodedTimeout | Quarantine] = []
    for row in rows:
        try:
            found.append(encoder.encode(row))
        except _UNUSUAL:
            found.append(_converted(row, rules, now))
    return found


def _converted(
    row: StoredTimeout, rules: BrokerLimits, now: datetime
) -> EncodedTimeout | Quarantine:
    message = convert(row, rules=rules, now=now)
    if isinstance(message, Quarantine):
        return message
    try:
        return encode_message(message)
    except Exception as error:  # one row must not stop the others
        return quarantine(row, error)


def encode_message(message: NativeMessage) -> EncodedTimeout:
    head, fields, tail = encode_parts(message, has_app_id=True)
    return EncodedTimeout(
        row_index=message.row_index,
        timeout_id=message.timeout_id,
        message_id=message.message_id,
        destination=message.destination,
        due_at=message.due_at,
        head=head,
        fields=fields,
        tail=tail,
        body=message.body,
    )


@dataclass(slots=True, eq=False)
class _Kind:
    destination: QueueName
    head: bytes
    has_correlation_id: bool
    reply_to: bytes
    type: bytes


class _Encoder:
    def __init__(self, rules: BrokerLimits, now: datetime) -> None:
        self._rules = rules
        self._now = now
        self._latest = now + timedelta(seconds=MAX_DELAY_S)
        room = rules.frame_max_bytes - rules.x_death_reserve_bytes - FRAME_RESERVE_BYTES
        self._most_bytes = room if rules.frame_max_bytes else 2**31
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._fields: dict[str, tuple[bytes, object, bytes]] = {}
        """By key: the field's first bytes (empty: dropped), its last value, and its bytes then."""

    def encode(self, row: StoredTimeout) -> EncodedTimeout | Quarantine:
        """Raises one of ``_UNUSUAL`` where only ``convert`` can decide."""
        text = row.headers_text
        if text is None or len(text) > self._most_bytes:
            raise ValueError("no headers, or possibly too many")
        headers: dict[str, Any] = from_json(text)
        if not _TYPES.issuperset(map(type, headers.values())):
            raise ValueError("not a flat object of text")
        kind_of_row = self._key(row, headers)
        kind = self._kinds.get(kind_of_row)
        if kind is None:
            return self._first_of_kind(row, kind_of_row)
        due_at = refined_due(row.due_at, headers)
        delay_s = seconds_up(due_at - parse_wire_time(headers[h.TIME_SENT]))
        if delay_s < 0 or due_at > self._latest or len(row.body) > self._rules.body_max_bytes:
            raise ValueError("it was sent after it is due, is due too late, or too large")
        message_id = h.message_id(headers) or row.id
        correlation_id = short_string(headers[h.CORRELATION_ID]) if kind.has_correlation_id else b""
        if h.TRACEPARENT in headers:
            headers.setdefault(h.START_NEW_TRACE, "True")
        headers[h.RELATED_TO_TIMEOUT_ID] = row.id
        # a readable wire time is what would be written
        headers[h.DELIVER_AT] = (
            build_wire_time(due_at) if due_at is row.due_at else headers[h.EXPIRE]
        )
        return EncodedTimeout(
            row_index=row.row_index,
            timeout_id=row.id,
            message_id=message_id,
            destination=kind.destination,
            due_at=due_at,
            head=kind.head,
            fields=self._encode_fields(headers) + _DELAY_FIELD + _INT32.pack(delay_s),
            tail=PERSISTENT + correlation_id + kind.reply_to + short_string(message_id) + kind.type,
            body=row.body,
        )

    @staticmethod
    def _key(row: StoredTimeout, headers: dict[str, Any]) -> tuple[object, ...]:
        """Return everything on which a ``_Kind`` depends."""
        get = headers.get
        return (
            row.destination,
            get(h.ROUTE_EXPIRED_TO),
            get(h.REPLY_TO_ADDRESS),
            get(h.TIMEOUT_REPLY_TO),
            get(h.CONTENT_TYPE),
            get(h.ENCLOSED_MESSAGE_TYPES),
            get(h.VERSION),
            get(h.CORRELATION_ID) is None,
        )

    def _first_of_kind(
        self, row: StoredTimeout, key: tuple[object, ...]
    ) -> EncodedTimeout | Quarantine:
        message = convert(row, rules=self._rules, now=self._now)
        if isinstance(message, Quarantine):
            return message
        encoded = encode_message(message)
        if not h.is_version_3(message.headers):  # some of its messages get one more header
            self._kinds[key] = _Kind(
                destination=message.destination,
                head=encoded.head,
                has_correlation_id=message.correlation_id is not None,
                reply_to=b"" if message.reply_to is None else short_string(message.reply_to),
                type=b"" if message.type is None else short_string(message.type),
            )
        return encoded

    def _encode_fields(self, headers: dict[str, Any]) -> bytes:
        """Encode *headers*, most with the value of the row before; ValueError: maybe too large."""
        pieces: list[bytes] = []
        known_fields = self._fields
        for key, value in headers.items():
            known = known_fields.get(key)
            if known is not None and known[1] == value:
                pieces.append(known[2])
                continue
            begin = self._begin_of_field(key) if known is None else known[0]
            if not begin:
                field = b""
            elif value is None:
                field = begin[:-1] + b"V"
            else:
                data = value.encode()
                field = begin + _UINT32.pack(len(data)) + data
            known_fields[key] = begin, value, field
            pieces.append(field)
        fields = b"".join(pieces)
        if len(fields) + 4 * len(headers) > self._most_bytes:  # a null counts as if it were text
            raise ValueError("possibly too large")
        return fields

    @staticmethod
    def _begin_of_field(key: str) -> bytes:
        return short_string(key) + b"S" if h.is_kept(key) else b""
