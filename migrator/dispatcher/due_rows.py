"""Claimed rows of one session: looked for, put into the outbox, and settled once answered.

Rules of this file: what is committed and not in hand (an earlier session's, or one whose answer
was lost) is looked for before anything new is claimed; a batch in hand is settled once, when each
of its rows has an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from migrator.dispatcher.incoming import Begin, Incoming, lot
from migrator.dispatcher.outbox import Item, Outbox, StoredRow
from migrator.dispatcher.parts import DispatcherParts
from migrator.dispatcher.polling import Claimed, Sending
from migrator.dispatcher.ports import Delivery
from migrator.dispatcher.setback import Setback
from migrator.dispatcher.watch import Watch
from migrator.errors import Interrupted, LeaseLost, MigratorError
from migrator.ledger.work import Lease, Pending
from migrator.nservicebus.recoverability import Failure
from migrator.nservicebus.satellites import NotUnderstood, read_control
from migrator.nservicebus.timeouts import BatchId, TimeoutId

_MOST_BATCHES: Final = 8
"""Claimed and not settled; more would only wait here instead of in the store."""
_FOLD_EVERY_S: Final = 60.0
_FOLD_AGAIN_S: Final = 5.0
"""One call forgets so much and no more."""


@dataclass(frozen=True, slots=True)
class _Claiming:
    """A claim under way, with the control messages that asked for it."""

    pending: Pending[Sequence[Claimed]]
    deliveries: Sequence[Delivery] = ()


class DueRows:
    """The batches that one session has in hand."""

    def __init__(
        self,
        parts: DispatcherParts,
        *,
        lease: Lease,
        outbox: Outbox,
        watch: Watch,
        incoming: Incoming,
        begin: Begin,
    ) -> None:
        """Claim under *lease* into *outbox*; *incoming* settles control messages."""
        self._parts = parts
        self._lease = lease
        self._outbox = outbox
        self._watch = watch
        self._incoming = incoming
        self._begin = begin
        self._control: deque[Delivery] = deque()
        self._claim: _Claiming | None = None
        self._settling: dict[BatchId, Pending[None]] = {}
        self._active: set[BatchId] = set()
        self._may_have_left = True
        self._claims_in_vain = False
        """The last claim failed; that what is left can be looked for does not mend it."""
        self._setback = Setback()
        self._next_poll_s = float("-inf")
        self._next_fold_s = parts.clock.monotonic_s() + _FOLD_EVERY_S
        self.has_polled = False
        """The store has answered this session."""

    @property
    def error(self) -> MigratorError | None:
        """What keeps the store from doing its part; it is tried again."""
        return self._setback.error

    @property
    def pending(self) -> Sequence[Pending[object]]:
        """What the background is working on."""
        claim = () if self._claim is None else (self._claim.pending,)
        return (*claim, *self._settling.values())

    def is_busy(self, *, may_take: bool) -> bool:
        """Return whether anything is under way; while draining, what cannot be done is left."""
        if self._active or (self._claim is not None and not may_take):
            return True
        return bool(self._control) if may_take else self._may_have_left and self.error is None

    @property
    def next_poll_in_s(self) -> float | None:
        """When to look next; None: something else has to happen first."""
        if self._claim is not None or self.error is not None or len(self._active) >= _MOST_BATCHES:
            return None
        return max(self._next_poll_s - self._now_s(), 0.0)

    def add_control(self, delivery: Delivery) -> None:
        """Have the row dispatched that a control message names."""
        self._control.append(delivery)

    def finish(self) -> None:
        """Take up what was claimed, and forget what was settled.

        Raises:
            LeaseLost: The lane is somebody else's.
        """
        self._finish_claim()
        self._finish_settling()

    def settle_answered(self, items: Sequence[Item]) -> None:
        """Settle the batches of *items* of which every row has an answer now."""
        for batch in {item.batch for item in items if isinstance(item, StoredRow)}:
            self._settle_if_answered(self._parts.sending[batch])

    def begin(self, *, may_take: bool) -> None:
        """Begin with the next claim, unless one is under way or just failed."""
        if self._claim is not None or not self._setback.may_try(self._now_s()):
            return
        if self._may_have_left:
            self._begin_looking_back()
        elif not may_take or len(self._active) >= _MOST_BATCHES:
            return
        elif self._control:
            self._begin_control()
        elif self._now_s() >= self._next_poll_s:
            self._claim = _Claiming(self._begin(self._poll))

    def _begin_looking_back(self) -> None:
        """Take up what is claimed and in nobody's hands: an earlier session's, or a lost answer."""
        parts, lease, active = self._parts, self._lease, frozenset(self._active)
        answered = {batch: frozenset(known.answered) for batch, known in parts.sending.items()}

        def look() -> Sequence[Claimed]:
            return parts.poller.left_open(lease, answered=answered, but_for=active)

        self._claim = _Claiming(self._begin(look))

    def _poll(self) -> Sequence[Claimed]:
        """Run in the background."""
        self._watch.read()
        if self._now_s() >= self._next_fold_s:
            forgotten = self._parts.poller.fold(self._lease)
            self._next_fold_s = self._now_s() + (_FOLD_AGAIN_S if forgotten else _FOLD_EVERY_S)
        return self._parts.poller.claim_due(self._lease)

    def _begin_control(self) -> None:
        """Claim the rows that control messages name; what is not due is the poller's."""
        ids: dict[TimeoutId, None] = {}
        understood: list[Delivery] = []
        for delivery in lot(self._control):
            try:
                ids[read_control(delivery.message)] = None
                understood.append(delivery)
            except NotUnderstood as exc:
                failure = Failure(kind="migrator.NotUnderstood", text=str(exc), is_final=True)
                self._incoming.fail(delivery, failure)
        if not ids:
            return
        poller, lease = self._parts.poller, self._lease

        def claim() -> Sequence[Claimed]:
            claimed = poller.claim_these(tuple(ids), lease)
            return () if claimed is None else (claimed,)

        self._claim = _Claiming(self._begin(claim), understood)

    def _finish_claim(self) -> None:
        if self._claim is None or not self._claim.pending.done():
            return
        claim, self._claim = self._claim, None
        try:
            found = claim.pending.result()
        except (LeaseLost, Interrupted):
            raise
        except MigratorError as exc:
            self._control.extendleft(reversed(claim.deliveries))
            self._claims_in_vain = self._claims_in_vain or not self._may_have_left
            self._look_back_after(exc)
            return
        self._claims_in_vain = self._claims_in_vain and self._may_have_left
        if not self._claims_in_vain:
            self._setback.clear()
        for claimed in found:
            self._begin_sending(claimed)
        if self._may_have_left:
            self._has_looked_back()
        elif claim.deliveries:
            self._parts.fault("control.claimed")
            self._incoming.settle(claim.deliveries)
        else:
            self._has_polled(found)

    def _look_back_after(self, exc: MigratorError) -> None:
        """Try again after a pause; whatever was committed before *exc* has to be found first."""
        self._setback.note(exc, now_s=self._now_s())
        self._may_have_left = True

    def _has_looked_back(self) -> None:
        self._may_have_left = False
        for batch in [known for known in self._parts.sending if known not in self._active]:
            del self._parts.sending[batch]  # settled after all, or another owner did it

    def _has_polled(self, found: Sequence[Claimed]) -> None:
        if not any(claimed.was_full for claimed in found):
            self._next_poll_s = self._now_s() + self._parts.poll_every.total_seconds()
        self.has_polled = True

    def _begin_sending(self, claimed: Claimed) -> None:
        """Put a claimed batch's rows into the outbox, but for those already sent."""
        sending = self._parts.sending.setdefault(
            claimed.batch.id, Sending(batch=claimed.batch, begun_s=self._now_s())
        )
        sending.batch = claimed.batch
        sending.waiting = {row.row.row_index for row in claimed.rows} - sending.answered
        self._active.add(claimed.batch.id)
        for row in claimed.rows:
            if row.row.row_index in sending.waiting:
                self._outbox.add(row, due_at=row.message.due_at)
        self._settle_if_answered(sending)

    def _settle_if_answered(self, sending: Sending) -> None:
        batch = sending.batch.id
        if sending.waiting or batch in self._settling:
            return
        poller, lease = self._parts.poller, self._lease
        self._settling[batch] = self._begin(lambda: poller.settle(sending, lease))

    def _finish_settling(self) -> None:
        for batch, pending in [*self._settling.items()]:
            if not pending.done():
                continue
            del self._settling[batch]
            self._active.discard(batch)
            try:
                pending.result()
            except (LeaseLost, Interrupted):
                raise
            except MigratorError as exc:
                self._look_back_after(exc)  # what was sent stays known
            else:
                self._count(self._parts.sending.pop(batch, None))

    def _count(self, sending: Sending | None) -> None:
        if sending is not None:
            sent = len(sending.answered) - len(sending.returned) - len(sending.unfit)
            self._parts.settled(max(sent, 0), self._now_s() - sending.begun_s)

    def _now_s(self) -> float:
        return self._parts.clock.monotonic_s()
