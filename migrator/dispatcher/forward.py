"""Messages of ``<queue>.Timeouts`` straight into the native delays; the store stays as it is.

What is due later than the longest native delay is stored, and moved when it is near enough. A
clear-timeouts message removes what the store still has; what is in the delays already stays
there, and the endpoint ignores timeouts of a saga that is complete. Source: design section 10.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.delays.destinations import Destinations
from migrator.delays.routing import LONGEST_DELAY
from migrator.dispatcher.link import Delivery
from migrator.dispatcher.outbox import Forwarded
from migrator.dispatcher.receive import (
    DelayedMessageHandler,
    Handled,
    Read,
    never_sent,
    not_reached,
    understood,
)
from migrator.dispatcher.rules import to_forward
from migrator.ledger.work import Lease
from migrator.nservicebus.conversion import Quarantine
from migrator.nservicebus.satellites import ClearTimeouts
from migrator.nservicebus.timeouts import NativeMessage

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Forwarding(DelayedMessageHandler):
    """Makes native messages of what comes in."""

    destinations: Destinations
    """Bound before a message for them enters the delays."""

    def handle(self, deliveries: Sequence[Delivery], lease: Lease) -> Handled:
        """Return what became of *deliveries*; see ``DelayedMessageHandler``."""
        handled = Handled()
        now = self.clock.now()
        for_store: list[Read] = []
        ready: list[tuple[Delivery, NativeMessage]] = []
        for read in understood(deliveries, handled):
            if isinstance(read.asks, ClearTimeouts) or read.asks.due_at > now + LONGEST_DELAY:
                for_store.append(read)
                continue
            found = to_forward(read.asks, rules=self.rules, now=now)
            if isinstance(found, Quarantine):
                handled.failed.append((read.delivery, never_sent(found)))
            else:
                ready.append((read.delivery, found))
        self._forward(ready, handled)
        applied = self._apply(for_store, lease, handled)
        sagas = sum(isinstance(read.asks, ClearTimeouts) for read in for_store)
        if sagas:
            _log.info(
                "timeouts of completed sagas were removed from the store; those already in the "
                "delays stay there, and the endpoint ignores them",
                extra={"action": "sagas_cleared", "sagas": sagas, "removed": applied.cleared},
            )
        return handled

    def _forward(self, ready: Sequence[tuple[Delivery, NativeMessage]], handled: Handled) -> None:
        unreachable = self.destinations.unreachable({m.destination for _, m in ready})
        now = self.clock.now()
        for delivery, message in ready:
            if message.destination in unreachable:
                failure = not_reached(unreachable[message.destination])
                handled.failed.append((delivery, failure))
            else:
                handled.items.append((Forwarded(delivery=delivery, message=message), now))
