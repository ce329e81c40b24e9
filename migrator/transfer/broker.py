"""The connections of a relocation: one takes from the source's levels, others publish.

All are on one loop and die together: what was taken and not acknowledged goes back. Publishing
has a connection of its own, because a broker under an alarm stops reading whoever publishes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from migrator.delays.routing import DelaysVersion, has_delay, level_name
from migrator.delays.scan import LevelMessage, RabbitLevels
from migrator.delays.topology import declare_entries
from migrator.errors import AccessRefused
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BITS, BatchId
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked
from migrator.rabbitmq.event_loop import Connection, EventLoop
from migrator.rabbitmq.messages import FRAME_OVERHEAD_BYTES, EncodedMessage, PublishResult
from migrator.rabbitmq.names import PREFIX
from migrator.rabbitmq.publisher import Publisher, WindowLimits
from migrator.transfer.copies import Unreadable, aside_properties, moved_properties
from migrator.transfer.moving import Move
from migrator.transfer.rules import DROPPED

_log = logging.getLogger(__name__)

_NO_ATTEMPT: Final = Attempt(batch=BatchId(0), number=0)
_CONTENT_BYTES: Final = 12
"""Before the flags of a content header: class, weight, size of the body."""
_UNLIMITED_BYTES: Final = 2**32 - 1
FOUND_KEY: Final = "Migrator.Found.RoutingKey"
FOUND_PROBLEM: Final = "Migrator.Found.Problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One generation of delays on one broker."""

    connection: ConnectionSettings
    version: DelaysVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationSettings:
    """From where to where."""

    source: Side
    target: Side
    limits: WindowLimits = field(default_factory=WindowLimits)
    delivery_limit: int | None = None
    """How often a message may come back into the source's levels; None: without end."""
    use_entries: bool = True
    """Publish by our own entry exchanges, where the broker user may declare and bind them."""


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


def open_relocation(settings: RelocationSettings) -> RabbitRelocation:
    """Return the connections of a relocation; nothing is consumed yet.

    Raises:
        AccessRefused: User, password or virtual host.
        TargetUnavailable: Nobody answers.
    """
    loop = EventLoop()
    try:
        return RabbitRelocation(loop, settings)
    except BaseException:
        loop.close()
        raise


class RabbitRelocation:
    """Implements ``ports.Relocator``, and has the source's levels; see ``open_relocation``."""

    def __init__(self, loop: EventLoop, settings: RelocationSettings) -> None:
        """Open the connections on *loop*."""
        self._loop = loop
        self._settings = settings
        source, target = settings.source, settings.target
        taking = Connection(
            loop, source.connection, "migrator relocate take", reads_properties=True
        )
        self._giving = Connection(
            loop, target.connection, "migrator relocate give", reads_properties=True
        )
        self._publisher = Publisher(
            self._giving,
            settings.limits,
            identity_of_returned=_returned_identity,
            has_delay=has_delay,
        )
        self._aside: Publisher | None = None
        self._asides: set[str] = set()
        self._exchanges = _exchanges(settings)
        self.levels = RabbitLevels(taking, source.version, limit=settings.delivery_limit)

    @property
    def largest_header_bytes(self) -> int:
        """The most that properties and headers may take; see ``ports.Relocator``."""
        frame = self._giving.frame_max_bytes
        return frame - FRAME_OVERHEAD_BYTES - _CONTENT_BYTES if frame else _UNLIMITED_BYTES

    def move(self, moves: Iterable[Move], answers: PublishResult) -> None:
        """Publish *moves*; see ``ports.Relocator``."""
        self._publisher.publish(_NO_ATTEMPT, self._encoded(moves), answers)

    def put_aside(
        self, queue: str, messages: Collection[LevelMessage], answers: PublishResult
    ) -> None:
        """Publish copies to *queue* on the source; see ``ports.Relocator``."""
        self._putting_aside(queue).publish(_NO_ATTEMPT, _copies(queue, messages), answers)

    def serve(self) -> None:
        """Let the connections do what is due; see ``ports.Relocator``."""
        self._loop.check()
        self._loop.step(0)

    def close(self) -> None:
        """Close all connections; never raises."""
        self._loop.close()

    def _encoded(self, moves: Iterable[Move]) -> Iterator[EncodedMessage]:
        for move in moves:
            message, address = move.message, move.address
            # a delay of 0 is routed through by level 00's exchange; its queue would add a second
            exchange = self._exchanges[address.level] if move.delay_s else address.exchange
            yield EncodedMessage(
                move.key,
                exchange,
                address.routing_key,
                moved_properties(message.raw_properties, drop=DROPPED, put=move.headers),
                message.body,
                # messages for the same destination, without a delay, share their fate
                (exchange, address.routing_key),
            )

    def _putting_aside(self, queue: str) -> Publisher:
        source = self._settings.source.connection
        if queue not in self._asides:
            with admin_session(source, purpose="declare") as admin:
                admin.declare_queue(queue, {})
            self._asides.add(queue)
        if self._aside is None:
            connection = Connection(
                self._loop, source, "migrator relocate aside", reads_properties=True
            )
            self._aside = Publisher(
                connection,
                self._settings.limits,
                identity_of_returned=_returned_identity,
                has_delay=has_delay,
            )
        return self._aside


def _returned_identity(method: Any, _properties: Any) -> Hashable:
    return method.exchange, method.routing_key


def _copies(queue: str, messages: Collection[LevelMessage]) -> Iterator[EncodedMessage]:
    for message in messages:
        found = {FOUND_KEY: message.routing_key, FOUND_PROBLEM: message.problem or "routing key"}
        try:
            properties = aside_properties(message.raw_properties, put=found)
        except Unreadable:
            properties = message.raw_properties
        yield EncodedMessage(message.tag, "", queue, properties, message.body, ("", queue))


def _exchanges(settings: RelocationSettings) -> tuple[str, ...]:
    """Return where each level of the target is entered: by our entries, where we may."""
    target = settings.target
    if settings.use_entries:
        try:
            with admin_session(target.connection, purpose="declare entries") as admin:
                return declare_entries(admin, target.version)
        except AccessRefused as exc:
            _log.warning(
                "publishing through the native exchanges: entry exchanges may not be declared",
                extra={"action": "entries_refused", "detail": str(exc)},
            )
    return tuple(level_name(target.version, level) for level in range(BITS))
