"""Staged hand-over: gather an attempt in the lane's staging queue, then move all of it or nothing.

The rules; a crash test fails without any of them:

* the number of an attempt is raised and committed before its first publish;
* complete means the exact set of row indexes plus the receipt, never a count;
* ``committing`` is recorded before the one nack that dead-letters the attempt;
* only two proofs decide about a commit: the receipt came through the router, or the whole
  attempt was redelivered. An empty queue proves nothing;
* messages of a lower attempt than the ledger's are waste and are acked; a batch or an attempt
  that the ledger does not know means a restored or cloned database: stop;
* a message that is not the lane's, from any sender, goes to the poison queue: it decides nothing.

Source: design section 5.2; docs/adr/0001-hand-over-protocol.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.errors import HandOverDoubtful, ReceiptMissing, TargetError
from migrator.handover.ports import Staging
from migrator.handover.prepare import Prepared, with_delays
from migrator.ledger.states import BatchState, Event
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId

_log = logging.getLogger(__name__)

MAX_WITHOUT_RECEIPT: Final = 2
"""Batches without a receipt at a time; more would hide a router that does not route."""
COMPLETE_TIMEOUT_S: Final = 30.0
"""From the confirms of an attempt to its last delivery; then it is abandoned."""
_AGE_LIMIT_S: Final = 1.0
_USUAL_PART: Final = 0.9
"""Of the last attempt's age at its nack; one that is complete sooner waits until then."""
_MOST_AHEAD_S: Final = 0.5
_USUAL_S: Final = 1.0
_LATE_S: Final = 10.0
"""A receipt that takes longer is logged; bindings may be missing, so all are declared again."""
_BIND_EVERY_S: Final = 30.0

_UNRESOLVED: Final = (BatchState.COMMITTING, BatchState.DOUBTFUL)
_MAY_HAVE_RECEIPT: Final = (*_UNRESOLVED, BatchState.HANDED_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    since_s: float
    rows: int
    began_s: float | None = None
    """First publish; None: published over an earlier link."""


@dataclass(kw_only=True, eq=False)
class StagedHandOver:
    batches: Batches
    clock: Clock
    staging: Staging
    lease: Lease
    receipt_deadline_s: float
    fault: FaultPoint
    max_without_receipt: int = MAX_WITHOUT_RECEIPT
    """Until the first receipt; 1 after a link on which a receipt was missing."""
    guard: Callable[[], None] = lambda: None
    """Called while receipts are awaited; raises to end the wait, and may process receipts."""

    def __post_init__(self) -> None:
        self._without_receipt: dict[Attempt, _Commit] = {}
        self._bound_s = float("-inf")
        self._resolving: Attempt | None = None
        self._handed_over: list[tuple[Batch, int, float | None]] = []
        self._abandoned: dict[BatchId, int] = {}
        self._last = 1, 0.0
        """Rows of the last attempt, and seconds from its first publish until it could be nacked."""

    def has_open_commits(self) -> bool:
        return bool(self._without_receipt)

    def hand_over(self, prepared: Prepared) -> Batch | None:
        """Commit one attempt; return the batch if the attempt was too slow and was abandoned.

        ``take_handed_over`` awaits its receipt. An abandoned batch is ``claimed`` again; nothing of
        it can reach a level.

        Raises:
            TargetUnavailable: The link is lost; the batch's state says where it stopped.
            HandOverDoubtful: The staging queue contains what the ledger never sent.
        """
        self.staging.move_strays()
        self._await_receipts(self.max_without_receipt - 1)
        batch = self.batches.advance(prepared.batch, Event.BEGIN_STAGING, self.lease)
        self.fault("staged.begun")
        age_s = self._expected_s(prepared)
        nacked_at = self.clock.now() + timedelta(seconds=age_s)
        began_s = self.clock.monotonic_s()  # later, so that it is not nacked before that
        self._publish(batch, prepared, nacked_at)
        rows = prepared.rows
        timeout_s = COMPLETE_TIMEOUT_S * self._timeout_factor(batch)
        is_complete = self._await_all(batch.current_attempt, rows, timeout_s)
        self._note_receipts()
        if not is_complete or self._is_too_old(batch, began_s):
            return self._abandon(batch, Event.ABANDON)
        batch = self.batches.advance(batch, Event.BEGIN_COMMIT, self.lease)
        self.fault("staged.committing")
        self._last = len(rows), self.clock.monotonic_s() - began_s
        # delays count from the nack on, and no message may be early
        while (remaining_s := began_s + age_s - self.clock.monotonic_s()) > 0:
            self.staging.wait_for_event(remaining_s)
        if self._is_too_old(batch, began_s):
            return self._abandon(batch, Event.ALL_REDELIVERED)  # we hold all: no nack was sent
        self.staging.commit(batch.current_attempt, rows)
        self.fault("staged.nacked")
        self._without_receipt[batch.current_attempt] = _Commit(
            since_s=self.clock.monotonic_s(), rows=len(rows), began_s=began_s
        )
        return None

    def take_handed_over(self, wait_s: float) -> list[tuple[Batch, int, float | None]]:
        """Return batches handed over since the last call: batch, rows sent, seconds.

        The seconds are those from first publish to receipt, during which the rows' delays did
        not run; None for a commit of an earlier link. Waits up to *wait_s* for missing receipts.

        Raises:
            HandOverDoubtful: A receipt contradicts the ledger.
            ReceiptMissing: A receipt missed its deadline; its batch is doubtful.
        """
        ends_s = self.clock.monotonic_s() + wait_s
        self.staging.wait_for_event(0.0)
        self._note_receipts()
        while self._without_receipt and (remaining_s := ends_s - self.clock.monotonic_s()) > 0:
            self.staging.wait_for_event(remaining_s)
            self._note_receipts()
        self._remove_strays()
        self._give_up_overdue_commits()
        done, self._handed_over = self._handed_over, []
        return done

    def resolve(self, batch: Batch, rows: frozenset[int]) -> Batch:
        """Find out whether a ``committing`` batch of an earlier process was committed.

        It returns ``handed_over``, ``claimed`` (not nacked), or ``doubtful`` (no proof in time).
        """
        batch = self._find_batch(batch.id)
        if batch.state not in _UNRESOLVED:
            return batch
        attempt = self._resolving = batch.current_attempt
        since_s = self.clock.monotonic_s()
        self._without_receipt[attempt] = _Commit(since_s=since_s, rows=len(rows))
        ends_s = since_s + self.receipt_deadline_s
        self._process_deliveries(attempt)
        while (
            self.clock.monotonic_s() < ends_s
            and not self._has_receipt(attempt)
            and not self._is_complete(attempt, rows)
        ):
            self.staging.wait_for_event(1.0)
            self.guard()
            self._process_deliveries(attempt)
            self.staging.move_strays()
            self._rebind_if_late()
        self._resolving = None
        if self._has_receipt(attempt):
            return self._find_batch(batch.id)
        del self._without_receipt[attempt]
        batch = self._find_batch(batch.id)
        if batch.state not in _UNRESOLVED:
            return batch  # its redelivery was noticed while its older attempts were discarded
        event = Event.ALL_REDELIVERED if self._is_complete(attempt, rows) else Event.GIVE_UP
        batch = self.batches.advance(batch, event, self.lease)
        self.fault("staged.resolved")
        return batch

    def discard_leftovers(self, quiet_s: float) -> None:
        """Ack what abandoned attempts left in the queue, until nothing comes for *quiet_s*."""
        ends_s = self.clock.monotonic_s() + quiet_s
        while (remaining_s := ends_s - self.clock.monotonic_s()) > 0:
            self.guard()
            self._remove_strays()
            unacked = self._count_unacked()
            self.staging.wait_for_event(min(remaining_s, 1.0))
            if self._count_unacked() != unacked:
                ends_s = self.clock.monotonic_s() + quiet_s

    def _count_unacked(self) -> int:
        return sum(len(each.rows) + each.has_receipt for each in self.staging.unacked().values())

    def _expected_s(self, prepared: Prepared) -> float:
        rows, seconds = self._last
        part = min(len(prepared.messages) / rows, 1.0) * _USUAL_PART
        return min(seconds * part, _MOST_AHEAD_S)

    def _publish(self, batch: Batch, prepared: Prepared, nacked_at: datetime) -> None:
        chunks = with_delays(
            prepared.messages,
            clock=self.clock,
            least_delay_s=1,
            halfway=lambda: self.fault("staged.publishing"),
            not_before=nacked_at,
        )
        self.staging.publish(batch.current_attempt, chunks)
        self.fault("staged.confirmed")

    def _is_too_old(self, batch: Batch, began_s: float) -> bool:
        """Return whether delays are stale; each abandoned attempt doubles the limit (ADR 0003)."""
        return self.clock.monotonic_s() - began_s > _AGE_LIMIT_S * self._timeout_factor(batch)

    def _timeout_factor(self, batch: Batch) -> float:
        return float(2 ** self._abandoned.get(batch.id, 0))

    def _abandon(self, batch: Batch, event: Event) -> Batch:
        batch = self.batches.advance(batch, event, self.lease)
        self._abandoned[batch.id] = self._abandoned.get(batch.id, 0) + 1
        self.fault("staged.abandoned")
        return batch

    def _await_all(self, attempt: Attempt, rows: frozenset[int], timeout_s: float) -> bool:
        ends_s = self.clock.monotonic_s() + timeout_s
        self._account_for_others(attempt)
        while not self._is_complete(attempt, rows):
            if (remaining_s := ends_s - self.clock.monotonic_s()) <= 0:
                return False
            self.staging.wait_for_event(remaining_s)
            self._account_for_others(attempt)
        return True

    def _process_deliveries(self, attempt: Attempt) -> None:
        self._note_receipts()
        self._account_for_others(attempt)

    def _account_for_others(self, attempt: Attempt) -> None:
        for other in self.staging.unacked():
            if other != attempt:
                self._account_for(other)

    def _is_complete(self, attempt: Attempt, rows: frozenset[int]) -> bool:
        """Return whether all of an attempt is unacked here, the receipt included."""
        mine = self.staging.unacked().get(attempt)
        if mine is None or len(mine.rows) < len(rows):
            return False
        if mine.rows != rows:
            raise HandOverDoubtful(
                f"batch {attempt.batch}: the staging queue contains rows of attempt "
                f"{attempt.number} that the ledger does not expect; nothing was moved"
            )
        return mine.has_receipt

    def _account_for(self, other: Attempt) -> None:
        batch = self._find_batch(other.batch)
        if other.number > batch.attempt:
            raise HandOverDoubtful(
                f"the staging queue contains attempt {other.number} of batch {other.batch}, but "
                f"the ledger is at attempt {batch.attempt}: was the database restored or cloned? "
                "Nothing was moved"
            )
        if batch.state in _UNRESOLVED and self._is_redelivered(batch):
            batch = self.batches.advance(batch, Event.ALL_REDELIVERED, self.lease)
        if other.number < batch.attempt:
            self.staging.discard(other)
        elif batch.lane != self.lease.lane or batch.state is BatchState.HANDED_OVER:
            self.staging.disown(other)  # a nacked attempt left as a whole: this is a copy

    def _remove_strays(self) -> None:
        """Ack what is provably waste; move what is not the lane's to the poison queue."""
        for attempt in tuple(self.staging.unacked()):
            self._account_for(attempt)
        self.staging.move_strays()

    def _is_redelivered(self, batch: Batch) -> bool:
        unacked = self.staging.unacked().get(batch.current_attempt)
        if unacked is None:
            return False
        rows = {row.row_index for row in self.batches.rows(batch)}
        return unacked.has_receipt and set(unacked.rows) == rows

    def _find_batch(self, batch_id: BatchId) -> Batch:
        batch = self.batches.find(batch_id)
        if batch is None:
            raise HandOverDoubtful(
                f"the staging queue contains messages of batch {batch_id}, which this ledger "
                "never had: was the database restored or cloned? Nothing was moved"
            )
        return batch

    def _await_receipts(self, allowed: int) -> None:
        self._note_receipts()  # a receipt that contradicts the ledger must raise here
        while len(self._without_receipt) > allowed:
            self.guard()
            self.staging.wait_for_event(1.0)
            self._note_receipts()
            self.staging.move_strays()
            self._give_up_overdue_commits()

    def _note_receipts(self) -> None:
        for attempt, ago_s in tuple(self.staging.receipts().items()):
            self._note_receipt(attempt, arrived_s=self.clock.monotonic_s() - ago_s)
            self.staging.ack_receipt(attempt)

    def _note_receipt(self, attempt: Attempt, *, arrived_s: float) -> None:
        batch = self._find_batch(attempt.batch)
        if batch.attempt != attempt.number or batch.state not in _MAY_HAVE_RECEIPT:
            raise HandOverDoubtful(
                f"attempt {attempt.number} of batch {batch.id} was committed, but in the ledger "
                f"it is {batch.state} in attempt {batch.attempt}; find out why before anything is "
                "sent"
            )
        if batch.state in _UNRESOLVED:
            self.fault("staged.receipt")
            batch = self.batches.advance(batch, Event.RECEIPT, self.lease)
            commit = self._without_receipt.get(attempt)
            began_s = None if commit is None else commit.began_s
            # a doubtful batch: its receipt was no longer awaited
            rows = len(self.batches.rows(batch)) if commit is None else commit.rows
            seconds = None if began_s is None else arrived_s - began_s
            self._handed_over.append((batch, rows, seconds))
            self.max_without_receipt = MAX_WITHOUT_RECEIPT
            self.fault("staged.handed_over")
        self._without_receipt.pop(attempt, None)

    def _has_receipt(self, attempt: Attempt) -> bool:
        return attempt not in self._without_receipt

    @property
    def receipts_are_late(self) -> bool:
        return self._longest_wait_s() > _USUAL_S

    def _longest_wait_s(self) -> float:
        now_s = self.clock.monotonic_s()
        return now_s - min((each.since_s for each in self._without_receipt.values()), default=now_s)

    def late_receipt(self) -> str | None:
        """Describe the commit that has waited longest; None: none has waited for long."""
        waits_s = self._longest_wait_s()
        if waits_s < _LATE_S:
            return None
        attempt = min(self._without_receipt, key=lambda each: self._without_receipt[each].since_s)
        return (
            f"no receipt for batch {attempt.batch} for {waits_s:.0f} s, waiting up to "
            f"{self.receipt_deadline_s:g} s; if a broker node failed, the broker retries after "
            "3 min"
        )

    def _rebind_if_late(self) -> None:
        """Declare the bindings again when a receipt is late: a level may have been recreated."""
        now_s = self.clock.monotonic_s()
        late = self.late_receipt()
        if late is None or now_s - self._bound_s < _BIND_EVERY_S:
            return
        self._bound_s = now_s
        detail = "the bindings to the levels and to the receipts were declared again"
        try:
            self.staging.bind_again()
        except TargetError as exc:
            detail = str(exc)
        _log.warning(
            "a receipt is late",
            extra={
                "action": "receipt_late",
                "lane": self.lease.lane,
                "waits_for": late,
                "detail": detail,
            },
        )

    def _give_up_overdue_commits(self) -> None:
        self._rebind_if_late()
        now_s = self.clock.monotonic_s()
        for attempt, commit in tuple(self._without_receipt.items()):
            if attempt != self._resolving and now_s - commit.since_s > self.receipt_deadline_s:
                del self._without_receipt[attempt]
                self.batches.advance(self._find_batch(attempt.batch), Event.GIVE_UP, self.lease)
                raise ReceiptMissing(
                    f"batch {attempt.batch}: no receipt within {self.receipt_deadline_s:g} s; the "
                    "batch is doubtful (`migrator db resolve`), and batches go one by one until a "
                    "receipt comes. Check that the router is bound to the delay levels."
                )
