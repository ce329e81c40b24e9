"""What becomes of a stored timeout: a native message, or a reason why it cannot be one.

Source: design section 6; reference ``native-delays.md`` sections 8 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from migrator.nservicebus import headers as h
from migrator.nservicebus.timeouts import (
    MAX_DELAY_S,
    MAX_QUEUE_NAME_BYTES,
    NativeMessage,
    QueueName,
    StoredTimeout,
    TimeoutId,
)
from migrator.nservicebus.wiretime import NotAWireTime, build_wire_time, parse_wire_time, seconds_up
from migrator.text import counted, grouped, visible

X_DEATH_RESERVE_BYTES: Final = 16 * 1024
"""What 28 hops may add to a header frame; a larger frame breaks the receiver's connection."""
SHORT_STRING_BYTES: Final = 255
_OUR_PROPERTIES_BYTES: Final = 256
"""app-id, the level of a staged message, and the fixed part of a content header frame."""
FRAME_RESERVE_BYTES: Final = _OUR_PROPERTIES_BYTES + 6 * (SHORT_STRING_BYTES + 1)
"""In a content header frame: for all but the headers."""
_NO_NAME_HAS: Final = frozenset("\0\r\n")
"""The broker drops line ends from a name; no parameter of a statement may hold a NUL."""
_INT32_MAX: Final = 2**31 - 1
_DETAIL_CHARS: Final = 500
_ROUNDING: Final = timedelta(seconds=1)
"""Stores round the due column by up to this; a larger difference means it was edited."""
_INTERNAL: Final = ("nsb.delay-", "nsb.v2.delay-", "amq.", "migrator.")
"""How names of entities begin that are no endpoint's: of the delays, of the broker, of migrator."""
_LAST_WITH_OWN_REPLY_TO: Final = 5
"""The timeout manager of version 5 gives its own queue where a message names no reply address."""


class Reason(StrEnum):
    """Why a timeout is in quarantine, with what that means. Codes are public and stable."""

    meaning: str
    """For people."""
    remedy: str
    """What they can do; Markdown."""

    def __new__(cls, code: str, meaning: str, remedy: str) -> Self:
        """Return the member of *code*."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning, member.remedy = meaning, remedy
        return member

    @classmethod
    def meanings(cls) -> Mapping[str, str]:
        """Return what each code means."""
        return {str(each): each.meaning for each in cls}

    UNREADABLE_HEADERS = (
        "unreadable-headers",
        "The headers are not a JSON object with only text values.",
        "See them with `migrator quarantine show`; repair the row in the store after `migrator "
        "rollback --keep-handed-over`, or leave it here.",
    )
    NO_DESTINATION = (
        "no-destination",
        "Neither the destination column nor a header names a queue.",
        "Give the row a destination in the store after `migrator rollback --keep-handed-over`.",
    )
    DESTINATION_UNKNOWN = (
        "destination-unknown",
        "The broker has no queue of that name; its rows are parked.",
        "Create the queue by starting its endpoint, or run with `--map old=new`.",
    )
    DESTINATION_UNBOUND = (
        "destination-unbound",
        "The queue exists, but it is not bound to the delays and migrator is configured not to "
        "bind it, or its exchange is not bound to it.",
        "Start its endpoint once, or set `broker.all_endpoints_support_delayed_delivery = false`; "
        "then retry.",
    )
    NO_PERMISSION = (
        "no-permission",
        "The broker user of migrator may not bind the destination to the delays; the detail names "
        "the permission that is missing.",
        "Grant what `migrator db grants --broker` prints; parked rows go on by themselves, those "
        "in quarantine after a retry.",
    )
    EXCHANGE_TYPE = (
        "exchange-type",
        "The exchange of the destination's name is no fanout, so it does not lead delayed "
        "messages to the queue.",
        "If endpoints use the direct routing topology, set `broker.topology = direct`. Else delete "
        "the exchange and start the endpoint with installers enabled, which declares it.",
    )
    SUFFIX_COLLISION = (
        "suffix-collision",
        "The destination's name ends in the name of another one that is bound to the delays, or "
        "the other way round: the broker would give delayed messages for the longer name to both.",
        "Give one of the two queues another name (`--map old=new`), remove the binding of the "
        "shorter name if nothing is delayed for it, send these timeouts without the delays (mode "
        "`dispatch` of their endpoint), or set `handover.accept_suffix_collisions = true`, and "
        "both get them.",
    )
    DESTINATION_INTERNAL = (
        "destination-internal",
        "The destination is an entity of the delays, of the broker or of migrator itself "
        "(`nsb.delay-…`, `nsb.v2.delay-…`, `amq.…`, `migrator.…`), and no endpoint.",
        "Give the row another destination in the store after `migrator rollback "
        "--keep-handed-over`, or send it to another queue with `--map old=new` and retry.",
    )
    DESTINATION_NAME_TOO_LONG = (
        "destination-name-too-long",
        "The queue's name is too long for a routing key that also has the delay.",
        "Send to a queue with a shorter name with `--map old=new`; then retry.",
    )
    DESTINATION_UNUSABLE = (
        "destination-unusable",
        "The destination's name has a NUL, a line end or half of a character, which the broker or "
        "a database cannot have in a name.",
        "Send to another queue with `--map old=new`, then retry; or repair the row in the store "
        "after `migrator rollback --keep-handed-over`.",
    )
    PROPERTY_TOO_LONG = (
        "property-too-long",
        "A message id, type, correlation id, reply-to address or content type has more than the "
        "255 bytes that AMQP allows.",
        "Shorten it in the stored headers after `migrator rollback --keep-handed-over`, or leave "
        "the row here.",
    )
    HEADER_KEY_TOO_LONG = (
        "header-key-too-long",
        "The name of a header has more than the 255 bytes that AMQP allows.",
        "Rename or remove it in the stored headers after `migrator rollback --keep-handed-over`.",
    )
    HEADERS_TOO_LARGE = (
        "headers-too-large",
        "The headers together leave no room in one AMQP frame, of the size that the broker agreed "
        "on with migrator (a receiver may have asked for less), for what the delays add; the "
        "receiver's connection would break.",
        "Shorten the stored headers after `migrator rollback --keep-handed-over`; large values "
        "belong in the body.",
    )
    BODY_TOO_LARGE = (
        "body-too-large",
        "The message is larger than the broker accepts.",
        "Set `broker.max_message_bytes` to the broker's own limit if that is higher; then retry.",
    )
    DELAY_TOO_LONG = (
        "delay-too-long",
        "It is due more than 268435455 seconds from now, according to the database's clock, which "
        "was set back since the row was claimed.",
        "Correct the clock and retry, or put the row back with `migrator rollback`.",
    )
    UNROUTABLE = (
        "unroutable",
        "It was due, was published, and came back: nothing is bound for its destination; its rows "
        "are parked.",
        "Repair the destination's binding.",
    )
    REFUSED = (
        "refused",
        "The broker ended the connection for this message, or its queue accepts no more messages; "
        "the detail has the broker's words.",
        "Correct what they name; then retry.",
    )
    NO_ANSWER = (
        "no-answer",
        "The destination's queue answers nothing, though the broker does: a quorum queue without a "
        "majority, or a queue that hangs. A message that was sent may still arrive; the copy that "
        "is sent later has the same message id.",
        "Repair the queue: bring its nodes back, or delete and create it; parked rows go on by "
        "themselves, those in quarantine after a retry.",
    )
    UNPROCESSABLE = (
        "unprocessable",
        "The row cannot be read, claimed as others are, or made a message of; the detail has the "
        "error.",
        "Repair what the error names in the store after `migrator rollback --keep-handed-over`; if "
        "nothing is wrong with the row, report the error and retry with a version that corrects "
        "it.",
    )
    BODY_MISSING = (
        "body-missing",
        "The store has the timeout, but not its body: the blob does not exist.",
        "There is nothing to send. Put the row back with `migrator rollback`, and restore the "
        "blob.",
    )
    ID_TAKEN = (
        "id-taken",
        "The row was to be put back, but the store now has another timeout with the same id.",
        "Decide which of the two is right and remove the other; then roll back again.",
    )
    REFUSED_BY_STORE = (
        "refused-by-store",
        "The row was to be put back, but its table does not take it: a trigger, a rule or a "
        "constraint refuses it; the detail has the database's words.",
        "Correct what they name; then roll back again, or retry to hand it over.",
    )


NOT_TAKEN_BACK: Final = (Reason.ID_TAKEN, Reason.REFUSED_BY_STORE)
"""Why a row that was to go back into its store is still in quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A timeout that cannot be handed over as it is."""

    row_index: int
    timeout_id: TimeoutId
    reason: Reason
    detail: str
    """For a person: what was found; never a body or a header's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLimits:
    """What conversion has to know about this broker and this operator."""

    frame_max_bytes: int = 131_072
    """As negotiated with the broker; 0: unlimited."""
    body_max_bytes: int = 134_217_728
    """The broker's ``max_message_size``; 128 MiB unless configured."""
    x_death_reserve_bytes: int = X_DEATH_RESERVE_BYTES
    """What a frame must leave for the marks of the hops still to come."""
    destination_map: Mapping[str, str] = field(default_factory=dict)
    """Old queue name to new one (``--map old=new``)."""
    own_queue: QueueName | None = None
    """The sending endpoint's queue: where replies to version 5 go that name no address."""


class ConversionError(Exception):
    """A timeout cannot be sent, and why."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageVariant:
    """What one way of sending makes of a timeout; everything else is common to all."""

    message_id: str
    due_at: datetime
    added: Mapping[str, str | int | None]
    """Headers that are added or replaced."""
    longest_name_bytes: int = MAX_QUEUE_NAME_BYTES
    """Of the destination."""


def convert(
    timeout: StoredTimeout, *, rules: BrokerLimits, now: datetime
) -> NativeMessage | Quarantine:
    """Return *timeout* as the broker shall hold it, or why that cannot be.

    Args:
        timeout: One claimed row.
        rules: Limits of the broker, and renamed destinations.
        now: Aware, UTC; what is due too long after it cannot be delayed. Written to ``TimeSent``
            where the stored one is unusable.
    """
    try:
        stored = readable_headers(timeout, rules)
        due_at = refined_due(timeout.due_at, stored)
        _check_delay(due_at, now)
        form = MessageVariant(
            message_id=h.message_id(stored) or timeout.id,
            due_at=due_at,
            added={h.RELATED_TO_TIMEOUT_ID: timeout.id} | delay_headers(due_at, stored, now),
        )
        return build_message(timeout, stored, form, rules)
    except Exception as error:  # one row must not stop the others
        return quarantine(timeout, error)


def quarantine(timeout: StoredTimeout, error: Exception) -> Quarantine:
    """Return *timeout* with the reason why it cannot be sent.

    An *error* of another library is the row's as well: others are converted without it.

    Raises:
        MemoryError: That is no row's.
    """
    if isinstance(error, MemoryError):
        raise error
    if not isinstance(error, ConversionError):
        return unprocessable(timeout.id, timeout.row_index, error)
    return Quarantine(
        row_index=timeout.row_index,
        timeout_id=timeout.id,
        reason=error.reason,
        detail=error.detail,
    )


def unprocessable(timeout_id: TimeoutId, row_index: int, error: Exception) -> Quarantine:
    """Return a row that cannot be read or made a message of, with what *error* says."""
    return Quarantine(
        row_index=row_index,
        timeout_id=timeout_id,
        reason=Reason.UNPROCESSABLE,
        detail=error_text(error),
    )


def error_text(error: Exception) -> str:
    """Return what *error* says, for the detail of a row in quarantine."""
    return visible(f"{type(error).__name__}: {error}")[:_DETAIL_CHARS]


def build_message(
    timeout: StoredTimeout, stored: h.StoredHeaders, form: MessageVariant, rules: BrokerLimits
) -> NativeMessage:
    """Return *timeout*, whose headers are *stored*, as a message that the broker takes.

    Raises:
        ConversionError: It has no destination, or does not fit the broker's limits.
    """
    destination = destination_of(timeout.destination, stored, rules.destination_map)
    _check_destination(destination, form.longest_name_bytes)
    message = NativeMessage(
        row_index=timeout.row_index,
        timeout_id=timeout.id,
        message_id=form.message_id,
        destination=destination,
        due_at=form.due_at,
        headers={**h.kept_headers(stored), **form.added},
        type=h.message_type(stored),
        correlation_id=stored.get(h.CORRELATION_ID),
        reply_to=h.reply_to(stored) or default_reply_to(stored, rules.own_queue),
        content_type=stored.get(h.CONTENT_TYPE) or h.DEFAULT_CONTENT_TYPE,
        body=timeout.body,
    )
    _check_properties(message)
    _check_sizes(message, rules)
    return message


def default_reply_to(stored: h.StoredHeaders, own_queue: QueueName | None) -> QueueName | None:
    """Return where replies go that name no address, as the timeout manager of version 5 has it."""
    major, _, _ = (stored.get(h.VERSION) or "").partition(".")
    is_old = major.isascii() and major.isdigit() and len(major) == 1
    return own_queue if is_old and int(major) <= _LAST_WITH_OWN_REPLY_TO else None


def destination_of(
    column: str | None, stored: h.StoredHeaders, renamed: Mapping[str, str]
) -> QueueName:
    """Return the queue the timeout shall go to; empty when nothing names one.

    The column is what the timeout manager obeys, and what an operator may have edited; the
    headers it was made from only fill a gap. Renaming comes last, on the bare queue name.
    """
    name = (
        h.queue_part(column)
        or h.queue_part(stored.get(h.ROUTE_EXPIRED_TO))
        or h.queue_part(stored.get(h.REPLY_TO_ADDRESS))
    )
    return QueueName(renamed.get(name, name))


def is_internal(name: str) -> bool:
    """Return whether *name* can only be an entity of the delays, of the broker or of migrator."""
    return name.startswith(_INTERNAL)


def refined_due(column: datetime, stored: h.StoredHeaders) -> datetime:
    """Return the due time to the microsecond: the header's when the column merely rounded it."""
    try:
        exact = parse_wire_time(stored.get(h.EXPIRE) or "")
    except NotAWireTime:
        return column
    return exact if abs(exact - column) <= _ROUNDING else column


def expires_at(headers_text: str | None) -> datetime | None:
    """Return what the Expire header says; None: there is none, or it cannot be read."""
    try:
        return parse_wire_time(h.parse_headers(headers_text).get(h.EXPIRE) or "")
    except (NotAWireTime, h.UnreadableHeaders):
        return None


def due_offset(column: datetime, headers_text: str | None) -> timedelta:
    """Return how far the due time is from the Expire header; zero when there is none to compare.

    Whole quarter hours point to a driver that wrote local time.
    """
    exact = expires_at(headers_text)
    return timedelta(0) if exact is None else column - exact


def readable_headers(timeout: StoredTimeout, rules: BrokerLimits) -> h.StoredHeaders:
    """Return the stored headers of *timeout*.

    Raises:
        ConversionError: They cannot be read, or not even their text could fit a frame.
    """
    # JSON escapes make six characters of one byte; what is larger than that cannot fit a frame.
    characters = len(timeout.headers_text or "")
    if rules.frame_max_bytes and characters > 6 * rules.frame_max_bytes:
        raise ConversionError(Reason.HEADERS_TOO_LARGE, counted(characters, "character"))
    try:
        return h.parse_headers(timeout.headers_text)
    except h.UnreadableHeaders as exc:
        raise ConversionError(Reason.UNREADABLE_HEADERS, str(exc)) from exc


def _check_delay(due_at: datetime, now: datetime) -> None:
    """Refuse what no delay holds: it was claimed before a clock was set back by an hour or more."""
    delay_s = seconds_up(due_at - now)
    if delay_s > MAX_DELAY_S:
        raise ConversionError(
            Reason.DELAY_TOO_LONG, f"{grouped(delay_s)} s; the levels hold {grouped(MAX_DELAY_S)} s"
        )


def _check_destination(destination: QueueName, longest_bytes: int) -> None:
    if not destination:
        raise ConversionError(
            Reason.NO_DESTINATION, "neither the column nor a header names a queue"
        )
    if (why := unusable_in_name(destination)) is not None:
        raise ConversionError(Reason.DESTINATION_UNUSABLE, why)
    if is_internal(destination):
        raise ConversionError(
            Reason.DESTINATION_INTERNAL, f"{destination!r} is no endpoint's queue"
        )
    size = len(destination.encode())
    if size > longest_bytes:
        detail = f"{counted(size, 'byte')}; a routing key leaves {longest_bytes}"
        raise ConversionError(Reason.DESTINATION_NAME_TOO_LONG, detail)


def unusable_in_name(name: str) -> str | None:
    """Return what keeps *name* from being a queue's, for a person; None: nothing."""
    for place, character in enumerate(name, start=1):
        if character in _NO_NAME_HAS or "\ud800" <= character <= "\udfff":
            return f"character {place} of the destination is U+{ord(character):04X}"
    return None


def delay_headers(
    due_at: datetime, stored: h.StoredHeaders, now: datetime
) -> dict[str, str | int | None]:
    """Return the headers of a native delay: when, and after how many seconds.

    Keeps ``TimeSent + DelayInSeconds = due``: the vendor's tools compute the due time from it.
    """
    added: dict[str, str | int | None] = {h.DELIVER_AT: build_wire_time(due_at)}
    try:
        delay = seconds_up(due_at - parse_wire_time(stored.get(h.TIME_SENT) or ""))
        if 0 <= delay <= _INT32_MAX:
            return added | {h.DELAY_IN_SECONDS: delay}
    except NotAWireTime:
        pass
    remaining = min(max(seconds_up(due_at - now), 0), _INT32_MAX)
    return added | {h.TIME_SENT: build_wire_time(now), h.DELAY_IN_SECONDS: remaining}


def _check_properties(message: NativeMessage) -> None:
    properties = {
        "message-id": message.message_id,
        "type": message.type,
        "correlation-id": message.correlation_id,
        "reply-to": message.reply_to,
        "content-type": message.content_type,
    }
    for name, value in properties.items():
        if value is not None and utf8_bytes(value) > SHORT_STRING_BYTES:
            size = counted(utf8_bytes(value), "byte")
            raise ConversionError(
                Reason.PROPERTY_TOO_LONG, f"{name} has {size}; AMQP allows {SHORT_STRING_BYTES}"
            )


def _check_sizes(message: NativeMessage, rules: BrokerLimits) -> None:
    _check_keys(message.headers)
    room = rules.frame_max_bytes - rules.x_death_reserve_bytes
    size = frame_bytes(message.headers) if rules.frame_max_bytes else 0
    if size > room and rules.frame_max_bytes:
        detail = f"{counted(size, 'byte')}; one frame leaves {grouped(room)}"
        raise ConversionError(Reason.HEADERS_TOO_LARGE, detail)
    if len(message.body) > rules.body_max_bytes:
        limit = grouped(rules.body_max_bytes)
        detail = f"{counted(len(message.body), 'byte')}; the broker takes {limit}"
        raise ConversionError(Reason.BODY_TOO_LARGE, detail)


def _check_keys(headers: Mapping[str, object]) -> None:
    for key in headers:
        if utf8_bytes(key) > SHORT_STRING_BYTES:
            raise ConversionError(
                Reason.HEADER_KEY_TOO_LONG,
                f"{counted(utf8_bytes(key), 'byte')}; AMQP allows {SHORT_STRING_BYTES}",
            )


def frame_bytes(headers: Mapping[str, str | int | None]) -> int:
    """Return the size of a content header frame, with room for what we add ourselves."""
    # per header: length of the key, type tag, and length of a long string or an int32
    size = FRAME_RESERVE_BYTES + 6 * len(headers)
    for key, value in headers.items():
        size += len(key) if key.isascii() else len(key.encode())
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode())
    return size


def utf8_bytes(text: str) -> int:
    """Return the size of *text* in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())
