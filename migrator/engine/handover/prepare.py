"""From a batch in the ledger to messages that are ready for the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from migrator.domain.conversion import Quarantine, Rules, convert
from migrator.domain.delays import delay_s
from migrator.domain.routing import DelaysVersion, address
from migrator.domain.timeouts import EndpointName, NativeMessage, QueueName
from migrator.ports import Batch, Batches, Clock, Destinations, Lease, Outgoing


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch whose bad rows are already in quarantine."""

    batch: Batch
    messages: tuple[NativeMessage, ...]
    """By row index; empty when every row is in quarantine."""
    quarantined: tuple[Quarantine, ...]

    @property
    def rows(self) -> frozenset[int]:
        """Return the row indexes that go to the broker."""
        return frozenset(message.row_index for message in self.messages)


class Preparer:
    """Loads, converts and checks the rows of one batch after the other."""

    def __init__(
        self,
        *,
        batches: Batches,
        destinations: Destinations,
        clock: Clock,
        rules: Rules,
        own_queue_of: Callable[[EndpointName], QueueName],
    ) -> None:
        """Work on *batches* of one lane, by *rules* of one broker.

        *own_queue_of* returns an endpoint's input queue.
        """
        self._batches = batches
        self._destinations = destinations
        self._clock = clock
        self._rules = rules
        self._own_queue_of = own_queue_of

    def limit_frames(self, frame_max_bytes: int) -> None:
        """Convert for a connection that negotiated this frame size; 0: no limit."""
        self._rules = replace(self._rules, frame_max_bytes=frame_max_bytes)

    def limit_bodies(self, body_max_bytes: int) -> None:
        """Convert for a broker that takes no larger body than this."""
        self._rules = replace(self._rules, body_max_bytes=body_max_bytes)

    def prepare(self, batch: Batch, lease: Lease) -> Prepared:
        """Return the messages of *batch*; rows that cannot become one are put into quarantine.

        Raises:
            TargetUnavailable: Destinations could not be checked; nothing was changed.
            LeaseLost, StoreUnavailable: As the ledger says.
        """
        now = self._clock.now()
        rules = replace(self._rules, own_queue=self._own_queue_of(batch.endpoint))
        converted = [convert(row, rules=rules, now=now) for row in self._batches.rows(batch)]
        unfit = [found for found in converted if isinstance(found, Quarantine)]
        messages = [found for found in converted if isinstance(found, NativeMessage)]
        reachable, lost = self._split(messages)
        findings = (*unfit, *lost)
        if findings:
            self._batches.quarantine(batch, findings, lease)
        return Prepared(batch=batch, messages=reachable, quarantined=findings)

    def _split(
        self, messages: Sequence[NativeMessage]
    ) -> tuple[tuple[NativeMessage, ...], tuple[Quarantine, ...]]:
        """Part messages that would arrive from those for destinations nobody is bound to."""
        unreachable = self._destinations.unreachable({m.destination for m in messages})
        reachable = tuple(m for m in messages if m.destination not in unreachable)
        lost = tuple(
            Quarantine(
                row_index=m.row_index,
                timeout_id=m.timeout_id,
                reason=unreachable[m.destination].reason,
                detail=unreachable[m.destination].detail,
            )
            for m in messages
            if m.destination in unreachable
        )
        return reachable, lost


def outgoing(
    messages: Iterable[NativeMessage], *, version: DelaysVersion, clock: Clock, least_delay_s: int
) -> Iterator[Outgoing]:
    """Yield each message with the delay it has at the moment it is asked for.

    Args:
        messages: In the order in which they shall be published.
        version: Generation of the delay levels.
        clock: Read for every message: the broker may make us wait between two.
        least_delay_s: 1 for staged passes, which have no way for a delay of 0 (docs/adr/0003).
    """
    for message in messages:
        delay = max(delay_s(message.due_at, now=clock.now()), least_delay_s)
        yield Outgoing(
            message=message,
            delay_s=delay,
            address=address(version, delay, message.destination),
        )


def at_half(
    messages: Iterable[Outgoing], count: int, call: Callable[[], None]
) -> Iterator[Outgoing]:
    """Yield *messages* unchanged and run *call* before the middle one of *count*."""
    for index, message in enumerate(messages):
        if index == count // 2:
            call()
        yield message
