"""The messages that a dispatcher sends: due timeouts, and messages that were never stored.

Source: reference ``timeout-manager.md`` sections 7 and 10. ``conversion`` has the common rules:
which headers are kept, how they become properties, and what the broker can carry.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import (
    SHORT_STRING_BYTES,
    BrokerLimits,
    ConversionError,
    MessageVariant,
    Quarantine,
    build_message,
    delay_headers,
    quarantine,
    readable_headers,
    refined_due,
)
from migrator.nservicebus.satellites import DelayedMessage
from migrator.nservicebus.timeouts import NativeMessage, StoredTimeout
from migrator.nservicebus.wiretime import build_wire_time

UNDELAYED_RESERVE_BYTES: Final = 1024
"""A message without a delay passes no level; this is for ``TimeSent`` and headers of endpoints."""


def to_dispatch(timeout: StoredTimeout, *, rules: BrokerLimits) -> NativeMessage | Quarantine:
    """Return the message of a claimed row, or why it has none; ``sent_at`` sets ``TimeSent``.

    Unlike with the timeout manager, the AMQP message id is the original one, the same in each copy.
    """
    try:
        stored = readable_headers(timeout, rules)
        form = MessageVariant(
            message_id=h.message_id(stored) or timeout.id,
            due_at=refined_due(timeout.due_at, stored),
            added={h.RELATED_TO_TIMEOUT_ID: timeout.id},
            longest_name_bytes=SHORT_STRING_BYTES,
        )
        return build_message(timeout, stored, form, _undelayed(rules))
    except Exception as error:  # one row must not stop the others
        return quarantine(timeout, error)


def to_pass_on(delayed: DelayedMessage, *, rules: BrokerLimits) -> NativeMessage | Quarantine:
    """Convert a message that came too late to be stored.

    It keeps its AMQP message id and ``TimeSent``, as in versions 6 and 7. Version 5 set
    ``TimeSent`` anew, as if the message had been sent a second later.
    """
    timeout = _as_row(delayed)
    try:
        form = MessageVariant(
            message_id=delayed.native_id,
            due_at=delayed.due_at,
            added={},
            longest_name_bytes=SHORT_STRING_BYTES,
        )
        return build_message(timeout, delayed.headers, form, _undelayed(rules))
    except ConversionError as error:
        return quarantine(timeout, error)


def to_forward(
    delayed: DelayedMessage, *, rules: BrokerLimits, now: datetime
) -> NativeMessage | Quarantine:
    """Convert a delayed message for the native delays, without a related timeout id.

    *now* is written to ``TimeSent`` where the original is unusable.
    """
    timeout = _as_row(delayed)
    try:
        form = MessageVariant(
            message_id=h.message_id(delayed.headers) or delayed.native_id,
            due_at=delayed.due_at,
            added=delay_headers(delayed.due_at, delayed.headers, now),
        )
        return build_message(timeout, delayed.headers, form, rules)
    except ConversionError as error:
        return quarantine(timeout, error)


def sent_at(message: NativeMessage, now: datetime) -> NativeMessage:
    return replace(message, headers={**message.headers, h.TIME_SENT: build_wire_time(now)})


def _undelayed(rules: BrokerLimits) -> BrokerLimits:
    return replace(rules, x_death_reserve_bytes=UNDELAYED_RESERVE_BYTES)


def _as_row(delayed: DelayedMessage) -> StoredTimeout:
    return StoredTimeout(
        id=delayed.id,
        row_index=0,
        destination=delayed.destination,
        due_at=delayed.due_at,
        body=delayed.body,
        headers_text=None,  # the headers are given as a mapping
    )
