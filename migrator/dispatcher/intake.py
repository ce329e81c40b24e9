"""What is done with messages of ``<queue>.Timeouts``: stored, passed on, or cleared.

Rules of this file: a message is acknowledged only after what it asks for is committed or, when
it is sent at once, confirmed; doing it twice is harmless, because a row's id is made from the
message; the order of messages is the order of changes. Runs in a background thread, in order.
Source: reference ``timeout-manager.md`` section 7.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from migrator.delays.routing import Unreachable
from migrator.dispatcher.delivery import to_pass_on
from migrator.dispatcher.outbox import Item, PassedOn
from migrator.dispatcher.ports import Delivery, Routes
from migrator.errors import RowRefused
from migrator.ledger.work import Clock, FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine, Rules
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
"""What is due within this is never stored, as the timeout manager has it; we wait until it is."""


@dataclass(slots=True)
class Taken:
    """What became of some deliveries."""

    settled: list[Delivery] = field(default_factory=list)
    """Done with; to be acknowledged."""
    items: list[tuple[Item, datetime]] = field(default_factory=list)
    """To be sent, each with the time it is due; acknowledged once it is confirmed."""
    failed: list[tuple[Delivery, Failure]] = field(default_factory=list)


class TakeIn(Protocol):
    """What a dispatcher does with messages of ``.Timeouts``: store them, or forward them."""

    def take_in(self, deliveries: Sequence[Delivery], lease: Lease) -> Taken:
        """Return what became of *deliveries*.

        Raises:
            StoreUnavailable, TargetUnavailable, LeaseLost: Nothing may be acknowledged; what was
                changed is changed again, without effect, when they are redelivered.
        """
        ...

    def limit_frames(self, frame_max_bytes: int) -> None:
        """Convert for a connection that negotiated this frame size; 0: no limit."""
        ...


@dataclass(frozen=True, slots=True)
class Read:
    """One message that was understood."""

    delivery: Delivery
    asks: DelayedMessage | ClearTimeouts


def understood(deliveries: Iterable[Delivery], taken: Taken) -> Sequence[Read]:
    """Return what *deliveries* ask for; those that cannot be understood fail for good."""
    found: list[Read] = []
    for delivery in deliveries:
        try:
            found.append(Read(delivery, read_delayed(delivery.message, queue=delivery.queue)))
        except NotUnderstood as exc:
            failure = Failure(kind="migrator.NotUnderstood", text=str(exc), is_final=True)
            taken.failed.append((delivery, failure))
    return found


def unfit(found: Quarantine) -> Failure:
    """Return why a message can never be sent."""
    return Failure(kind="migrator.Unfit", text=f"{found.reason}: {found.detail}", is_final=True)


def not_reached(why: Unreachable) -> Failure:
    """Return why a message cannot be sent now."""
    return Failure(kind="migrator.DestinationUnreachable", text=f"{why.reason}: {why.detail}")


class Changes:
    """Writes what messages ask of the store, and tells which messages are done with."""

    def __init__(self, intake: SqlIntake, endpoint: StoreEndpoint, fault: FaultPoint) -> None:
        """Write to the store of *endpoint*."""
        self._intake = intake
        self._endpoint = endpoint
        self._fault = fault

    def apply(self, reads: Sequence[Read], lease: Lease, taken: Taken) -> Applied:
        """Carry out *reads* in their order; a row that the database refuses fails alone."""
        if not reads:
            return Applied(stored=0, known=0, cleared=0)
        try:
            applied = self._intake.apply(self._endpoint, [read.asks for read in reads], lease)
        except RowRefused as exc:
            if len(reads) > 1:
                return _sum([self.apply([read], lease, taken) for read in reads])
            failure = Failure(kind="migrator.RowRefused", text=str(exc))
            taken.failed.append((reads[0].delivery, failure))
            return Applied(stored=0, known=0, cleared=0)
        self._fault("intake.stored")
        taken.settled += [read.delivery for read in reads]
        return applied


class Storing:
    """Stores messages as the timeout manager does; what is due at once goes on as it is."""

    def __init__(
        self,
        *,
        changes: Changes,
        routes: Routes,
        clock: Clock,
        rules: Rules,
    ) -> None:
        """Store by *changes*; send by *routes* what is due at once."""
        self._changes = changes
        self._routes = routes
        self._clock = clock
        self._rules = rules

    def limit_frames(self, frame_max_bytes: int) -> None:
        """Convert for a connection that negotiated this frame size; 0: no limit."""
        self._rules = replace(self._rules, frame_max_bytes=frame_max_bytes)

    def take_in(self, deliveries: Sequence[Delivery], lease: Lease) -> Taken:
        """Return what became of *deliveries*; see ``TakeIn``."""
        taken = Taken()
        reads = understood(deliveries, taken)
        soon_until = self._clock.now() + _AT_ONCE
        soon = [r for r in reads if _is_due(r, soon_until)]
        self._pass_on(soon, taken)
        rest = [r for r in reads if not _is_due(r, soon_until)]
        applied = self._changes.apply(rest, lease, taken)
        _log.debug(
            "messages were taken in",
            extra={
                "action": "messages_taken_in",
                "stored": applied.stored,
                "known": applied.known,
                "cleared": applied.cleared,
                "passed_on": len(soon),
                "failed": len(taken.failed),
            },
        )
        return taken

    def _pass_on(self, soon: Sequence[Read], taken: Taken) -> None:
        ready: list[tuple[Delivery, NativeMessage]] = []
        for read in soon:
            if not isinstance(read.asks, DelayedMessage):
                continue
            found = to_pass_on(read.asks, rules=self._rules)
            if isinstance(found, Quarantine):
                taken.failed.append((read.delivery, unfit(found)))
            else:
                ready.append((read.delivery, found))
        if not ready:
            return
        routes = self._routes.routes({message.destination for _, message in ready})
        for delivery, message in ready:
            route = routes[message.destination]
            if isinstance(route, Unreachable):
                self._routes.forget([message.destination])
                taken.failed.append((delivery, not_reached(route)))
            else:
                item = PassedOn(delivery=delivery, message=message, route=route)
                taken.items.append((item, message.due_at))


def _is_due(read: Read, until: datetime) -> bool:
    """Return whether a message goes on as it is.

    One that somebody had before may have been stored: only the store can tell, and a row that is
    due is claimed within half a second.
    """
    return (
        isinstance(read.asks, DelayedMessage)
        and read.asks.due_at <= until
        and not read.delivery.is_redelivered
        and not is_renewed(read.delivery.message)
    )


def _sum(parts: Sequence[Applied]) -> Applied:
    return Applied(
        stored=sum(p.stored for p in parts),
        known=sum(p.known for p in parts),
        cleared=sum(p.cleared for p in parts),
    )
