"""Messages of ``<queue>.Timeouts`` straight into the native delays; the store stays as it is.

What is due later than the longest native delay is stored, and moved when it is near enough. A
clear-timeouts message removes what the store still has; what is in the delays already stays
there, and the endpoint ignores timeouts of a saga that is complete. Source: design section 10.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from migrator.delays.destinations import Destinations
from migrator.delays.routing import LONGEST_DELAY
from migrator.dispatcher.delivery import to_forward
from migrator.dispatcher.intake import Changes, Read, Taken, not_reached, understood, unfit
from migrator.dispatcher.outbox import Forwarded
from migrator.dispatcher.ports import Delivery
from migrator.ledger.work import Clock, Lease
from migrator.nservicebus.conversion import Quarantine, Rules
from migrator.nservicebus.satellites import ClearTimeouts, DelayedMessage
from migrator.nservicebus.timeouts import NativeMessage

_log = logging.getLogger(__name__)


class Forwarding:
    """Makes native messages of what comes in."""

    def __init__(
        self, *, changes: Changes, destinations: Destinations, clock: Clock, rules: Rules
    ) -> None:
        """Bind *destinations* before a message for them enters the delays."""
        self._changes = changes
        self._destinations = destinations
        self._clock = clock
        self._rules = rules

    def limit_frames(self, frame_max_bytes: int) -> None:
        """Convert for a connection that negotiated this frame size; 0: no limit."""
        self._rules = replace(self._rules, frame_max_bytes=frame_max_bytes)

    def take_in(self, deliveries: Sequence[Delivery], lease: Lease) -> Taken:
        """Return what became of *deliveries*; see ``intake.TakeIn``."""
        taken = Taken()
        reads = understood(deliveries, taken)
        latest = self._clock.now() + LONGEST_DELAY
        for_store: list[Read] = []
        ready: list[tuple[Delivery, NativeMessage]] = []
        for read in reads:
            if isinstance(read.asks, ClearTimeouts) or read.asks.due_at > latest:
                for_store.append(read)
            else:
                ready += self._converted(read, read.asks, taken)
        self._forward(ready, taken)
        applied = self._changes.apply(for_store, lease, taken)
        cleared = [read.asks.saga_id for read in for_store if isinstance(read.asks, ClearTimeouts)]
        if cleared:
            _log.info(
                "timeouts of completed sagas were removed from the store; those already in the "
                "delays stay there, and the endpoint ignores them",
                extra={
                    "action": "sagas_cleared",
                    "sagas": len(cleared),
                    "removed": applied.cleared,
                },
            )
        return taken

    def _converted(
        self, read: Read, asks: DelayedMessage, taken: Taken
    ) -> Sequence[tuple[Delivery, NativeMessage]]:
        found = to_forward(asks, rules=self._rules, now=self._clock.now())
        if isinstance(found, Quarantine):
            taken.failed.append((read.delivery, unfit(found)))
            return ()
        return ((read.delivery, found),)

    def _forward(self, ready: Sequence[tuple[Delivery, NativeMessage]], taken: Taken) -> None:
        unreachable = self._destinations.unreachable({m.destination for _, m in ready})
        now = self._clock.now()
        for delivery, message in ready:
            if message.destination in unreachable:
                taken.failed.append((delivery, not_reached(unreachable[message.destination])))
            else:
                taken.items.append((Forwarded(delivery=delivery, message=message), now))
