"""Staged hand-over: gather a pass in a queue of our own, then move all of it or nothing.

The rules, each of which a crash test would find missing:

* the attempt is raised and committed before the first publish of a pass;
* complete means the exact set of row indexes plus the receipt, never a count;
* ``committing`` is recorded before the one nack that dead-letters the pass;
* a commit is believed on one of two proofs only: the receipt came through the router, or the
  whole pass was redelivered. An empty queue proves nothing;
* what is held of a lower attempt than the ledger's is waste and is acknowledged away; a batch
  or an attempt that the ledger does not know means a restored or cloned database: stop.

Source: design section 5.2; docs/adr/0001-hand-over-protocol.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final

from migrator.errors import ClockInDoubt, HandOverDoubtful, TargetError
from migrator.handover.ports import Staging
from migrator.handover.prepare import Prepared, at_half, with_delays
from migrator.ledger.states import BatchState, Event
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId

_log = logging.getLogger(__name__)

MAX_WITHOUT_RECEIPT: Final = 2
"""Batches whose receipt may be on its way; more would hide a router that does not route."""
COMPLETE_TIMEOUT_S: Final = 30.0
"""How long a confirmed pass may take to come back to our consumer before it is given up."""
_AGE_LIMIT_S: Final = 1.0
_USUAL_S: Final = 1.0
_LATE_S: Final = 10.0
"""A receipt that takes longer is told of, and may have no way: all is bound again."""
_BIND_EVERY_S: Final = 30.0

_UNRESOLVED: Final = (BatchState.COMMITTING, BatchState.DOUBTFUL)
_MAY_HAVE_RECEIPT: Final = (*_UNRESOLVED, BatchState.HANDED_OVER, BatchState.RECALLED)


class StagedHandOver:
    """Hands over the staged batches of one lane over one link; dies with the link."""

    def __init__(
        self,
        *,
        batches: Batches,
        clock: Clock,
        staging: Staging,
        lease: Lease,
        receipt_deadline_s: float,
        fault: FaultPoint,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """Use *staging* until its link is gone.

        *guard* is called again and again while receipts are waited for; it raises when that must
        end, and may settle receipts meanwhile.
        """
        self._guard = guard
        self._batches = batches
        self._clock = clock
        self._staging = staging
        self._lease = lease
        self._receipt_deadline_s = receipt_deadline_s
        self._fault = fault
        self._without_receipt: dict[Attempt, float] = {}
        self._bound_s = float("-inf")
        self._resolving: Attempt | None = None
        self._row_counts: dict[Attempt, int] = {}
        self._began_s: dict[Attempt, float] = {}
        self._handed_over: list[tuple[Batch, int, float | None]] = []
        self._abandoned: dict[BatchId, int] = {}

    def has_open_commits(self) -> bool:
        """Return whether a receipt is still on its way."""
        return bool(self._without_receipt)

    def hand_over(self, prepared: Prepared) -> bool:
        """Take one pass up to its commit; return False when it was too slow and abandoned.

        The receipt is not awaited here; ``settled`` tells of it later. An abandoned batch is
        ``claimed`` again and nothing of it can reach a level.

        Raises:
            TargetUnavailable: The link is gone; the batch's state says where it stopped.
            HandOverDoubtful: The broker holds what the ledger never sent.
            LeaseLost: Stop at once.
        """
        self._note_receipts()  # one that contradicts the ledger must stop us here
        self._await_receipts(MAX_WITHOUT_RECEIPT - 1)
        batch = self._batches.advance(prepared.batch, Event.BEGIN_STAGING, self._lease)
        self._fault("staged.begun")
        began_s = self._clock.monotonic_s()
        self._publish(batch, prepared)
        batch = self._batches.advance(batch, Event.ALL_CONFIRMED, self._lease)
        self._fault("staged.staged")
        rows = prepared.rows
        complete = self._staging.wait(
            lambda: self._is_whole(batch.current_attempt, rows),
            COMPLETE_TIMEOUT_S * self._patience(batch),
        )
        self._note_receipts()
        if not complete or self._is_too_old(batch, began_s):
            return self._abandon(batch, Event.ABANDON)
        batch = self._batches.advance(batch, Event.BEGIN_COMMIT, self._lease)
        self._fault("staged.committing")
        if self._is_too_old(batch, began_s):
            return self._abandon(batch, Event.ALL_REDELIVERED)  # we hold all: no nack was sent
        self._staging.commit(batch.current_attempt, rows)
        self._fault("staged.nacked")
        self._without_receipt[batch.current_attempt] = self._clock.monotonic_s()
        self._row_counts[batch.current_attempt] = len(rows)
        self._began_s[batch.current_attempt] = began_s
        return True

    def settled(self, wait_s: float) -> list[tuple[Batch, int, float | None]]:
        """Return batches handed over since the last call, each with the rows that went.

        With each come the seconds from its first publish to its receipt, during which the rows'
        delays did not run; None for a commit of an earlier link.

        Waits a little for the receipts still out; commits past their deadline become doubtful.

        Raises:
            HandOverDoubtful: A receipt contradicts the ledger.
        """
        self._staging.wait(lambda: not self._note_receipts(), wait_s)
        self._give_up_overdue()
        done, self._handed_over = self._handed_over, []
        return done

    def resolve(self, batch: Batch, rows: frozenset[int]) -> Batch:
        """Find out whether a ``committing`` batch of an earlier process was committed.

        Returns it ``handed_over``, ``claimed`` (the nack never happened), or ``doubtful`` when
        neither proof came before the deadline.
        """
        batch = self._known(batch.id)
        if batch.state not in _UNRESOLVED:
            return batch
        attempt = self._resolving = batch.current_attempt
        self._row_counts[attempt] = len(rows)
        self._without_receipt[attempt] = self._clock.monotonic_s()
        ends_s = self._clock.monotonic_s() + self._receipt_deadline_s
        while self._clock.monotonic_s() < ends_s and not self._staging.wait(
            lambda: self._is_committed(attempt) or self._is_whole(attempt, rows), 1.0
        ):
            self._guard()
            self._mind_late_receipts()
        self._resolving = None
        if self._is_committed(attempt):
            return self._known(batch.id)
        del self._without_receipt[attempt]
        batch = self._known(batch.id)
        if batch.state not in _UNRESOLVED:
            return batch  # found to be back while leftovers of its older passes were looked at
        event = Event.ALL_REDELIVERED if self._is_whole(attempt, rows) else Event.GIVE_UP
        batch = self._batches.advance(batch, event, self._lease)
        self._fault("staged.resolved")
        return batch

    def _publish(self, batch: Batch, prepared: Prepared) -> None:
        messages = with_delays(prepared.messages, clock=self._clock, least_delay_s=1)
        count = len(prepared.messages)
        halfway = at_half(messages, count, lambda: self._fault("staged.publishing"))
        self._staging.publish(batch.current_attempt, halfway)
        self._fault("staged.confirmed")

    def _is_too_old(self, batch: Batch, began_s: float) -> bool:
        """Return whether the delays in the routing keys are too stale to be committed.

        The limit doubles with each pass abandoned in a row: on a machine that cannot do better,
        late beats never (docs/adr/0003).
        """
        return self._clock.monotonic_s() - began_s > _AGE_LIMIT_S * self._patience(batch)

    def _patience(self, batch: Batch) -> float:
        """Return by how much limits are stretched for a batch that was too slow before."""
        return float(2 ** self._abandoned.get(batch.id, 0))

    def _abandon(self, batch: Batch, event: Event) -> bool:
        self._batches.advance(batch, event, self._lease)
        self._abandoned[batch.id] = self._abandoned.get(batch.id, 0) + 1
        self._fault("staged.abandoned")
        return False

    def _is_whole(self, attempt: Attempt, rows: frozenset[int]) -> bool:
        """Return whether all of a pass is held, after throwing out what is provably waste."""
        held = self._staging.held()
        for other in held:
            if other != attempt:
                self._account_for(other)
        mine = held.get(attempt)
        if mine is None:
            return False
        if len(mine.rows) < len(rows):
            return False
        if mine.rows != rows:
            raise HandOverDoubtful(
                f"batch {attempt.batch}: the staging queue holds rows of attempt "
                f"{attempt.number} that the ledger does not send; nothing was moved"
            )
        return mine.has_receipt

    def _account_for(self, other: Attempt) -> None:
        batch = self._known(other.batch)
        if other.number > batch.attempt:
            raise HandOverDoubtful(
                f"the staging queue holds attempt {other.number} of batch {other.batch}, the "
                f"ledger knows {batch.attempt}: was the database restored or cloned? "
                "nothing was moved"
            )
        if batch.state in _UNRESOLVED and self._is_all_back(batch):
            batch = self._batches.advance(batch, Event.ALL_REDELIVERED, self._lease)
        if other.number < batch.attempt:
            self._staging.discard(other)

    def _is_all_back(self, batch: Batch) -> bool:
        held = self._staging.held().get(batch.current_attempt)
        if held is None:
            return False
        rows = {row.row_index for row in self._batches.rows(batch)}
        return held.has_receipt and set(held.rows) == rows

    def _known(self, batch_id: BatchId) -> Batch:
        batch = self._batches.find(batch_id)
        if batch is None:
            raise HandOverDoubtful(
                f"the broker holds messages of batch {batch_id}, which this ledger never had: "
                "was the database restored or cloned? nothing was moved"
            )
        return batch

    def _await_receipts(self, allowed: int) -> None:
        """Wait until at most *allowed* commits are without receipt; overdue ones are doubtful."""
        while len(self._without_receipt) > allowed:
            self._guard()
            self._staging.wait(lambda: self._note_receipts() <= allowed, timeout_s=1.0)
            self._give_up_overdue()

    def _note_receipts(self) -> int:
        """Record every receipt that is here; return how many commits are still without one."""
        for attempt, ago_s in tuple(self._staging.receipts().items()):
            self._note_receipt(attempt, arrived_s=self._clock.monotonic_s() - ago_s)
            self._staging.settle_receipt(attempt)
        return len(self._without_receipt)

    def _note_receipt(self, attempt: Attempt, *, arrived_s: float) -> None:
        batch = self._known(attempt.batch)
        if batch.attempt != attempt.number or batch.state not in _MAY_HAVE_RECEIPT:
            raise HandOverDoubtful(
                f"attempt {attempt.number} of batch {batch.id} was committed, but the ledger "
                f"has it {batch.state} in attempt {batch.attempt}; look before anything is sent"
            )
        if batch.state in _UNRESOLVED:
            self._fault("staged.receipt")
            batch = self._batches.advance(batch, Event.RECEIPT, self._lease)
            began_s = self._began_s.pop(attempt, None)
            seconds = None if began_s is None else arrived_s - began_s
            self._handed_over.append((batch, self._row_counts.pop(attempt, 0), seconds))
            self._fault("staged.handed_over")
        self._without_receipt.pop(attempt, None)

    def _is_committed(self, attempt: Attempt) -> bool:
        """Return whether the pass needs no receipt any more, after looking for new ones."""
        self._note_receipts()
        return attempt not in self._without_receipt

    @property
    def receipts_are_late(self) -> bool:
        """Whether a commit has waited for its receipt for longer than usual."""
        return self._waits_s() > _USUAL_S

    def _waits_s(self) -> float:
        now_s = self._clock.monotonic_s()
        return now_s - min(self._without_receipt.values(), default=now_s)

    def late_receipt(self) -> str | None:
        """Say which commit has been without its receipt for long, and until when it may be."""
        now_s = self._clock.monotonic_s()
        attempt, since_s = min(
            self._without_receipt.items(), key=itemgetter(1), default=(None, now_s)
        )
        if attempt is None or now_s - since_s < _LATE_S:
            return None
        since = self._shown_now() - timedelta(seconds=now_s - since_s)
        until = since + timedelta(seconds=self._receipt_deadline_s)
        return (
            f"no receipt of batch {attempt.batch} since {since:%H:%M:%S} UTC, waiting until "
            f"{until:%H:%M:%S}; after a broker node failed, the broker tries again after 3 min"
        )

    def _shown_now(self) -> datetime:
        """Return the time for people; receipts are waited for while the clock is in doubt, too."""
        try:
            return self._clock.now()
        except ClockInDoubt as exc:
            return exc.earliest

    def _mind_late_receipts(self) -> None:
        """Bind all again when a receipt is late: a level or the router may have been made anew."""
        now_s = self._clock.monotonic_s()
        late = self.late_receipt()
        if late is None or now_s - self._bound_s < _BIND_EVERY_S:
            return
        self._bound_s = now_s
        detail = "all that leads to the levels and to the receipts is bound again"
        try:
            self._staging.bind_again()
        except TargetError as exc:
            detail = str(exc)
        _log.warning(
            "a receipt is late",
            extra={
                "action": "receipt_late",
                "lane": self._lease.lane,
                "waits_for": late,
                "detail": detail,
            },
        )

    def _give_up_overdue(self) -> None:
        self._mind_late_receipts()
        now_s = self._clock.monotonic_s()
        for attempt, since_s in tuple(self._without_receipt.items()):
            if attempt != self._resolving and now_s - since_s > self._receipt_deadline_s:
                del self._without_receipt[attempt]
                self._batches.advance(self._known(attempt.batch), Event.GIVE_UP, self._lease)
                raise HandOverDoubtful(
                    f"no receipt for batch {attempt.batch} in {self._receipt_deadline_s:g} s; "
                    "nothing more is sent this way: does the router still lead to the levels?"
                )
