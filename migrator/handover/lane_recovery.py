"""Recover what a dead owner left in its lanes before a rollback, without claiming anything.

The outcome of each interrupted commit is found out: its receipt is there, or the whole attempt was
redelivered. Messages of abandoned attempts are acked away; until then they stay in the staging
queue, and no program can send them. How much of a directly published batch arrived cannot be
known, as a message that is not found may have left. So the whole batch is published again, with
the same ids, and a recall takes every copy that is not due.

Rules of this file: it owns the lane's lease and the lane's guard queue at the broker and takes the
same steps as a lane of hand-over, so it may be killed at any line and the next owner continues.
It claims and nacks nothing, and publishes only batches in state ``publishing``.
Source: docs/adr/0007-recall.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.errors import PreflightRefused
from migrator.handover.link import LaneLinks
from migrator.handover.ports import Link
from migrator.handover.runs import HandOver
from migrator.handover.staged import StagedHandOver
from migrator.ledger.lease_keeper import OwnedLease, exclusive
from migrator.ledger.leases import SqlLeases
from migrator.ledger.states import BatchState
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease, no_fault
from migrator.nservicebus.timeouts import BatchId, Lane

_log = logging.getLogger(__name__)

_QUIET_S: Final = 1.0
"""After so long without a delivery, the staging queue has delivered all it contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRecovery:
    batches: Batches
    leases: SqlLeases
    lease_duration: timedelta
    clock: Clock
    receipt_deadline_s: float
    links: LaneLinks
    staged_messages: Callable[[], Mapping[Lane, int]]
    """Messages in the staging queue of each lane, without those being dead-lettered."""
    staged_for_others: Callable[[], Collection[BatchId]]
    """Commits in queues of another broker, or of another version of the delays."""
    publishing: Callable[[Batch], HandOver]
    """Returns what hands a batch over by the terms of its own run."""
    fault: FaultPoint = no_fault

    def recover(self, staged: Collection[Lane], published: Collection[Batch]) -> int:
        """Recover lanes with *staged* commits, *published* batches, or messages in staging queues.

        Lanes with an owner are left alone. Return how many messages the staging queues of all
        other lanes still contain. After an error the ledger has each batch's state.
        """
        lanes_with_messages = {lane for lane, count in self.staged_messages().items() if count}
        with_staging = {*staged, *lanes_with_messages}
        busy = {lane for lane, _ in self.leases.holders()}
        for lane in sorted({*with_staging, *(batch.lane for batch in published)} - busy):
            again = [batch.id for batch in published if batch.lane == lane]
            with suppress(PreflightRefused):  # a new owner recovers it
                self._recover(lane, again, has_staging=lane in with_staging)
        if not with_staging:
            return 0
        busy = {lane for lane, _ in self.leases.holders()}
        return sum(count for lane, count in self.staged_messages().items() if lane not in busy)

    def _recover(self, lane: Lane, again: Sequence[BatchId], *, has_staging: bool) -> None:
        refusal = {lane: f"another process works on lane {lane}"}
        with exclusive(
            self.leases,
            refusal,
            doing="recovery before a rollback",
            duration=self.lease_duration,
        ) as (held,):
            link = self.links.open(held.lease, held.check)
            try:
                for batch in self.batches.open_batches(held.lease):
                    if batch.state is BatchState.PUBLISHING and batch.id in again:
                        self._publish(batch, link, held.lease)
                if has_staging:
                    self._recover_staged(link, held)
            finally:
                link.close()

    def _publish(self, batch: Batch, link: Link, lease: Lease) -> None:
        _log.info(
            "publishing an interrupted batch again",
            extra={"action": "batch_recovered", "batch": batch.id, "state": str(batch.state)},
        )
        by = self.publishing(batch)
        by.preparer.limit_frames(link.frame_max_bytes)
        prepared = by.preparer.prepare(batch, lease)
        by.direct.hand_over(prepared, link, lease, report=lambda _activity: None)

    def _recover_staged(self, link: Link, held: OwnedLease) -> None:
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
                    "interrupted commit resolved",
                    extra={
                        "action": "commit_resolved",
                        "batch": batch.id,
                        "state": str(found.state),
                    },
                )
        self.fault("settle.resolved")
        staged.discard_leftovers(_QUIET_S)
