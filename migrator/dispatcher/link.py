"""One dispatcher's link, a connection that publishes and one that consumes, and where it leads.

Rules of this file: properties of what comes in are read by ``properties``, never by pika;
nothing is acknowledged but what the caller names; tags of several queues are told apart by
numbers of our own. The link dies as a whole, and all that was not acknowledged comes back.
What is in hand is bounded in messages and in bytes: RabbitMQ knows only the first bound, so a
message beyond the second is not kept. It goes back to its place once the consumer is cancelled,
and the next consumer gets fewer at a time, then more again.
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
from migrator.nservicebus.incoming import IncomingMessage, RawMessage
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, NativeMessage, QueueName
from migrator.rabbitmq.admin import AdminSession
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import Kind
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.frames import Delivered, Keep
from migrator.rabbitmq.messages import EncodedMessage, PublishResult, encode_properties, encode_raw
from migrator.rabbitmq.names import retry_queue
from migrator.rabbitmq.properties import Properties, read_properties
from migrator.rabbitmq.publisher import Publisher, WindowLimits, encoded_bytes, in_chunks

_MORE_AFTER_S: Final = 1.0
"""A consumer that had room for everything may have twice as many messages after this."""
_NO_ATTEMPT: Final = Attempt(batch=BatchId(0), number=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a message is published: by the topology the endpoint uses, or by the delays."""

    exchange: str
    routing_key: str


Routed = tuple[Route, NativeMessage | RawMessage]
"""A message and where it is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message taken from a queue and not settled yet."""

    queue: QueueName
    tag: int
    """Names it on the link that delivered it, and nowhere else."""
    message: IncomingMessage
    is_redelivered: bool = False
    """Somebody had it before, and may have stored it."""


class SatelliteLink(Protocol):
    """One endpoint's two connections: one publishes, one consumes and settles.

    Used by one thread only, except for ``wake``. It dies as a whole: whatever was delivered and
    not acknowledged goes back to its queue. Any call raises ``TargetUnavailable`` when a
    connection went away.
    """

    @property
    def frame_max_bytes(self) -> int:
        """The negotiated frame size."""
        ...

    @property
    def silent_s(self) -> float:
        """For how many seconds the broker has answered nothing; asked by the same thread."""
        ...

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""
        ...

    def consume(self, queue: QueueName, *, prefetch: int) -> None:
        """Begin to consume *queue*, with up to *prefetch* messages unsettled at a time.

        Raises:
            TargetError: It does not exist, or may not be read.
        """
        ...

    def received(self) -> Sequence[Delivery]:
        """Return what was delivered since the last call, in the order of each queue."""
        ...

    def publish(
        self, messages: Iterable[Routed], answers: PublishResult, *, silence_s: float = math.inf
    ) -> Collection[int]:
        """Publish *messages*, drawn as the window allows; return once each was answered.

        With *silence_s*, for messages that go straight to queues, those without an answer for so
        long are returned, while the broker answers otherwise; *answers* is filled later, too.

        *answers* names them by their positions. It is filled meanwhile, so that it tells what was
        answered before an error; what is in no set is unknown.

        Raises:
            TargetUnavailable: The connection went away (also because an exchange does not
                exist), or the broker blocked us past the deadline.
        """
        ...

    def acknowledge(self, tags: Iterable[int]) -> None:
        """Settle deliveries; they never come back once the broker has read this."""
        ...

    def idle(self, wait_s: float) -> None:
        """Serve the connections for up to *wait_s* seconds.

        Returns at once when something was received, or ``wake`` is called.
        """
        ...

    def wake(self) -> None:
        """End ``idle`` early; any thread may call it, also after ``close``."""
        ...

    def close(self, *, at_once: bool = False) -> None:
        """Close both connections; never raises.

        With *at_once*, whatever is still on its way out stays here.
        """
        ...


def declare_retry_queues(
    admin: AdminSession, queue: str, delays_s: Sequence[int]
) -> tuple[str, ...]:
    """Declare a retry queue per delay for messages of *queue*; return their names in order.

    A failed message waits in one, and the broker brings it back to *queue* by the default
    exchange, which leads to every queue in any topology. One queue per delay, because a queue
    only ever expires messages at its head; a quorum queue that hands over at least once.

    Raises:
        AccessRefused, EntityMismatch: One may not be declared, or exists with other arguments.
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
    """How destinations are reached without a delay, by the topology the endpoint uses, or why not.

    Nothing is declared or bound here. Source: reference ``timeout-manager.md`` sections 3 and 14.

    *find_bindings* is from the management API; None: an exchange is taken to lead to its queue.
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
    guard: Callable[[], None] = lambda: None,
) -> RabbitSatelliteLink:
    """Return a link for the dispatcher of *endpoint*, ready to publish; nothing is consumed yet.

    *guard* raises when waiting and publishing must end, however long the broker lets it wait.

    Raises:
        AccessRefused: User, password or virtual host.
        TargetUnavailable: Nobody answers.
    """
    loop = EventLoop(guard)
    name = f"migrator {owner} dispatcher {endpoint}"
    try:
        publishing = Connection(loop, settings, f"{name} publish", reads_properties=True)
        consuming = Connection(loop, settings, f"{name} consume")
        return RabbitSatelliteLink(publishing, consuming, limits)
    except BaseException:
        loop.close()
        raise


@dataclass(slots=True, kw_only=True)
class _Intake:
    """One queue that is consumed."""

    queue: QueueName
    channel: Any
    prefetch: int
    """The most messages in hand."""
    allowed: int
    """Messages that the present consumer may have in hand."""
    consumer: str | None = None
    """Its tag; None: it was cancelled."""
    began_s: float = 0.0
    """When it began."""
    largest_bytes: int = 1
    """The largest message that came to the present consumer."""
    is_full: bool = False
    """There was no room for a message; none behind it is kept, so that their order stays."""
    unkept: list[int] = field(default_factory=list)
    """Delivery tags of those."""
    in_hand: int = 0


class RabbitSatelliteLink:
    """Implements ``SatelliteLink``; made by ``open_satellite_link``."""

    def __init__(self, publishing: Connection, consuming: Connection, limits: WindowLimits) -> None:
        self._loop = publishing.loop
        self._publishing = publishing
        self._consuming = consuming
        self._publisher = Publisher(
            publishing, limits, identity_of_returned=_returned_identity, has_delay=has_delay
        )
        self._arrived: deque[Delivery] = deque()
        self._unsettled: dict[int, tuple[_Intake, int, int]] = {}
        """By our own tags: the queue, the broker's tag, and the size."""
        self._bytes = 0
        """Of all those, and of the messages that are being read."""
        self._intakes: list[_Intake] = []
        self._last_tag = 0
        self._is_woken = False

    @property
    def frame_max_bytes(self) -> int:
        """The negotiated frame size."""
        return self._publishing.frame_max_bytes

    @property
    def silent_s(self) -> float:
        """For how many seconds the broker has answered nothing."""
        return self._loop.silent_s

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait (memory or disk alarm), or None."""
        return self._publishing.blocked_reason

    # ── consuming ───────────────────────────────────────────────────────────────────────────

    def consume(self, queue: QueueName, *, prefetch: int) -> None:
        """Begin to consume *queue*; see ``SatelliteLink``."""
        channel = self._consuming.channel()

        def on_cancel(_frame: Any) -> None:
            self._loop.fail(TargetUnavailable(f"the broker ended the consumer of {queue!r}"))

        channel.add_on_cancel_callback(on_cancel)
        intake = _Intake(queue=queue, channel=channel, prefetch=prefetch, allowed=prefetch)
        self._intakes.append(intake)
        self._begin(intake)

    def received(self) -> Sequence[Delivery]:
        """Return what was delivered since the last call."""
        for intake in self._intakes:
            self._adjust(intake)
        found = list(self._arrived)
        self._arrived.clear()
        return found

    def acknowledge(self, tags: Iterable[int]) -> None:
        """Settle deliveries; see ``SatelliteLink``."""
        for tag in tags:
            intake, delivery_tag, size = self._unsettled.pop(tag)
            intake.in_hand -= 1
            self._bytes -= size
            self._consuming.send(intake.channel.basic_ack, delivery_tag)

    def _adjust(self, intake: _Intake) -> None:
        """Have fewer messages in hand at a time after one had no room, and slowly more again."""
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
        """Return whether twice as many messages, as large as the largest lately, would have room.

        What goes back more than once may be overtaken: a quorum queue puts it behind what went
        back before.
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
        """End the consumer; what was not kept goes back, in the order in which it came.

        A quorum queue may deliver for a moment behind its answer, hence a second question.
        """
        self._consuming.call(intake.channel.basic_cancel, intake.consumer)
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

    def _on_message(self, intake: _Intake, found: Delivered) -> None:
        if found.body is None:
            intake.unkept.append(found.tag)
            return
        self._last_tag += 1
        intake.in_hand += 1
        size = len(found.properties) + found.body_bytes
        self._unsettled[self._last_tag] = (intake, found.tag, size)
        self._arrived.append(
            Delivery(
                queue=intake.queue,
                tag=self._last_tag,
                message=_incoming(read_properties(found.properties), found.body),
                is_redelivered=found.is_redelivered,
            )
        )

    # ── publishing ──────────────────────────────────────────────────────────────────────────

    def publish(
        self, messages: Iterable[Routed], answers: PublishResult, *, silence_s: float = math.inf
    ) -> Collection[int]:
        """Publish *messages*; see ``SatelliteLink``."""
        alike: dict[Hashable, set[int]] = {}
        try:
            encoded = in_chunks(_encoded(messages, alike), bytes_of=encoded_bytes)
            return self._publisher.publish(_NO_ATTEMPT, encoded, answers, silence_s=silence_s)
        finally:
            _doubt_alike(answers, alike)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def idle(self, wait_s: float) -> None:
        """Serve the connections for a while; see ``SatelliteLink``."""
        self._loop.serve()  # heartbeats, even if nobody fetches what has arrived
        for _ in self._loop.events(wait_s):
            if self._is_woken or self._arrived:
                break
        self._is_woken = False

    def wake(self) -> None:
        """End ``idle`` early; any thread may call it, also after ``close``."""
        with contextlib.suppress(Exception):  # a loop that was closed needs no waking
            self._loop.ioloop.add_callback_threadsafe(self._on_wake)

    def close(self, *, at_once: bool = False) -> None:
        """Close both connections; see ``SatelliteLink``."""
        if at_once:
            for connection in (self._publishing, self._consuming):
                connection.abandon()
        self._loop.close()
        self._publisher.end_listening()

    def _on_wake(self) -> None:
        """Note it in the thread that waits: set by another, it could be lost between two waits."""
        self._is_woken = True


def _doubt_alike(answers: PublishResult, alike: Mapping[Hashable, set[int]]) -> None:
    """Count messages that cannot be told apart as returned as soon as one of them was.

    Should a queue vanish between two of them, one confirmed and one returned could change places.
    """
    for keys in alike.values():
        if len(keys) > 1 and keys & answers.returned:
            answers.returned |= keys & answers.confirmed
            answers.confirmed -= keys


def _encoded(
    messages: Iterable[Routed], alike: dict[Hashable, set[int]]
) -> Iterator[EncodedMessage]:
    """Yield what to send; note in *alike* which messages share an identity."""
    for key, (route, message) in enumerate(messages):
        identity = _identity(route, message)
        alike.setdefault(identity, set()).add(key)
        properties = _properties(message)
        yield EncodedMessage(
            key, route.exchange, route.routing_key, properties, message.body, identity
        )


def _properties(message: RawMessage | NativeMessage) -> bytes:
    if isinstance(message, RawMessage):
        return encode_raw(message)
    return encode_properties(message)


def _identity(route: Route, message: RawMessage | NativeMessage) -> Hashable:
    """Return what tells a message from others when the broker gives it back.

    Two that share it go the same way at the same moment: either both find it or none.
    """
    exchange, key = route.exchange, route.routing_key
    if isinstance(message, RawMessage) and message.raw_properties is not None:
        return _identity_of(exchange, key, read_properties(message.raw_properties))
    return exchange, key, message.message_id, message.headers.get(RELATED_TO_TIMEOUT_ID)


def _identity_of(exchange: str, key: str, properties: Properties) -> Hashable:
    related = properties.headers.get(RELATED_TO_TIMEOUT_ID)
    return exchange, key, properties.message_id, related if isinstance(related, str) else None


def _returned_identity(method: Any, properties: Properties) -> Hashable:
    return _identity_of(method.exchange, method.routing_key, properties)


def _incoming(properties: Properties, body: bytes) -> IncomingMessage:
    return IncomingMessage(
        message_id=properties.message_id,
        correlation_id=properties.correlation_id,
        type=properties.type,
        reply_to=properties.reply_to,
        content_type=properties.content_type,
        delivery_mode=properties.delivery_mode,
        raw_headers=properties.headers,
        body=body,
        raw_properties=properties.raw,
        problem=properties.problem,
    )
