"""The connections of a transfer: one takes from the source's levels, others publish.

All are on one loop and die together: what was taken and not acknowledged goes back. Publishing
has a connection of its own, because a broker under an alarm stops reading from publishers.

A copy keeps the properties of the original byte for byte, but for what must change. That is done
in the wire format, so that what we do not understand stays what it is. The broker has read every
message that it holds, so the outer form is right; header tables are only taken apart where
``Properties`` had no problem. Source: AMQP 0-9-1, sections 2.3.5 and 4.2.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from migrator.delays.routing import DelaysVersion, address, has_delay
from migrator.delays.scan import LevelMessage, Levels
from migrator.delays.topology import entry_exchanges
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, QueueName
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked
from migrator.rabbitmq.event_loop import Connection, open_link
from migrator.rabbitmq.messages import (
    FRAME_OVERHEAD_BYTES,
    EncodedMessage,
    PublishResult,
    encode_fields,
)
from migrator.rabbitmq.names import PREFIX
from migrator.rabbitmq.properties import HEADERS, header_spans, property_spans
from migrator.rabbitmq.publisher import Publisher, WindowLimits, encoded_bytes, in_chunks
from migrator.transfer.rules import DROPPED

_NO_ATTEMPT: Final = Attempt(batch=BatchId(0), number=0)
_CONTENT_BYTES: Final = 12
"""Before the flags of a content header: class, weight, size of the body."""
_UNLIMITED_BYTES: Final = 2**32 - 1
FOUND_KEY: Final = "Migrator.Found.RoutingKey"
FOUND_PROBLEM: Final = "Migrator.Found.Problem"
_FLAGS: Final = struct.Struct(">H")
_UINT32: Final = struct.Struct(">I")
_EXPIRATION, _USER_ID = 8, 4
_PROPERTY_BITS: Final = range(15, 1, -1)
_SHED: Final = frozenset({_EXPIRATION, _USER_ID})
"""The first would end the copy before its time, the second is refused from another user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One generation of delays on one broker."""

    connection: ConnectionSettings
    version: DelaysVersion


def is_same_place(first: ConnectionSettings, second: ConnectionSettings) -> bool:
    """Return whether two addresses lead to the same virtual host of the same broker.

    Asked by a queue of a moment: names of brokers and hosts prove nothing.

    Raises:
        TargetUnavailable, AccessRefused: One of them cannot be asked.
    """
    name = f"{PREFIX}probe.{secrets.token_hex(6)}"
    with (
        admin_session(first, purpose="probe") as here,
        admin_session(second, purpose="probe") as there,
    ):
        here.declare_queue(name, {"x-expires": 60_000})
        try:
            return there.queue(name) is not None
        except EntityLocked:
            return True
        finally:
            here.delete_queue(name, if_empty=False)


class TransferLink:
    """The source's levels, and the publisher of what was found there.

    Of a message's properties only these change: headers of the way so far go, those given are
    set, and ``expiration`` and ``user-id`` go, because a broker would drop the message early for
    the one and refuse it from us for the other.

    Args:
        source: Where messages are.
        target: Where they are to be.
        limits: How much is published without an answer.
        delivery_limit: How often a message may come back into the source's levels; None:
            without end.
        use_entries: Publish by our own entry exchanges, where the broker user may declare and
            bind them.

    Raises:
        AccessRefused: User, password or virtual host.
        TargetUnavailable: The broker does not answer.
    """

    def __init__(
        self,
        source: Side,
        target: Side,
        limits: WindowLimits,
        *,
        delivery_limit: int | None = None,
        use_entries: bool = True,
    ) -> None:
        self._limits = limits
        self._source = source.connection
        self._target = target.version
        self._poison: Publisher | None = None
        self._link = open_link(
            source.connection,
            consume="migrator transfer take",
            publish="migrator transfer give",
            publish_to=target.connection,
        )
        try:
            self._publisher = self._publishing(self._link.publishing)
            self._exchanges = entry_exchanges(
                target.connection, target.version, use_entries=use_entries
            )
            self.levels = Levels(self._link.consuming, source.version, limit=delivery_limit)
        except BaseException:
            self._link.close()
            raise

    def _publishing(self, connection: Connection) -> Publisher:
        return Publisher(
            connection,
            self._limits,
            identity_of_returned=lambda method, _properties: (method.exchange, method.routing_key),
            has_delay=has_delay,
        )

    @property
    def largest_header_bytes(self) -> int:
        """The most that properties and headers of a message may take."""
        frame = self._link.publishing.frame_max_bytes
        return frame - FRAME_OVERHEAD_BYTES - _CONTENT_BYTES if frame else _UNLIMITED_BYTES

    def copy(
        self,
        key: int,
        message: LevelMessage,
        destination: QueueName,
        *,
        delay_s: int,
        headers: Mapping[str, str | int],
    ) -> EncodedMessage:
        """Return a copy of *message* that waits *delay_s* in the target; *key* names its answer.

        Without a delay it is routed through to the destination, and returned if there is none.
        *headers* are set in place of the message's own of these names.
        """
        where = address(self._target, delay_s, destination)
        # a delay of 0 is routed through by level 00's exchange; its queue would add a second
        exchange = self._exchanges[where.level] if delay_s else where.exchange
        return EncodedMessage(
            key,
            exchange,
            where.routing_key,
            moved_properties(message.properties.raw, drop=DROPPED, put=headers),
            message.body,
            # messages for the same destination, without a delay, share their fate
            (exchange, where.routing_key),
        )

    def publish(self, copies: Iterable[EncodedMessage], answers: PublishResult) -> None:
        """Publish *copies*, drawn as the window allows; return once each was answered.

        *answers* is filled meanwhile, so that it tells what was answered before an error.

        Raises:
            TargetUnavailable: A connection went away, or the broker blocked us past the
                deadline. What is in neither set is unknown.
        """
        self._publisher.publish(_NO_ATTEMPT, in_chunks(copies, bytes_of=encoded_bytes), answers)

    def publish_poison(
        self, queue: str, messages: Collection[LevelMessage], answers: PublishResult
    ) -> None:
        """Publish copies of *messages*, by tag, to a queue on the source, declared if need be.

        Their headers say in addition where they were found.

        Raises:
            TargetUnavailable: As ``publish`` does.
        """
        if self._poison is None:
            with admin_session(self._source, purpose="declare") as admin:
                admin.declare_queue(queue, {})
            connection = Connection(self._link.loop, self._source, "migrator transfer poison")
            self._poison = self._publishing(connection)
        copies = in_chunks(_poison_copies(queue, messages), bytes_of=encoded_bytes)
        self._poison.publish(_NO_ATTEMPT, copies, answers)

    def serve(self) -> None:
        """Let the connections do what is due (heartbeats), without waiting."""
        self._link.loop.serve()

    def close(self) -> None:
        """Close all connections; never raises."""
        self._link.close()


def _poison_copies(queue: str, messages: Collection[LevelMessage]) -> Iterator[EncodedMessage]:
    for message in messages:
        found = {FOUND_KEY: message.routing_key, FOUND_PROBLEM: message.problem or "routing key"}
        properties = poison_properties(message.properties.raw, put=found)
        yield EncodedMessage(message.tag, "", queue, properties, message.body, ("", queue))


# ── properties of copies ──────────────────────────────────────────────────────────────────────────


def moved_properties(raw: bytes, *, drop: Collection[str], put: Mapping[str, str | int]) -> bytes:
    """Return *raw* with the headers *put* instead of its own, and without those in *drop*.

    Args:
        raw: Flags and properties that could be read.
        drop: Names of headers.
        put: Text becomes a long string, a number an int32; they come last.
    """
    parts = dict(_properties(raw))
    gone = _names(frozenset((*drop, *put)))
    table = parts.get(HEADERS, b"\0\0\0\0")
    spans = header_spans(table, 0, len(table))
    kept = [table[at:end] for at, value, end in spans if table[at + 1 : value] not in gone]
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
    added = encode_fields(put)
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


def _table(kept: bytes, put: Mapping[str, str | int]) -> bytes:
    added = encode_fields(put)
    return _UINT32.pack(len(kept) + len(added)) + kept + added
