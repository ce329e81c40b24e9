"""One lane's link to the broker: a connection to publish, and one to consume and ack.

When either connection is lost, the whole link is, and the lane opens a new one. In every mode the
second connection owns the lane's guard queue, so that two owners of a lane never publish at once.
(The first would keep it through a whole memory alarm: the broker does not notice the end of a
connection that it does not read.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from migrator.delays.routing import (
    DelaysVersion,
    entry_level,
    has_delay,
    level_name,
    routing_key,
)
from migrator.delays.topology import entry_exchanges
from migrator.errors import AccessRefused, LaneGuarded, MigratorError
from migrator.handover.ports import Delayed, Staging
from migrator.handover.staging import LaneQueues, RabbitStaging, declare_staging
from migrator.handover.strays import PoisonQueue
from migrator.ledger.work import Lease
from migrator.nservicebus.tags import Attempt, tag_of_rows
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.connection import ConnectionSettings, EntityLocked
from migrator.rabbitmq.event_loop import ConnectionPair, open_link
from migrator.rabbitmq.messages import EncodedMessage, PublishResult, tagged_properties
from migrator.rabbitmq.names import guard_queue
from migrator.rabbitmq.publisher import Publisher, WindowLimits

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    connection: ConnectionSettings
    version: DelaysVersion
    ledger_id: str
    limits: WindowLimits = field(default_factory=WindowLimits)
    use_entries: bool = True
    """Publish by migrator's entry exchanges, if the broker user may declare and bind them."""


def open_lane(
    settings: LinkSettings,
    *,
    lane: Lane,
    owner: str,
    prefetch: int,
    guard: Callable[[], None] | None = None,
) -> RabbitLink:
    """Return a link for *lane*, ready to publish.

    Args:
        settings: Where and how.
        lane: The caller owns its lease.
        owner: For the broker's list of connections.
        prefetch: Unacked messages of staging; at least the largest open batch and its receipt.
        guard: Called before each publish, and many times a second while the broker is awaited: a
            heartbeat. Raises to end both.

    Raises:
        LaneGuarded: Another connection still owns the guard queue.
    """

    def connected(*, is_guarded: bool) -> RabbitLink:
        name = f"migrator {owner} lane {lane}"
        opened = open_link(
            settings.connection, publish=f"{name} publish", consume=f"{name} consume", guard=guard
        )
        try:
            link = RabbitLink(settings, opened, lane=lane, prefetch=prefetch)
            if is_guarded:
                link.take_guard()
            link.enter()
        except BaseException:
            opened.close()
            raise
        return link

    try:
        return connected(is_guarded=True)
    except AccessRefused as exc:
        link = connected(is_guarded=False)
        _log.warning(
            "lane without guard on the broker: this user may not declare the guard queue",
            extra={"action": "lane_unguarded", "lane": lane, "detail": str(exc)},
        )
        return link


class LaneLinks:
    """Opens the links of a process's lanes; which node a lane used last is remembered."""

    def __init__(self, settings: LinkSettings, *, prefetch: int) -> None:
        self._settings = settings
        self._prefetch = prefetch
        self._connections: dict[Lane, ConnectionSettings] = {}

    def connection_of(self, lane: Lane) -> ConnectionSettings:
        """Return how *lane* reaches the broker: lanes begin with different nodes.

        So their connections spread over a cluster, and with them the leaders of their queues.
        """
        connection = self._settings.connection
        return self._connections.setdefault(lane, connection.beginning_with(lane))

    def open(self, lease: Lease, guard: Callable[[], None]) -> RabbitLink:
        """Return a link for the lane of *lease*; see ``open_lane``, which says what it raises."""
        lane, owner = lease.lane, lease.owner.split("/")[0]
        settings = replace(self._settings, connection=self.connection_of(lane))
        return open_lane(settings, lane=lane, owner=owner, prefetch=self._prefetch, guard=guard)


class RabbitLink:
    """Implements ``Link``; made by ``open_lane``."""

    def __init__(
        self, settings: LinkSettings, opened: ConnectionPair, *, lane: Lane, prefetch: int
    ) -> None:
        self._settings = settings
        self._queues = LaneQueues(ledger_id=settings.ledger_id, lane=lane, version=settings.version)
        self._prefetch = prefetch
        self._connection = opened.publishing
        self._consuming = opened.consuming
        self._exchanges: tuple[str, ...] = ()
        self._publisher = Publisher(self._connection, settings.limits, has_delay=has_delay)
        self._is_guarded = False
        self._staging: RabbitStaging | None = None

    def take_guard(self) -> None:
        """Declare an exclusive queue, which the broker deletes with this connection."""
        lane, name = self._queues.lane, guard_queue(self._queues.ledger_id, self._queues.lane)
        channel = self._consuming.channel()
        try:
            self._consuming.call(channel.queue_declare, name, exclusive=True, auto_delete=True)
        except EntityLocked as exc:
            raise LaneGuarded(
                f"another process still owns lane {lane} on the broker ({name})"
            ) from exc
        self._is_guarded = True

    def enter(self) -> None:
        given = self._settings
        self._exchanges = entry_exchanges(
            given.connection, given.version, use_entries=given.use_entries
        )

    @property
    def frame_max_bytes(self) -> int:
        return self._connection.frame_max_bytes

    @property
    def silent_s(self) -> float:
        return self._connection.loop.silent_s

    @property
    def blocked_reason(self) -> str | None:
        return self._connection.blocked_reason

    def publish(
        self,
        attempt: Attempt,
        chunks: Iterable[Sequence[Delayed]],
        result: PublishResult,
        *,
        silence_s: float = math.inf,
    ) -> Collection[int]:
        tag = tag_of_rows(self._settings.ledger_id, attempt)
        encoded = (self._encoded(tag, chunk) for chunk in chunks)
        return self._publisher.publish(attempt, encoded, result, silence_s=silence_s)

    def staging(self) -> Staging:
        if self._staging is None:
            self._declare_staging()
            if not self._is_guarded:
                self.take_guard()
            self._staging = RabbitStaging(
                connection=self._consuming,
                publisher=self._publisher,
                queues=self._queues,
                prefetch=self._prefetch,
                declare=self._declare_staging,
                poison=PoisonQueue(
                    self._settings.connection,
                    self._settings.ledger_id,
                    self._connection.loop.guard,
                ),
            )
        return self._staging

    def _declare_staging(self) -> None:
        with admin_session(self._settings.connection, purpose="declare staging") as admin:
            declare_staging(admin, self._queues)

    def idle(self, wait_s: float) -> None:
        self.serve()
        for _ in self._connection.loop.events(wait_s):
            pass

    def serve(self) -> None:
        self._connection.loop.serve()

    def close(self) -> None:
        """Close both connections within two seconds; drop unsent bytes if the guard raises."""
        try:
            self._connection.loop.guard()
        except MigratorError:
            self._connection.abandon()
        self._connection.loop.close()
        self._publisher.end_listening()

    def _encoded(self, tag: str, chunk: Sequence[Delayed]) -> list[EncodedMessage]:
        # a delay of 0 is routed through by level 00's exchange; its queue would add a second
        at_once = level_name(self._settings.version, 0)
        return [
            EncodedMessage(
                message.row_index,
                self._exchanges[entry_level(delay_s)] if delay_s else at_once,
                routing_key(delay_s, message.destination),
                tagged_properties(message, f"{tag}{message.row_index}"),
                message.body,
            )
            for message, delay_s in chunk
        ]
