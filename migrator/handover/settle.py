"""Settling what a dead owner had under way, without claiming anything more.

Before a rollback, each commit that was cut off has to be known: its receipt is there, or the whole
attempt came back. What given-up attempts left in a staging queue is taken away as well; until then
it stays there, and nobody can send it. How much of a batch was published directly, nobody can know,
as a message that is not found may have left: so all of it is published once more, with the same
ids, and a recall takes every copy of what is not due.

Rules of this file: it holds the lane's lease, and the lane's guard queue at the broker, as a lane
of hand-over does, and takes the same steps; so it may be killed at any line, and whoever comes
next goes on. Nothing is claimed or nacked, and nothing published that was not being published
already. Source: docs/adr/0007-recall.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.errors import PreflightRefused
from migrator.handover.ports import Link
from migrator.handover.runs import HandOver
from migrator.handover.staged import StagedHandOver
from migrator.ledger.lease_keeper import HeldLease, exclusive
from migrator.ledger.leases import SqlLeases
from migrator.ledger.states import BatchState
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease
from migrator.nservicebus.timeouts import BatchId, Lane

_log = logging.getLogger(__name__)

_QUIET_S: Final = 1.0
"""When the staging queue delivers nothing for so long, all it has is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Settles lanes that nobody works on; made by ``app.commands.new_rollback``."""

    batches: Batches
    leases: SqlLeases
    lease_duration: timedelta
    """For how long a lane is taken at a time."""
    clock: Clock
    receipt_deadline_s: float
    """A commit without a proof is doubtful then."""
    open_link: Callable[[Lease, Callable[[], None]], Link]
    """Connects a lane; is given what raises when the lane is no longer ours."""
    left_in: Callable[[], Mapping[Lane, int]]
    """How many messages lie in the staging queue of each lane; what is on its way out is none."""
    staged_for_others: Callable[[], Collection[BatchId]]
    """Commits that wait in the queues of another place, or of other delays, than ours."""
    publishing: Callable[[Batch], HandOver]
    """What hands a batch over as its run does, to the queues it went to."""
    fault: FaultPoint = lambda _step: None

    def settle(self, staged: Collection[Lane], published: Collection[Batch]) -> int:
        """Settle what was *staged* in some lanes, and batches that were being *published*.

        Also other lanes with copies left in their staging queues. Lanes that somebody works on are
        left alone. Return how many copies still lie in lanes that nobody works on.

        Raises:
            TargetError: The broker cannot be asked; each batch is as far as the ledger says.
            HandOverDoubtful: The broker holds what the ledger never sent.
            LeaseLost: Somebody took a lane; as above.
        """
        left = {lane for lane, count in self.left_in().items() if count}
        with_staging = {*staged, *left}
        busy = {lane for lane, _ in self.leases.holders()}
        for lane in sorted({*with_staging, *(batch.lane for batch in published)} - busy):
            again = [batch.id for batch in published if batch.lane == lane]
            with suppress(PreflightRefused):  # somebody took it since, who settles it
                self._settle(lane, again, has_staging=lane in with_staging)
        if not with_staging:
            return 0
        busy = {lane for lane, _ in self.leases.holders()}
        return sum(count for lane, count in self.left_in().items() if lane not in busy)

    def _settle(self, lane: Lane, again: Sequence[BatchId], *, has_staging: bool) -> None:
        refusal = {lane: f"another process works on lane {lane}"}
        with exclusive(
            self.leases, refusal, doing="settling before a rollback", duration=self.lease_duration
        ) as (held,):
            link = self.open_link(held.lease, held.check)
            try:
                for batch in self.batches.open_batches(held.lease):
                    if batch.state is BatchState.PUBLISHING and batch.id in again:
                        self._publish(batch, link, held.lease)
                if has_staging:
                    self._settle_staged(link, held)
            finally:
                link.close()

    def _publish(self, batch: Batch, link: Link, lease: Lease) -> None:
        """Publish *batch* once more, whole; then it is handed over, whatever came of it before."""
        _log.info(
            "publishing a batch once more that an earlier process left",
            extra={"action": "batch_recovered", "batch": batch.id, "state": str(batch.state)},
        )
        by = self.publishing(batch)
        by.preparer.limit_frames(link.frame_max_bytes)
        prepared = by.preparer.prepare(batch, lease)
        by.direct.hand_over(prepared, link, lease, tell=lambda _doing: None)

    def _settle_staged(self, link: Link, held: HeldLease) -> None:
        staged = StagedHandOver(
            batches=self.batches,
            clock=self.clock,
            staging=link.staging(),
            lease=held.lease,
            receipt_deadline_s=self.receipt_deadline_s,
            fault=self.fault,
            guard=held.check,
        )
        elsewhere = self.staged_for_others()
        for batch in self.batches.open_batches(held.lease):
            if batch.state is BatchState.COMMITTING and batch.id not in elsewhere:
                rows = frozenset(row.row_index for row in self.batches.rows(batch))
                found = staged.resolve(batch, rows)
                _log.info(
                    "an interrupted commit is resolved",
                    extra={
                        "action": "commit_resolved",
                        "batch": batch.id,
                        "state": str(found.state),
                    },
                )
        self.fault("settle.resolved")
        staged.discard_leftovers(_QUIET_S)
