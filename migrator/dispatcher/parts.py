"""What a dispatcher is made of, and what it knows beyond the life of a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from migrator.delays.routing import DelaysVersion
from migrator.dispatcher.blame import Blame
from migrator.dispatcher.intake import TakeIn
from migrator.dispatcher.polling import Poller, Sending
from migrator.dispatcher.sparingly import Sparingly
from migrator.dispatcher.trouble import Recoverability
from migrator.ledger.work import Background, Clock, FaultPoint
from migrator.nservicebus.timeouts import BatchId, QueueName
from migrator.telemetry.ports import NoTracer, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherParts:
    """What outlives a session: the same for every link this dispatcher will have."""

    poller: Poller
    take_in: TakeIn | None
    """None: nothing is consumed, stored rows are sent and that is all."""
    timeouts_queue: QueueName | None
    recoverability: Recoverability
    version: DelaysVersion
    clock: Clock
    storing: Background
    """Takes messages in, one lot after the other."""
    claiming: Background
    """Claims and settles, one after the other."""
    prefetch: int
    poll_every: timedelta
    fault: FaultPoint
    sparingly: Sparingly
    sent: Callable[[float], None] = lambda _late_s: None
    """Told of each stored row that the broker took: how many seconds after its due time."""
    settled: Callable[[int, float], None] = lambda _rows, _seconds: None
    """Told of each batch that is settled: rows sent, and seconds since they were claimed."""
    tracer: Tracer = field(default_factory=NoTracer)
    sending: dict[BatchId, Sending] = field(default_factory=dict)
    """Batches that are being sent, by what this process knows."""
    blame: Blame = field(default_factory=Blame)
