"""From a batch in the ledger to messages that are ready for the broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from migrator.delays.destinations import Destinations
from migrator.delays.routing import delay_s
from migrator.handover.encoding import encode
from migrator.handover.holding import Holding, UndeliverableRow
from migrator.handover.ports import Delayed
from migrator.ledger.work import Batch, Batches, Clock, Lease
from migrator.nservicebus.conversion import BrokerLimits, Quarantine
from migrator.nservicebus.timeouts import EncodedTimeout, EndpointName, QueueName
from migrator.rabbitmq.publisher import in_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    batch: Batch
    messages: tuple[EncodedTimeout, ...]
    """By row index; may be empty."""
    prepared_at: datetime
    """Rows due by then go without a delay."""
    quarantined: int = 0

    @property
    def rows(self) -> frozenset[int]:
        return frozenset(message.row_index for message in self.messages)


@dataclass(kw_only=True, eq=False)
class Preparer:
    batches: Batches
    destinations: Destinations
    holding: Holding
    clock: Clock
    rules: BrokerLimits
    own_queue_of: Callable[[EndpointName], QueueName]

    def limit_frames(self, frame_max_bytes: int) -> None:
        self.rules = replace(self.rules, frame_max_bytes=frame_max_bytes)

    def limit_bodies(self, body_max_bytes: int) -> None:
        self.rules = replace(self.rules, body_max_bytes=body_max_bytes)

    def prepare(self, batch: Batch, lease: Lease, *, answered: Collection[int] = ()) -> Prepared:
        """Return the messages of *batch*; quarantine rows that cannot become one.

        Rows with an unreachable destination are parked, unless the broker has *answered* them.

        Raises:
            TargetError: Destinations could not be checked; nothing was changed.
        """
        now, (rows, unreadable) = self.clock.now(), self.batches.readable(batch)
        # the rows are read: free their claimed copy
        size, batch = batch.size, replace(batch, fresh=None)
        rules = replace(self.rules, own_queue=self.own_queue_of(batch.endpoint))
        encoded = encode(rows, rules=rules, now=now)
        unfit = [*unreadable, *(found for found in encoded if isinstance(found, Quarantine))]
        messages = [found for found in encoded if isinstance(found, EncodedTimeout)]
        unsent = [message for message in messages if message.row_index not in answered]
        names = {each.destination for each in unsent}
        held = self.holding.unreachable(batch, names)
        unreachable = {**held, **self.destinations.unreachable(names - held.keys())}
        lost = [
            UndeliverableRow(message=each, reason=unreachable[each.destination])
            for each in unsent
            if each.destination in unreachable
        ]
        if unfit:
            self.batches.quarantine(batch, unfit, lease)
        if lost:
            batch = self.holding.park(batch, lost, lease)
        aside = size - len(rows) - len(unreadable)  # rows that the claim could not read
        gone = {each.message.row_index for each in lost}
        return Prepared(
            batch=batch,
            messages=tuple(each for each in messages if each.row_index not in gone),
            prepared_at=now,
            quarantined=aside + len(unfit),
        )


def with_delays(
    messages: Sequence[EncodedTimeout],
    *,
    clock: Clock,
    least_delay_s: int,
    halfway: Callable[[], None],
    not_before: datetime | None = None,
) -> Iterator[list[Delayed]]:
    """Yield *messages* in chunks, with their delays at the moment a chunk is drawn.

    Args:
        messages: In the order of publishing.
        clock: Read once per chunk: the broker may block between two chunks.
        least_delay_s: 1 for messages that must pass a level (docs/adr/0003).
        halfway: Called before the middle message is yielded.
        not_before: When the messages enter their levels, if later than now.
    """
    middle = len(messages) // 2
    yield from _chunks(messages[:middle], clock, least_delay_s, not_before)
    halfway()
    yield from _chunks(messages[middle:], clock, least_delay_s, not_before)


def _chunks(
    messages: Sequence[EncodedTimeout],
    clock: Clock,
    least_delay_s: int,
    not_before: datetime | None,
) -> Iterator[list[Delayed]]:
    for chunk in in_chunks(messages, bytes_of=_wire_bytes):
        now = clock.now() if not_before is None else max(clock.now(), not_before)
        yield [(each, max(delay_s(each.due_at, now=now), least_delay_s)) for each in chunk]


def _wire_bytes(message: EncodedTimeout) -> int:
    return len(message.fields) + len(message.body)
