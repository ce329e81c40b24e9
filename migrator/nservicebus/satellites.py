"""What messages on a timeout manager's own queues ask for.

They come from strangers: everything is checked here, so that nothing which the store or the
broker could not carry gets any further. A text about a message never holds what is in it.
Source: reference ``timeout-manager.md`` sections 2, 5, 7 and 9.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from migrator.nservicebus import headers as h
from migrator.nservicebus.incoming import IncomingMessage, normalised_headers, unicode_text
from migrator.nservicebus.timeouts import NO_SAGA, QueueName, TimeoutId
from migrator.nservicebus.wiretime import NotAWireTime, parse_wire_time

CLEAR_TIMEOUTS: Final = "NServiceBus.ClearTimeouts"
TIMEOUT_ID: Final = "Timeout.Id"
MAX_DESTINATION_CHARS: Final = 200
"""What the persistence's column holds."""
_EXPIRE_CHARS: Final = 28
_GUID: Final = re.compile(
    r"(?P<open>[{(]?)([0-9a-f]{8})(-?)([0-9a-f]{4})\3([0-9a-f]{4})\3([0-9a-f]{4})\3([0-9a-f]{12})"
    r"(?P<close>[)}]?)",
    re.ASCII | re.IGNORECASE,
)
_GUID_BRACKETS: Final = {("", "", ""), ("", "", "-"), ("{", "}", "-"), ("(", ")", "-")}
"""Opening, closing, and what is between the groups: forms N, D, B and P of .NET."""
_ESCAPED_LINE_ENDS: Final = str.maketrans(
    {"\u0085": r"\u0085", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)


class NotUnderstood(ValueError):
    """The message can never be carried out; its text says why, without what is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """A message that shall be delivered later."""

    id: TimeoutId
    """The id it is stored under: the same for every copy of the same message."""
    native_id: str
    """Its AMQP message id."""
    destination: str
    """A queue's name, without a machine."""
    saga_id: str
    """Lower-case GUID; ``NO_SAGA`` when there is none."""
    due_at: datetime
    """Aware, UTC."""
    headers: h.StoredHeaders
    headers_text: str
    """The same as JSON, as the SQL persistence writes it."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearTimeouts:
    """Every stored timeout of a saga shall be forgotten."""

    saga_id: str
    """Lower-case GUID."""


def timeouts_queue(base: QueueName) -> QueueName:
    """Return the queue on which an endpoint's timeout manager gets delayed messages."""
    return QueueName(f"{base}.Timeouts")


def dispatcher_queue(base: QueueName) -> QueueName:
    """Return the queue on which an endpoint's timeout manager is told which timeouts are due."""
    return QueueName(f"{base}.TimeoutsDispatcher")


def read_delayed(message: IncomingMessage, *, queue: QueueName) -> DelayedMessage | ClearTimeouts:
    """Return what *message*, taken from *queue*, asks for.

    The checks come in the order of the timeout manager's own.

    Raises:
        NotUnderstood: It can never be stored or delivered.
    """
    native_id = _native_id(message)
    headers = normalised_headers(message)
    saga_id = _saga_id(headers)
    if CLEAR_TIMEOUTS in headers:
        if saga_id == NO_SAGA:
            raise NotUnderstood(f"header {CLEAR_TIMEOUTS} without the id of a saga")
        return ClearTimeouts(saga_id=saga_id)
    due_at = _due_at(headers)
    destination = _destination(headers)
    return DelayedMessage(
        id=_derived_id(queue, native_id, destination, headers, message.body),
        native_id=native_id,
        destination=destination,
        saga_id=saga_id,
        due_at=due_at,
        headers=headers,
        headers_text=build_headers_text(headers),
        body=message.body,
    )


def read_control(message: IncomingMessage) -> TimeoutId:
    """Return the id of the timeout that *message* says is due; a GUID in lower case.

    Raises:
        NotUnderstood: It names none, or something that no store of timeouts could have as an id.
    """
    _native_id(message)
    text = (normalised_headers(message).get(TIMEOUT_ID) or "").strip()
    if not text:
        raise NotUnderstood(f"header {TIMEOUT_ID} is missing or blank")
    found = read_guid(text)
    if found is None:
        raise NotUnderstood(f"header {TIMEOUT_ID} is not a GUID")
    return TimeoutId(found)


def read_guid(text: str) -> str | None:
    """Return the GUID that *text* writes in one of .NET's forms N, D, B or P; None: no GUID.

    The result has hyphens and is in lower case.
    """
    found = _GUID.fullmatch(text.strip())
    if found is None or (found["open"], found["close"], found[3]) not in _GUID_BRACKETS:
        return None
    return "-".join(found.group(2, 4, 5, 6, 7)).lower()


def build_headers_text(headers: h.StoredHeaders) -> str:
    """Return *headers* as Newtonsoft.Json writes them: indented by two, non-ASCII as it is.

    Line ends that JavaScript knows beyond ASCII are escaped, as control characters are. Lines
    end in a newline alone, as on Linux.
    """
    return json.dumps(headers, ensure_ascii=False, indent=2).translate(_ESCAPED_LINE_ENDS)


def _native_id(message: IncomingMessage) -> str:
    if message.problem is not None:
        raise NotUnderstood(f"properties cannot be read: {message.problem}")
    native_id = unicode_text(message.message_id or "")
    if not native_id.strip():
        raise NotUnderstood("property message-id is missing or blank")
    return native_id


def _saga_id(headers: h.StoredHeaders) -> str:
    if h.SAGA_ID not in headers:
        return NO_SAGA
    found = read_guid(headers[h.SAGA_ID] or "")
    if found is None:
        raise NotUnderstood(f"header {h.SAGA_ID} is not a GUID")
    return found


def _due_at(headers: h.StoredHeaders) -> datetime:
    """Return the due time; separators are whatever they are, as for readers since version 6.

    Senders that write ``2026-03-15T08:00:00.1234567Z`` have always got away with it there.
    """
    if h.EXPIRE not in headers:
        raise NotUnderstood(f"header {h.EXPIRE} is missing: this is not a delayed message")
    text = headers[h.EXPIRE] or ""
    if len(text) != _EXPIRE_CHARS:
        raise NotUnderstood(
            f"header {h.EXPIRE} is not a date: {len(text)} characters, not {_EXPIRE_CHARS}"
        )
    date, time = (text[0:4], text[5:7], text[8:10]), (text[11:13], text[14:16], text[17:19])
    try:
        return parse_wire_time(f"{'-'.join(date)} {':'.join(time)}:{text[20:26]} Z")
    except NotAWireTime:
        raise NotUnderstood(f"header {h.EXPIRE} is not a date") from None


def _destination(headers: h.StoredHeaders) -> str:
    key = h.ROUTE_EXPIRED_TO if h.ROUTE_EXPIRED_TO in headers else h.REPLY_TO_ADDRESS
    destination = h.queue_part(headers.get(key))
    if not destination:
        raise NotUnderstood(f"no destination: header {key} is missing or names no queue")
    if len(destination) > MAX_DESTINATION_CHARS:
        raise NotUnderstood(
            f"the destination in header {key} has {len(destination)} characters; the store can "
            f"hold {MAX_DESTINATION_CHARS}"
        )
    if "\0" in destination:
        raise NotUnderstood(f"the destination in header {key} contains a NUL character")
    return destination


def _derived_id(
    queue: QueueName,
    native_id: str,
    destination: str,
    headers: h.StoredHeaders,
    body: bytes,
) -> TimeoutId:
    """Return an id made of the message alone, so that a redelivered one is stored once.

    The message id alone would not do: delayed retries of one message share it, and each is a
    timeout of its own. Headers count in the order of their names, and those of brokers not at
    all: a retry queue may sort the former and adds to the latter. The lengths keep apart what
    would be the same bytes in a row. Source: design section 10.
    """
    content = hashlib.sha256()
    for key in sorted(key for key in headers if not h.is_brokers(key)):
        value = headers[key]
        _add(content, (key.encode(), b"" if value is None else b"=" + value.encode()))
    _add(content, (body,))
    whole = hashlib.sha256()
    expire = headers[h.EXPIRE] or ""
    _add(whole, (text.encode() for text in (queue, native_id, expire, destination)))
    _add(whole, (content.digest(),))
    return TimeoutId(str(UUID(bytes=whole.digest()[:16])))


def _add(digest: hashlib._Hash, parts: Iterable[bytes]) -> None:
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
