"""Direct hand-over: publish a batch straight into the levels and settle it row by row.

Used for rows that were already due when they were claimed, and for every row in ``direct``
mode. A crash publishes the batch again, with fresh delays and the same message ids; within a
living process only rows without an answer are published again. Source: design section 5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from migrator.domain.conversion import Quarantine, Reason
from migrator.domain.marks import Pass
from migrator.domain.routing import DelaysVersion
from migrator.domain.states import BatchState, Event
from migrator.engine.handover.prepare import Prepared, at_half, outgoing
from migrator.ports import Batch, Batches, Clock, FaultPoint, Lease, Link, Settled

_NACK_PAUSE_S: Final = 0.2
"""After the broker refused rows, wait this long before they are tried again."""


class DirectHandOver:
    """Hands over one batch at a time; remembers answers across a lost connection."""

    def __init__(
        self,
        *,
        batches: Batches,
        clock: Clock,
        version: DelaysVersion,
        fault: FaultPoint,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """Publish into the levels of *version*; *guard* raises when trying again must end."""
        self._guard = guard
        self._batches = batches
        self._clock = clock
        self._version = version
        self._fault = fault
        self._answered: dict[Pass, Settled] = {}

    def hand_over(
        self, prepared: Prepared, link: Link, lease: Lease
    ) -> tuple[Batch, frozenset[int]]:
        """Return the batch once all its rows are settled, and which of them were unroutable.

        Raises:
            TargetUnavailable: Rows without an answer are unknown. Called again with the same
                batch, in this process, only those are published once more.
            LeaseLost: Stop; the lane's new owner publishes the batch again.
        """
        batch = self._begin(prepared.batch, lease)
        settled = self._answered[batch.current_pass]
        while rest := [m for m in prepared.messages if not _is_answered(m.row_index, settled)]:
            messages = outgoing(rest, version=self._version, clock=self._clock, least_delay_s=0)
            halfway = at_half(messages, len(rest), lambda: self._fault("direct.publishing"))
            link.publish(batch.current_pass, halfway, settled)
            if len(settled.confirmed) + len(settled.returned) < len(prepared.messages):
                self._guard()
                link.idle(_NACK_PAUSE_S)
        self._fault("direct.confirmed")
        return self._settle(prepared, batch, settled, lease)

    def _begin(self, batch: Batch, lease: Lease) -> Batch:
        """Start a pass, unless this process is still in the middle of one."""
        if batch.state is BatchState.PUBLISHING and batch.current_pass in self._answered:
            return batch
        batch = self._batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
        self._answered = {batch.current_pass: Settled()}  # another owner may have ended others
        self._fault("direct.begun")
        return batch

    def _settle(
        self, prepared: Prepared, batch: Batch, settled: Settled, lease: Lease
    ) -> tuple[Batch, frozenset[int]]:
        unroutable = [
            Quarantine(
                row_index=message.row_index,
                timeout_id=message.timeout_id,
                reason=Reason.UNROUTABLE,
                detail=f"the broker returned it: nothing is bound for {message.destination!r}",
            )
            for message in prepared.messages
            if message.row_index in settled.returned
        ]
        if unroutable:
            self._batches.quarantine(batch, unroutable, lease)
        batch = self._batches.advance(batch, Event.ALL_SETTLED, lease)
        self._answered.pop(batch.current_pass, None)
        self._fault("direct.handed_over")
        return batch, frozenset(each.row_index for each in unroutable)


def _is_answered(row_index: int, settled: Settled) -> bool:
    return row_index in settled.confirmed or row_index in settled.returned
