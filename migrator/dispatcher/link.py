"""One dispatcher's link, a connection that publishes and one that consumes, and its routes.

Rules of this file:

* properties of received messages are read by ``properties``, never by pika;
* only deliveries that the caller names are acked; the link numbers deliveries of all its queues;
* when either connection is lost, the whole link is, and all unacked messages are requeued;
* unacked messages are bounded in number and in bytes. RabbitMQ knows only the first bound, so a
  message beyond the second is not kept: it is requeued in its place once the consumer is
  cancelled. The next consumer prefetches fewer messages, then more again.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from migrator.delays.destinations import DestinationAnswers, ask_each
from migrator.delays.routing import Topology, Unreachable, has_delay
from migrator.delays.targets import find_target
from migrator.delays.topology import FindBindings
from migrator.errors import TargetUnavailable
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.incoming import IncomingMessage, OutgoingMessage
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, NativeMessage, QueueName
from migrator.rabbitmq.admin import AdminSession
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import Kind
from migrator.rabbitmq.event_loop import ConnectionPair, open_link
from migrator.rabbitmq.frames import Keep, RawMessage
from migrator.rabbitmq.messages import EncodedMessage, PublishResult, encode_properties, encode_raw
from migrator.rabbitmq.names import retry_queue
from migrator.rabbitmq.properties import Properties
from migrator.rabbitmq.publisher import Publisher, WindowLimits, encoded_bytes, in_chunks

_MORE_AFTER_S: Final = 1.0
"""After so long, a consumer that had room for all its messages may prefetch twice as many."""
_NO_ATTEMPT: Final = Attempt(batch=BatchId(0), number=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message is published: by the endpoint's topology, or by the delays."""

    exchange: str
    routing_key: str


Routed = tuple[Route, NativeMessage | OutgoingMessage]
"""A message and where it is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    queue: QueueName
    tag: int
    """Valid only on the link that delivered it."""
    message: IncomingMessage
    is_redelivered: bool = False
    """An earlier consumer may have stored it."""


class SatelliteLink(Protocol):
    """One endpoint's two connections: one publishes, one consumes and acks.

    Only one thread uses it, except for ``wake``. Any method but ``wake`` and ``close`` raises
    ``TargetUnavailable`` when a connection was lost; unacked messages return to their queue.
    """

    @property
    def frame_max_bytes(self) -> int: ...

    @property
    def silent_s(self) -> float: ...

    @property
    def blocked_reason(self) -> str | None: ...

    def consume(self, queue: QueueName, *, prefetch: int) -> None:
        """Begin to consume *queue*, with up to *prefetch* unacked messages at a time."""
        ...

    def received(self) -> Sequence[Delivery]: ...

    def publish(
        self, messages: Iterable[Routed], answers: PublishResult, *, silence_s: float = math.inf
    ) -> Collection[int]:
        """Publish *messages*, drawn as the window allows; return once each was answered.

        *answers* receives the positions of answered messages, also of late ones. With *silence_s*,
        for messages without a delay only, messages without an answer for so long are returned
        while the broker answers others.

        Raises:
            TargetUnavailable: The connection was lost (also because an exchange does not exist),
                or blocked past the deadline. The outcome of messages not in *answers* is unknown.
        """
        ...

    def acknowledge(self, tags: Iterable[int]) -> None: ...

    def idle(self, wait_s: float) -> None:
        """Serve the connections for up to *wait_s*, until a message is received or ``wake``."""
        ...

    def wake(self) -> None: ...

    def close(self, *, at_once: bool = False) -> None:
        """Close both connections; never raises. *at_once* drops bytes not yet sent."""
        ...


def declare_retry_queues(
    admin: AdminSession, queue: str, delays_s: Sequence[int]
) -> tuple[str, ...]:
    """Declare a retry queue per delay for messages of *queue*; return their names in order.

    A failed message waits in one; the broker dead-letters it back to *queue* by the default
    exchange, in any topology. One queue per delay, because a queue expires messages only at its
    head.
    """
    names = tuple(retry_queue(queue, delay_s) for delay_s in delays_s)
    for name, delay_s in zip(names, delays_s, strict=True):
        admin.declare_queue(
            name,
            {
                "x-queue-type": "quorum",
                "x-message-ttl": delay_s * 1000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": queue,
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            },
        )
    return names


class RabbitRoutes(DestinationAnswers[Route]):
    """Routes to destinations without a delay, by the endpoint's topology. Declares nothing.

    *find_bindings* asks the management API; None: an exchange is assumed to lead to its queue.
    Source: reference ``timeout-manager.md`` sections 3 and 14.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        topology: Topology = Topology.AUTO,
        find_bindings: FindBindings | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(monotonic_s)
        self._settings = settings
        self._topology = topology
        self._find_bindings = find_bindings

    def _ask(self, names: Sequence[QueueName]) -> Mapping[QueueName, Route | Unreachable]:
        return ask_each(self._settings, names, self._look)

    def _look(self, admin: AdminSession, name: QueueName) -> Route | Unreachable:
        found = find_target(admin, name, self._topology, self._find_bindings)
        if isinstance(found, Unreachable):
            return found
        is_queue = found.kind is Kind.QUEUE
        return Route(exchange="" if is_queue else name, routing_key=name if is_queue else "")


def open_satellite_link(
    settings: ConnectionSettings,
    *,
    endpoint: str,
    owner: str,
    limits: WindowLimits,
    guard: Callable[[], None] | None = None,
) -> RabbitSatelliteLink:
    """Connect the dispatcher of *endpoint*; *guard* raises to end waits and publishing."""
    name = f"migrator {owner} dispatcher {endpoint}"
    opened = open_link(settings, publish=f"{name} publish", consume=f"{name} consume", guard=guard)
    try:
        return RabbitSatelliteLink(opened, limits)
    except BaseException:
        opened.close()
        raise


@dataclass(slots=True, kw_only=True)
class _Intake:
    queue: QueueName
    channel: Any
    prefetch: int
    allowed: int
    """Prefetch of the present consumer."""
    consumer: str | None = None
    """Its tag; None: cancelled."""
    began_s: float = 0.0
    largest_bytes: int = 1
    is_full: bool = False
    """A message had no room; later ones are not kept either, so that their order stays."""
    unkept: list[int] = field(default_factory=list)
    in_hand: int = 0


class RabbitSatelliteLink:
    """Implements ``SatelliteLink``; made by ``open_satellite_link``."""

    def __init__(self, opened: ConnectionPair, limits: WindowLimits) -> None:
        self._opened = opened
        self._loop = opened.loop
        self._publishing = opened.publishing
        self._consuming = opened.consuming
        self._publisher = Publisher(
            self._publishing, limits, identity_of_returned=_returned_identity, has_delay=has_delay
        )
        self._arrived: deque[Delivery] = deque()
        self._unsettled: dict[int, tuple[_Intake, int, int]] = {}
        """By the link's own tags: the queue, the broker's tag, and the size."""
        self._bytes = 0
        """Of all these, and of the messages being read."""
        self._intakes: list[_Intake] = []
        self._last_tag = 0
        self._is_woken = False

    @property
    def frame_max_bytes(self) -> int:
        return self._publishing.frame_max_bytes

    @property
    def silent_s(self) -> float:
        return self._loop.silent_s

    @property
    def blocked_reason(self) -> str | None:
        return self._publishing.blocked_reason

    # ── consuming ───────────────────────────────────────────────────────────────────────────

    def consume(self, queue: QueueName, *, prefetch: int) -> None:
        channel = self._consuming.channel()

        def on_cancel(_frame: Any) -> None:
            self._loop.fail(TargetUnavailable(f"the broker ended the consumer of {queue!r}"))

        channel.add_on_cancel_callback(on_cancel)
        intake = _Intake(queue=queue, channel=channel, prefetch=prefetch, allowed=prefetch)
        self._intakes.append(intake)
        self._begin(intake)

    def received(self) -> Sequence[Delivery]:
        for intake in self._intakes:
            self._adjust(intake)
        found = list(self._arrived)
        self._arrived.clear()
        return found

    def acknowledge(self, tags: Iterable[int]) -> None:
        for tag in tags:
            intake, delivery_tag, size = self._unsettled.pop(tag)
            intake.in_hand -= 1
            self._bytes -= size
            self._consuming.send(intake.channel.basic_ack, delivery_tag)

    def _adjust(self, intake: _Intake) -> None:
        """Prefetch fewer messages after one had no room, then slowly more."""
        limit_bytes = self._consuming.prefetch_bytes
        if (intake.is_full or intake.unkept) and intake.consumer is not None:
            self._cancel(intake)
        if intake.consumer is None:
            self._give_back(intake)
            if self._bytes < limit_bytes:
                fitting = (limit_bytes - self._bytes) // intake.largest_bytes
                intake.allowed = min(max(fitting, 1), intake.prefetch)
                self._begin(intake)
        elif self._may_have_more(intake):
            self._cancel(intake)
            if not intake.is_full:
                intake.allowed = min(2 * intake.allowed, intake.prefetch)
                self._begin(intake)

    def _may_have_more(self, intake: _Intake) -> bool:
        """Return whether twice as many messages, each as large as the largest, would have room.

        Careful growth: in a quorum queue, a message requeued twice goes behind earlier ones.
        """
        is_due = time.monotonic() - intake.began_s >= _MORE_AFTER_S
        fits = 2 * intake.allowed * intake.largest_bytes <= self._consuming.prefetch_bytes
        return intake.allowed < intake.prefetch and is_due and fits

    def _begin(self, intake: _Intake) -> None:
        connection = self._consuming
        intake.is_full, intake.largest_bytes = False, 1
        intake.allowed = min(intake.allowed, max(intake.prefetch - intake.in_hand, 1))
        connection.call(intake.channel.basic_qos, prefetch_count=intake.allowed)
        intake.consumer = connection.consume_messages(
            intake.channel,
            intake.queue,
            partial(self._on_message, intake),
            partial(self._choose, intake),
        )
        intake.began_s = time.monotonic()

    def _cancel(self, intake: _Intake) -> None:
        """End the consumer; requeue the messages that were not kept, in their order."""
        self._consuming.call(intake.channel.basic_cancel, intake.consumer)
        # a quorum queue may deliver for a moment behind its answer, hence a second call
        self._consuming.call(intake.channel.basic_qos, prefetch_count=intake.allowed)
        intake.consumer = None
        self._give_back(intake)

    def _give_back(self, intake: _Intake) -> None:
        for tag in intake.unkept:
            self._consuming.send(intake.channel.basic_reject, tag, requeue=True)
        intake.unkept.clear()

    def _choose(self, intake: _Intake, properties: bytes, body_bytes: int) -> Keep:
        size = len(properties) + body_bytes
        intake.largest_bytes = max(intake.largest_bytes, size)
        if intake.is_full or self._bytes >= self._consuming.prefetch_bytes:
            intake.is_full = True
            return Keep.NOTHING
        self._bytes += size
        return Keep.ALL

    def _on_message(self, intake: _Intake, found: RawMessage) -> None:
        if found.kept_body is None:
            intake.unkept.append(found.tag)
            return
        self._last_tag += 1
        intake.in_hand += 1
        size = len(found.properties.raw) + found.body_bytes
        self._unsettled[self._last_tag] = (intake, found.tag, size)
        self._arrived.append(
            Delivery(
                queue=intake.queue,
                tag=self._last_tag,
                message=_incoming(found),
                is_redelivered=found.is_redelivered,
            )
        )

    # ── publishing ──────────────────────────────────────────────────────────────────────────

    def publish(
        self, messages: Iterable[Routed], answers: PublishResult, *, silence_s: float = math.inf
    ) -> Collection[int]:
        alike: dict[Hashable, set[int]] = {}
        try:
            encoded = in_chunks(_encoded(messages, alike), bytes_of=encoded_bytes)
            return self._publisher.publish(_NO_ATTEMPT, encoded, answers, silence_s=silence_s)
        finally:
            _doubt_alike(answers, alike)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def idle(self, wait_s: float) -> None:
        self._loop.serve()  # heartbeats, even while arrived messages are not fetched
        for _ in self._loop.events(wait_s):
            if self._is_woken or self._arrived:
                break
        self._is_woken = False

    def wake(self) -> None:
        with contextlib.suppress(Exception):  # a loop that was closed needs no waking
            self._loop.ioloop.add_callback_threadsafe(self._on_wake)

    def close(self, *, at_once: bool = False) -> None:
        if at_once:
            self._opened.abandon()
        self._loop.close()
        self._publisher.end_listening()

    def _on_wake(self) -> None:
        # set in the thread that waits: set by another, it could be lost between two waits
        self._is_woken = True


def _doubt_alike(answers: PublishResult, alike: Mapping[Hashable, set[int]]) -> None:
    """Count all messages of one identity as returned if one was.

    If a queue vanished between two of them, the confirmed and the returned one could be swapped.
    """
    for keys in alike.values():
        if len(keys) > 1 and keys & answers.returned:
            answers.returned |= keys & answers.confirmed
            answers.confirmed -= keys


def _encoded(
    messages: Iterable[Routed], alike: dict[Hashable, set[int]]
) -> Iterator[EncodedMessage]:
    for key, (route, message) in enumerate(messages):
        identity = _identity(route, message)
        alike.setdefault(identity, set()).add(key)
        properties = _properties(message)
        yield EncodedMessage(
            key, route.exchange, route.routing_key, properties, message.body, identity
        )


def _properties(message: OutgoingMessage | NativeMessage) -> bytes:
    if isinstance(message, OutgoingMessage):
        return encode_raw(message)
    return encode_properties(message)


def _identity(route: Route, message: OutgoingMessage | NativeMessage) -> Hashable:
    """Identify a message that the broker returns; messages that share it have the same route."""
    exchange, key = route.exchange, route.routing_key
    if isinstance(message, OutgoingMessage) and message.raw_properties is not None:
        return _identity_of(exchange, key, Properties(message.raw_properties))
    return exchange, key, message.message_id, message.headers.get(RELATED_TO_TIMEOUT_ID)


def _identity_of(exchange: str, key: str, properties: Properties) -> Hashable:
    related = properties.headers.get(RELATED_TO_TIMEOUT_ID)
    related_id = related if isinstance(related, str) else None
    return exchange, key, properties.values.message_id, related_id


def _returned_identity(method: Any, properties: Properties) -> Hashable:
    return _identity_of(method.exchange, method.routing_key, properties)


def _incoming(found: RawMessage) -> IncomingMessage:
    values = found.properties.values
    return IncomingMessage(
        message_id=values.message_id,
        correlation_id=values.correlation_id,
        type=values.type,
        reply_to=values.reply_to,
        content_type=values.content_type,
        delivery_mode=values.delivery_mode,
        raw_headers=values.headers,
        body=found.body,
        raw_properties=found.properties.raw,
        problem=values.problem,
    )
