"""Copies of messages that failed, for a retry queue and the error queue, or came back too often.

RabbitMQ 4 drops a message of a quorum queue without a limit when it has come back 21
times, and every lost connection brings back what was in hand (measured with 4.0.5; 3.10 has no
limit unless one is set). A copy at the end of the same queue begins to count anew.

Source: reference ``timeout-manager.md`` section 12; design section 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import SHORT_STRING_BYTES, frame_bytes, utf8_bytes
from migrator.nservicebus.incoming import (
    IncomingMessage,
    OutgoingMessage,
    normalised_headers,
    unicode_text,
)
from migrator.nservicebus.timeouts import QueueName
from migrator.nservicebus.wiretime import build_wire_time

IMMEDIATE_ATTEMPTS: Final = 5
"""The timeout manager's own: the fifth failure is the last."""
OFTEN: Final = 8
"""Comings back; as many again, and some, are left before the broker's own limit is reached."""
MAX_MESSAGE_CHARS: Final = 16_384
"""The longest ``ExceptionInfo.Message`` that endpoints write."""

_EXCEPTION: Final = "NServiceBus.ExceptionInfo."
_MESSAGE: Final = f"{_EXCEPTION}Message"
_STACK_TRACE: Final = f"{_EXCEPTION}StackTrace"
_REMOVED: Final = frozenset({"NServiceBus.Retries", "NServiceBus.FLRetries"})
_MOST_DIGITS: Final = 9
_DELIVERY_COUNT: Final = "x-delivery-count"
_ANY_NUMBER: Final = 10**9
_HARMFUL_FLAGS: Final = 1 << 8 | 1 << 4
"""Properties ``expiration`` (the copy would vanish) and ``user-id`` (the broker refuses it)."""
_HARMFUL_KEYS: Final = (b"\x02CC", b"\x03BCC")
"""Headers, as they are on the wire, by which the broker sends copies to other queues."""
_ERROR_RESERVE_BYTES: Final = 1024
"""For what the next reader's broker or tool adds to a failed message."""
_RETRY_RESERVE_BYTES: Final = 4096
"""For the marks of one hop: up to ten names of queues and exchanges, of 255 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a message could not be dealt with."""

    kind: str
    """A dotted type name, shown as the type of the exception."""
    text: str
    """For a person; never a body or a header's value."""
    is_final: bool = False
    """Trying again cannot help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAt:
    """Where a message failed; a tool that retries it sends it back to *queue*."""

    queue: QueueName
    endpoint: str
    machine: str
    host_id: str
    """A GUID without hyphens."""


def retries_so_far(message: IncomingMessage, *, limit: int) -> int:
    """Return how often *message* was retried, by our own header; from 0 to *limit*.

    Anybody can write that header, so what is not a plain number counts as none.
    """
    found = message.raw_headers.get(h.OUR_RETRIES)
    if isinstance(found, bytes):
        found = found.decode("ascii", errors="replace")
    if isinstance(found, str):
        digits = found.strip()
        if not (digits.isascii() and digits.isdigit()):
            return 0
        found = int(digits) if len(digits) <= _MOST_DIGITS else limit
    if isinstance(found, bool) or not isinstance(found, int):
        return 0
    return max(0, min(found, limit))


def retry_copy(message: IncomingMessage, *, retries: int) -> OutgoingMessage:
    """Return *message* for a retry queue, marked as having been retried *retries* times.

    It asks for what the original asks for, and a row made of it has the same id. A message that
    could not be read is copied as it came, without the mark.
    """
    if message.problem is not None:
        return _raw_copy(message)
    headers = normalised_headers(message)
    return _copy_with(message, {**headers, h.OUR_RETRIES: str(retries)}, message.message_id)


def can_be_retried_later(message: IncomingMessage, *, frame_max_bytes: int) -> bool:
    """Return whether a retry queue would give *message* back.

    Not when it could not be read, since its copy bears no mark of how often it was retried; and
    not when its headers leave no room for the broker's marks: it would come in a frame larger
    than *frame_max_bytes* (0: no limit), which breaks the connection of its consumer.
    """
    if message.problem is not None:
        return False
    return _leaves(retry_copy(message, retries=0).headers, frame_max_bytes) >= _RETRY_RESERVE_BYTES


def is_worn(message: IncomingMessage, *, frame_max_bytes: int) -> bool:
    """Return whether a copy of *message* should take over: it came back often, and can be copied.

    What comes from no quorum queue is never worn.
    """
    count = message.raw_headers.get(_DELIVERY_COUNT)
    came_back_often = isinstance(count, int) and count >= OFTEN
    return came_back_often and can_be_retried_later(message, frame_max_bytes=frame_max_bytes)


def renewed_copy(message: IncomingMessage) -> OutgoingMessage:
    """Return *message* for its own queue; a row made of it has the same id, and it is marked."""
    copy = retry_copy(message, retries=retries_so_far(message, limit=_ANY_NUMBER))
    return replace(copy, headers={**copy.headers, h.OUR_RENEWAL: "True"})


def is_renewed(message: IncomingMessage) -> bool:
    """Return whether *message* was delivered before, perhaps to this process."""
    return h.OUR_RENEWAL in message.raw_headers


def failed_copy(
    message: IncomingMessage,
    failure: Failure,
    *,
    at: FailedAt,
    now: datetime,
    frame_max_bytes: int,
) -> OutgoingMessage:
    """Return *message* for the error queue, with the fault headers of versions 6 and 7.

    ``NServiceBus.Retries`` goes here, although a delayed retry that is stored keeps it: the
    timeout manager did the same, so that who retries the message begins to count anew. What an
    older failure left in ``NServiceBus.ExceptionInfo`` goes, too.

    When there is no room for these headers, or the message could not be read, its properties are
    copied as they came; not even that when they would make the copy expire, be refused, or reach
    other queues: then it has its body and the fault headers, and nothing else.

    Args:
        message: As it was delivered.
        failure: Why it failed at last.
        at: Where.
        now: Aware.
        frame_max_bytes: As negotiated; 0: no limit. The stack trace, and then the failure's
            message, are cut so that all headers fit.
    """
    faults = _fault_headers(failure, at, now)
    if message.problem is not None:
        return _unread_copy(message, faults)
    headers = {
        key: value
        for key, value in normalised_headers(message).items()
        if key not in _REMOVED and not key.startswith(_EXCEPTION)
    }
    native_id = unicode_text(message.message_id or "").strip()
    message_id = h.message_id(headers)
    if not message_id and native_id:
        message_id = headers[h.MESSAGE_ID] = native_id
    headers |= faults
    _shorten(headers, (_STACK_TRACE, _MESSAGE), frame_max_bytes)
    if _leaves(headers, frame_max_bytes) < _ERROR_RESERVE_BYTES:
        return _unread_copy(message, faults)
    fits = utf8_bytes(message_id or "") <= SHORT_STRING_BYTES
    return _copy_with(message, headers, (message_id if fits else native_id) or None)


def _fault_headers(failure: Failure, at: FailedAt, now: datetime) -> dict[str, str | None]:
    text = unicode_text(failure.text)
    return {
        f"{_EXCEPTION}ExceptionType": failure.kind,
        _MESSAGE: text[:MAX_MESSAGE_CHARS],
        _STACK_TRACE: f"{failure.kind}: {text}",
        f"{_EXCEPTION}Source": "migrator",
        f"{_EXCEPTION}HelpLink": None,
        "NServiceBus.TimeOfFailure": build_wire_time(now),
        "NServiceBus.FailedQ": at.queue,
        "NServiceBus.ProcessingMachine": at.machine,
        "NServiceBus.ProcessingEndpoint": at.endpoint,
        "$.diagnostics.hostid": at.host_id,
        "$.diagnostics.hostdisplayname": at.machine,
    }


def _shorten(headers: dict[str, str | None], keys: tuple[str, ...], frame_max_bytes: int) -> None:
    for key in keys:
        excess = _ERROR_RESERVE_BYTES - _leaves(headers, frame_max_bytes)
        if excess > 0:
            kept = (headers[key] or "").encode()[:-excess]
            headers[key] = kept.decode(errors="ignore")  # not half a character


def _leaves(headers: Mapping[str, str | int | None], frame_max_bytes: int) -> int:
    """Return how many bytes of a frame *headers* leave; negative when they do not fit."""
    return (frame_max_bytes or 2**32) - frame_bytes(headers)


def _copy_with(
    message: IncomingMessage, headers: Mapping[str, str | None], message_id: str | None
) -> OutgoingMessage:
    return OutgoingMessage(
        message_id=_property(message_id),
        correlation_id=_property(message.correlation_id),
        type=_property(message.type),
        reply_to=_property(message.reply_to),
        content_type=_property(message.content_type),
        headers=dict(headers),
        body=message.body,
    )


def _property(text: str | None) -> str | None:
    return None if text is None else unicode_text(text)


def _unread_copy(message: IncomingMessage, faults: Mapping[str, str | None]) -> OutgoingMessage:
    """Return *message* as it came where that is harmless, else its body with *faults* alone."""
    flags = int.from_bytes(message.raw_properties[:2], "big")
    is_harmless = not flags & _HARMFUL_FLAGS and not any(
        key in message.raw_properties for key in _HARMFUL_KEYS
    )
    if is_harmless and flags:
        return _raw_copy(message)
    return OutgoingMessage(body=message.body, headers=faults)


def _raw_copy(message: IncomingMessage) -> OutgoingMessage:
    return OutgoingMessage(body=message.body, raw_properties=message.raw_properties)
