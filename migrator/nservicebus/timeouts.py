"""What a delayed message is: as a legacy store holds it, and as the broker will.

Source: design section 6; reference ``legacy-stores.md`` section 0 and ``native-delays.md``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, NewType

from annotated_types import Ge

TimeoutId = NewType("TimeoutId", str)
"""The id a legacy store gave a timeout, as text exactly as it compares there."""
EndpointName = NewType("EndpointName", str)
"""The *sending* endpoint that owns stored timeouts."""
QueueName = NewType("QueueName", str)
"""An input queue, without a machine name."""
RunId = NewType("RunId", int)
BatchId = NewType("BatchId", int)
Lane = NewType("Lane", int)
"""Lane number; its lease and its queues are named after it."""
Count = Annotated[int, Ge(0)]
"""How many timeouts, messages or other things."""

RECALL_LANE = Lane(999)
"""Its owner recalls; no lane of hand-over is taken meanwhile."""
SCAN_LANE = Lane(998)
"""Its owner scans the levels and changes nothing; a recall excludes it."""
FIRST_DISPATCHER_LANE = Lane(1000)
"""Lanes from here on belong to dispatchers, one per endpoint; below are those of hand-over."""

BITS: Final = 28
"""Of a native delay in seconds: one level of queues each."""
MAX_DELAY_S: Final = 2**BITS - 1
"""268 435 455 s, about 8.5 years: the longest delay 28 levels can hold."""
KEY_PREFIX_CHARS: Final = 2 * BITS
"""Of a routing key: every bit takes a digit and a dot; the destination's name follows."""
MAX_QUEUE_NAME_BYTES: Final = 255 - KEY_PREFIX_CHARS
"""A routing key is a short string of 255 bytes, so 199 are left for the destination."""

NO_SAGA = "00000000-0000-0000-0000-000000000000"
"""What stores write when a timeout belongs to no saga."""


@dataclass(slots=True, kw_only=True)  # frozen, it would take three times as long to make
class StoredTimeout:
    """One delayed message as a legacy store holds it."""

    id: TimeoutId
    row_index: int
    """Position in its batch, from 0; stable over attempts."""
    destination: str | None
    """The Destination column as stored; may carry ``@MACHINE``."""
    due_at: datetime
    """Aware, UTC; the store's column, which some databases round (see ``conversion``)."""
    body: bytes
    headers_text: str | None
    """The JSON text exactly as stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeMessage:
    """One delayed message as the broker will hold it; its delay is not fixed yet."""

    row_index: int
    timeout_id: TimeoutId
    message_id: str
    destination: QueueName
    due_at: datetime
    """Aware, UTC; the refined due time."""
    headers: dict[str, str | int | None]
    """AMQP headers: ``str`` is written as long string, ``int`` as int32, ``None`` as void."""
    type: str | None
    correlation_id: str | None
    reply_to: str | None
    content_type: str
    body: bytes


@dataclass(slots=True, kw_only=True, eq=False)  # frozen, it would take three times as long to make
class EncodedTimeout:
    """One delayed message in AMQP wire format, but for what an attempt adds when it is sent.

    That is the routing key, an ``app-id`` behind all other properties, and in a staged attempt one
    more header. Made once, for all attempts.
    """

    row_index: int
    timeout_id: TimeoutId
    message_id: str
    destination: QueueName
    due_at: datetime
    """Aware, UTC; the refined due time."""
    head: bytes
    """Flags, those of headers and ``app-id`` included, and the properties before the headers."""
    fields: bytes
    """The header table without its size before it."""
    tail: bytes
    """The properties behind the headers, from the delivery mode to the type."""
    body: bytes


def content_hash(headers_text: str | bytes | None, body: bytes | None) -> str:
    """Return the hex SHA-256 of a timeout's content: headers text (UTF-8), one zero byte, body.

    The ledger computes the same in SQL when it claims; ``verify`` compares the two. Text that
    cannot be read is given as its bytes.
    """
    text = headers_text if isinstance(headers_text, bytes) else (headers_text or "").encode()
    return hashlib.sha256(text + b"\0" + (body or b"")).hexdigest()
