"""Messages of ``<queue>.Timeouts``: received, stored, passed on or forwarded, and acked.

Rules of this file: a message is acked only after its change is committed or, if it is sent at once,
confirmed. Repeating it is harmless, because a row's id is made from the message. The order of
messages is the order of changes. Handlers run in a background thread, in order; ``Receiver`` runs
in the thread that serves the broker.
Source: reference ``timeout-manager.md`` section 7; design section 10.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.destinations import Destinations
from migrator.delays.routing import LONGEST_DELAY, Unreachable
from migrator.dispatcher.failures import RecoverabilityPolicy, new_backoff
from migrator.dispatcher.link import Delivery, RabbitRoutes, SatelliteLink
from migrator.dispatcher.outbox import DatabaseTime, Forwarded, Item, Outbox, PassedOn
from migrator.dispatcher.rules import to_forward, to_pass_on
from migrator.errors import Interrupted, LeaseLost, MigratorError, RowRefused
from migrator.ledger.work import Clock, FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.conversion import BrokerLimits, Quarantine
from migrator.nservicebus.recoverability import Failure, is_renewed
from migrator.nservicebus.satellites import (
    ClearTimeouts,
    DelayedMessage,
    NotUnderstood,
    read_delayed,
)
from migrator.nservicebus.timeouts import NativeMessage
from migrator.stores.sql.intake import Applied, SqlIntake

_log = logging.getLogger(__name__)

_AT_ONCE: Final = timedelta(seconds=1)
"""A message due within this is never stored, as in the timeout manager; it waits in memory."""
_MOST_DELIVERIES: Final = 500
_MOST_BYTES: Final = 8 * 2**20
_NOTHING: Final = Applied()


# ── what is done with a message, in the background ─────────────────────────────────────────────


@dataclass(slots=True)
class Handled:
    to_ack: list[Delivery] = field(default_factory=list)
    items: list[tuple[Item, datetime]] = field(default_factory=list)
    """To be sent, each with its due time; its delivery is acked once it is confirmed."""
    failed: list[tuple[Delivery, Failure]] = field(default_factory=list)


_Read = tuple[Delivery, DelayedMessage | ClearTimeouts]
_Ready = tuple[Delivery, NativeMessage]
"""A delivery, and the message to send for it."""


@dataclass(kw_only=True)
class DelayedMessageHandler(ABC):
    intake: SqlIntake
    endpoint: StoreEndpoint
    clock: Clock
    rules: BrokerLimits
    fault: FaultPoint

    @abstractmethod
    def handle(self, deliveries: Sequence[Delivery], lease: Lease) -> Handled:
        """Process *deliveries*. After an error none may be acked; repeating them is harmless."""

    def limit_frames(self, frame_max_bytes: int) -> None:
        self.rules = replace(self.rules, frame_max_bytes=frame_max_bytes)

    def _apply(self, reads: Sequence[_Read], lease: Lease, handled: Handled) -> Applied:
        """Write *reads* into the store; a row that the database refuses fails alone."""
        if not reads:
            return _NOTHING
        try:
            applied = self.intake.apply(self.endpoint, [asks for _, asks in reads], lease)
        except RowRefused as exc:
            if len(reads) > 1:
                return sum((self._apply([read], lease, handled) for read in reads), _NOTHING)
            failure = Failure(kind="migrator.RowRefused", text=str(exc))
            handled.failed.append((reads[0][0], failure))
            return _NOTHING
        self.fault("intake.stored")
        handled.to_ack += [delivery for delivery, _ in reads]
        return applied


@dataclass(kw_only=True)
class Storing(DelayedMessageHandler):
    """Stores messages as the timeout manager does; passes on messages due at once."""

    routes: RabbitRoutes

    def handle(self, deliveries: Sequence[Delivery], lease: Lease) -> Handled:
        handled = Handled()
        soon_until = self.clock.now() + _AT_ONCE
        soon: list[tuple[Delivery, DelayedMessage]] = []
        rest: list[_Read] = []
        for delivery, asks in _understood(deliveries, handled):
            if isinstance(asks, DelayedMessage) and _goes_on(delivery, asks, soon_until):
                soon.append((delivery, asks))
            else:
                rest.append((delivery, asks))
        self._pass_on(soon, handled)
        applied = self._apply(rest, lease, handled)
        _log.debug(
            "messages of the timeouts queue processed",
            extra={
                "action": "messages_taken_in",
                "stored": applied.stored,
                "known": applied.known,
                "cleared": applied.cleared,
                "passed_on": len(soon),
                "failed": len(handled.failed),
            },
        )
        return handled

    def _pass_on(self, soon: Sequence[tuple[Delivery, DelayedMessage]], handled: Handled) -> None:
        found = [(delivery, to_pass_on(delayed, rules=self.rules)) for delivery, delayed in soon]
        ready = _sendable(found, handled)
        if not ready:
            return
        routes = self.routes.answers({message.destination for _, message in ready})
        for delivery, message in ready:
            route = routes[message.destination]
            if isinstance(route, Unreachable):
                self.routes.forget([message.destination])
                handled.failed.append((delivery, _not_reached(route)))
            else:
                item = PassedOn(delivery=delivery, message=message, route=route)
                handled.items.append((item, message.due_at))


@dataclass(kw_only=True)
class Forwarding(DelayedMessageHandler):
    """Publishes messages straight into the native delays.

    A message due later than the longest native delay is stored, and moved when it is near enough.
    A clear-timeouts message removes rows from the store. Timeouts in the delays stay there; the
    endpoint ignores those of a completed saga.
    """

    destinations: Destinations
    """Bound before a message for them enters the delays."""

    def handle(self, deliveries: Sequence[Delivery], lease: Lease) -> Handled:
        handled = Handled()
        now = self.clock.now()
        for_store: list[_Read] = []
        found: list[tuple[Delivery, NativeMessage | Quarantine]] = []
        for delivery, asks in _understood(deliveries, handled):
            if isinstance(asks, ClearTimeouts) or asks.due_at > now + LONGEST_DELAY:
                for_store.append((delivery, asks))
            else:
                found.append((delivery, to_forward(asks, rules=self.rules, now=now)))
        self._forward(_sendable(found, handled), handled)
        applied = self._apply(for_store, lease, handled)
        sagas = sum(isinstance(asks, ClearTimeouts) for _, asks in for_store)
        if sagas:
            _log.info(
                "removed timeouts of completed sagas from the store; those in the delays stay, and "
                "the endpoint ignores them",
                extra={"action": "sagas_cleared", "sagas": sagas, "removed": applied.cleared},
            )
        return handled

    def _forward(self, ready: Sequence[_Ready], handled: Handled) -> None:
        unreachable = self.destinations.unreachable({m.destination for _, m in ready})
        now = self.clock.now()
        for delivery, message in ready:
            if message.destination in unreachable:
                failure = _not_reached(unreachable[message.destination])
                handled.failed.append((delivery, failure))
            else:
                handled.items.append((Forwarded(delivery=delivery, message=message), now))


def _goes_on(delivery: Delivery, asks: DelayedMessage, until: datetime) -> bool:
    # a redelivered message may have been stored; a due row is claimed within half a second
    had_before = delivery.is_redelivered or is_renewed(delivery.message)
    return asks.due_at <= until and not had_before


def _understood(deliveries: Iterable[Delivery], handled: Handled) -> Sequence[_Read]:
    found: list[_Read] = []
    for delivery in deliveries:
        try:
            found.append((delivery, read_delayed(delivery.message, queue=delivery.queue)))
        except NotUnderstood as exc:
            handled.failed.append((delivery, not_understood(exc)))
    return found


def not_understood(exc: NotUnderstood) -> Failure:
    return Failure(kind="migrator.NotUnderstood", text=str(exc), is_final=True)


def _sendable(
    converted: Iterable[tuple[Delivery, NativeMessage | Quarantine]], handled: Handled
) -> Sequence[_Ready]:
    ready: list[_Ready] = []
    for delivery, found in converted:
        if isinstance(found, Quarantine):
            text = f"{found.reason}: {found.detail}"
            failure = Failure(kind="migrator.Unfit", text=text, is_final=True)
            handled.failed.append((delivery, failure))
        else:
            ready.append((delivery, found))
    return ready


def _not_reached(why: Unreachable) -> Failure:
    return Failure(kind="migrator.DestinationUnreachable", text=f"{why.reason}: {why.detail}")


# ── deliveries in hand, in the thread that serves the broker ───────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class LinkContext:
    lease: Lease
    link: SatelliteLink
    policy: RecoverabilityPolicy
    outbox: Outbox
    time: DatabaseTime
    guard: Callable[[], None]
    """Raises when the session must end."""
    fault: FaultPoint


@dataclass(kw_only=True)
class Receiver:
    """Passes deliveries of ``<queue>.Timeouts`` through the handler into the outbox."""

    context: LinkContext
    handler: DelayedMessageHandler | None
    background: Executor

    def __post_init__(self) -> None:
        self._waiting: deque[Delivery] = deque()
        self._in_work: Sequence[Delivery] = ()
        self._backoff = new_backoff(self.context.time.monotonic_s)
        self.error: MigratorError | None = None
        """The last error of store or broker; the work is repeated."""
        self.pending: Future[Handled] | None = None
        """The chunk being handled."""

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, delivery: Delivery) -> None:
        """Queue a delivery; a copy replaces one that was redelivered too often."""
        copy = self.context.policy.renewal(delivery)
        if copy is None:
            self.add_as_it_is(delivery)
        else:
            self.context.outbox.add(copy, due_at=self.context.time.now())

    def add_as_it_is(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)

    def begin(self) -> None:
        handler = self.handler
        if self.pending is not None or not self._waiting or handler is None:
            return
        if self._backoff.is_over:
            self._in_work = next_chunk(self._waiting)
            self.pending = self.background.submit(handler.handle, self._in_work, self.context.lease)

    def finish(self) -> bool:
        """Ack the handled chunk and queue its items; return whether the store was written.

        After an error of store or broker, the chunk stays unacked and is handled again.
        """
        if self.pending is None or not self.pending.done():
            return False
        pending, self.pending = self.pending, None
        try:
            handled = pending.result()
        except (LeaseLost, Interrupted):
            raise
        except MigratorError as exc:
            self._backoff.failed()
            self.error = exc
            self._waiting.extendleft(reversed(self._in_work))
            return False
        self._backoff.succeeded()
        self.error = None
        self._in_work = ()
        self.ack(handled.to_ack)
        if handled.to_ack:
            self.context.fault("intake.acked")
        for item, due_at in handled.items:
            self.context.outbox.add(item, due_at=due_at)
        for delivery, failure in reversed(handled.failed):  # those tried again keep their order
            self.fail(delivery, failure)
        return bool(handled.to_ack)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        now = self.context.time.now()
        copy = self.context.policy.next_step(delivery, failure, now=now)
        if copy is None:
            self._waiting.appendleft(delivery)
        else:
            self.context.outbox.add(copy, due_at=now)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        tags = [delivery.tag for delivery in deliveries]
        self.context.link.acknowledge(tags)
        self.context.policy.forget(tags)


def next_chunk(deliveries: deque[Delivery]) -> Sequence[Delivery]:
    chunk: list[Delivery] = []
    size = 0
    while deliveries and len(chunk) < _MOST_DELIVERIES and size < _MOST_BYTES:
        chunk.append(deliveries.popleft())
        message = chunk[-1].message
        size += len(message.raw_properties or b"") + len(message.body)
    return chunk
