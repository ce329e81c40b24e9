"""How messages look on their way out: timeouts that are due, and messages that were never stored.

Source: reference ``timeout-manager.md`` sections 7 and 10. ``conversion`` has what all forms
share: what is kept of the headers, how they become properties, and what the broker can carry.
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
"""What leaves at once passes no delay queue; this is for ``TimeSent`` and the endpoint's own."""


def to_dispatch(timeout: StoredTimeout, *, rules: BrokerLimits) -> NativeMessage | Quarantine:
    """Return *timeout* as its destination shall get it once it is due, or why that cannot be.

    ``TimeSent`` is still the stored one; ``sent_at`` sets it. Unlike with the timeout manager, the
    AMQP message id is that of the original, so that every copy of it has the same.

    Args:
        timeout: One claimed row.
        rules: Limits of the broker, and renamed destinations.
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
    """Return a message that came too late to be stored as its destination shall get it.

    It keeps its AMQP message id and its ``TimeSent``, as with versions 6 and 7; version 5 set
    the latter anew here, which nobody can tell from a message that was sent a second later.
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
    """Return a delayed message as the native delays shall hold it, or why that cannot be.

    As ``convert`` does, but it never was a stored timeout and is not related to one.

    Args:
        delayed: As it came; its Expire header is its due time.
        rules: Limits of the broker, and renamed destinations.
        now: Aware, UTC; only written to ``TimeSent`` where the original is unusable.
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
    """Return *message* with *now* (aware) as the time it was sent."""
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
        headers_text=None,  # they are given as they are, not as text
    )
