"""One endpoint's dispatcher over one link: take in, claim, send when due, settle.

Rules of this file: the thread that runs a session serves the broker and nothing else; whatever
asks the database or makes a connection runs in the background. What is delivered is acknowledged
only when it is stored, claimed, or confirmed elsewhere. Whatever ends a session, the next one
begins with what the ledger has left open, and knows which of it this process has sent already.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from migrator.domain.recoverability import Failure
from migrator.domain.routing import DelaysVersion
from migrator.domain.satellites import NotUnderstood, read_control
from migrator.domain.timeouts import BatchId, QueueName, TimeoutId
from migrator.engine.dispatcher.incoming import Incoming, lot
from migrator.engine.dispatcher.intake import TakeIn
from migrator.engine.dispatcher.outbox import (
    Copy,
    Forwarded,
    Item,
    Outbox,
    PassedOn,
    StoredRow,
    letters,
    sorted_out,
)
from migrator.engine.dispatcher.polling import Claimed, Poller, Sending
from migrator.engine.dispatcher.trouble import Recoverability, Trouble
from migrator.engine.dispatcher.watch import Watch
from migrator.errors import TargetError, TargetUnavailable
from migrator.ports import (
    Answers,
    Background,
    Clock,
    Delivery,
    FaultPoint,
    Lease,
    Letter,
    Pending,
    SatelliteLink,
    T,
)

_log = logging.getLogger(__name__)

_SLICE: Final = timedelta(milliseconds=100)
"""Longest sleep: a lost lease or a wish to stop is noticed after this."""
_SLICE_IN_WORK: Final = timedelta(milliseconds=20)
"""Longest sleep while the background works; it wakes us when it is done."""
_MOST_BATCHES: Final = 8
"""Claimed and not settled; more would only wait here instead of in the store."""
_FOLD_EVERY_S: Final = 60.0
_FOLD_AGAIN_S: Final = 5.0
"""One call forgets so much and no more."""
_AGAIN_AFTER: Final = timedelta(seconds=5)
"""What the broker refused, and a copy that no queue took, is tried again after this."""


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
    sending: dict[BatchId, Sending] = field(default_factory=dict)
    """Batches that are being sent, by what this process knows."""


@dataclass(frozen=True, slots=True)
class _Claiming:
    """A claim under way, with the control messages that asked for it."""

    pending: Pending[Claimed | None]
    deliveries: Sequence[Delivery] = ()


class DispatcherSession:
    """The work of one dispatcher over one link."""

    def __init__(
        self,
        parts: DispatcherParts,
        *,
        lease: Lease,
        link: SatelliteLink,
        control_queue: QueueName | None,
        guard: Callable[[], None],
    ) -> None:
        """Work under *lease* over *link*; *guard* raises when that must end at once."""
        self._parts = parts
        self._lease = lease
        self._link = link
        self._control_queue = control_queue
        self._guard = guard
        self._watch = Watch(parts.clock)
        self._outbox = Outbox()
        self._incoming = Incoming(
            parts.take_in,
            lease=lease,
            link=link,
            trouble=Trouble(parts.recoverability, frame_max_bytes=link.frame_max_bytes),
            outbox=self._outbox,
            watch=self._watch,
            begin=lambda work: self._begin_work(parts.storing, work),
            fault=parts.fault,
        )
        self._control: deque[Delivery] = deque()
        self._claim: _Claiming | None = None
        self._settling: dict[BatchId, Pending[None]] = {}
        self._next_poll_s = float("-inf")
        self._next_fold_s = parts.clock.monotonic_s() + _FOLD_EVERY_S
        self._last_busy_s = parts.clock.monotonic_s()
        self.has_polled = False
        """The store has answered this session."""

    # ── from outside ────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Take up what was left open, then begin to consume."""
        parts = self._parts
        parts.poller.limit_frames(self._link.frame_max_bytes)
        if parts.take_in is not None:
            parts.take_in.limit_frames(self._link.frame_max_bytes)
        answered = {batch: known.answered for batch, known in parts.sending.items()}
        left = parts.poller.left_open(self._lease, answered=answered)
        still_open = {claimed.batch.id for claimed in left}
        for batch in [known for known in parts.sending if known not in still_open]:
            del parts.sending[batch]  # settled after all, or another owner did it
        for claimed in left:
            self._begin_sending(claimed)
        for queue in (parts.timeouts_queue, self._control_queue):
            if queue is not None:
                self._link.consume(queue, prefetch=parts.prefetch)

    def turn(self, *, may_take: bool) -> bool:
        """Do what can be done now and wait a little; return whether anything is under way.

        Args:
            may_take: False while draining: what is claimed or held is finished, nothing more.
        """
        self._guard()
        self._incoming.finish()
        self._finish_claim()
        self._finish_settling()
        self._sort_deliveries()
        if may_take:
            self._incoming.begin()
            self._begin_claim()
        self._send()
        is_busy = self._is_busy(may_take=may_take)
        self._link.idle(self._rest(may_take=may_take).total_seconds())
        return is_busy

    def is_idle_for(self, seconds: float) -> bool:
        """Return whether there was nothing to do at all for so long."""
        return self._parts.clock.monotonic_s() - self._last_busy_s >= seconds

    @property
    def doing(self) -> str:
        """What is going on, in a few words."""
        if (blocked := self._link.blocked_reason) is not None:
            return f"throttled: {blocked}"
        held = len(self._parts.poller.held)
        more = f"; {held} destinations cannot be reached" if held else ""
        return f"dispatching: {len(self._outbox)} wait for their time{more}"

    def close(self) -> None:
        """Let the background finish, so that the next session finds everything in the ledger."""
        claim = self._claim.pending if self._claim else None
        for each in (self._incoming.pending, claim, *self._settling.values()):
            if each is None:
                continue
            try:
                each.result()
            except Exception:
                _log.warning(
                    "background work failed; what it was about is in the store or in its queue",
                    extra={"action": "dispatcher_work_failed", "lane": self._lease.lane},
                    exc_info=True,
                )

    # ── messages that come in ───────────────────────────────────────────────────────────────

    def _sort_deliveries(self) -> None:
        for delivery in self._link.received():
            self._parts.fault("intake.received")
            if delivery.queue == self._control_queue:
                self._control.append(delivery)
            else:
                self._incoming.add(delivery)

    # ── rows that get due ───────────────────────────────────────────────────────────────────

    def _begin_claim(self) -> None:
        if self._claim is not None or len(self._parts.sending) >= _MOST_BATCHES:
            return
        if self._control:
            self._begin_control()
        elif self._parts.clock.monotonic_s() >= self._next_poll_s:
            self._claim = _Claiming(self._begin_work(self._parts.claiming, self._poll))

    def _poll(self) -> Claimed | None:
        """Run in the background."""
        self._watch.read()
        if self._parts.clock.monotonic_s() >= self._next_fold_s:
            forgotten = self._parts.poller.fold(self._lease)
            pause_s = _FOLD_AGAIN_S if forgotten else _FOLD_EVERY_S
            self._next_fold_s = self._parts.clock.monotonic_s() + pause_s
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
        if ids:
            poller, lease = self._parts.poller, self._lease
            work = self._begin_work(
                self._parts.claiming, lambda: poller.claim_these(tuple(ids), lease)
            )
            self._claim = _Claiming(work, understood)

    def _finish_claim(self) -> None:
        if self._claim is None or not self._claim.pending.done():
            return
        claim, self._claim = self._claim, None
        claimed = claim.pending.result()
        self.has_polled = True
        if claimed is not None:
            self._begin_sending(claimed)
        if claim.deliveries:
            self._parts.fault("control.claimed")
            self._incoming.settle(claim.deliveries)
        elif claimed is None or not claimed.was_full:
            every_s = self._parts.poll_every.total_seconds()
            self._next_poll_s = self._parts.clock.monotonic_s() + every_s

    def _begin_sending(self, claimed: Claimed) -> None:
        """Put a claimed batch's rows into the outbox, but for those already sent."""
        sending = self._parts.sending.setdefault(claimed.batch.id, Sending(batch=claimed.batch))
        sending.batch = claimed.batch
        sending.waiting = {row.row.row_index for row in claimed.rows} - sending.answered
        for row in claimed.rows:
            if row.row.row_index in sending.waiting:
                self._outbox.add(row, due_at=row.message.due_at)
        self._settle_if_answered(sending)

    def _settle_if_answered(self, sending: Sending) -> None:
        batch = sending.batch.id
        if sending.waiting or batch in self._settling:
            return
        poller, lease = self._parts.poller, self._lease
        self._settling[batch] = self._begin_work(
            self._parts.claiming, lambda: poller.settle(sending, lease)
        )

    def _finish_settling(self) -> None:
        for batch, pending in [*self._settling.items()]:
            if pending.done():
                del self._settling[batch]
                pending.result()
                self._parts.sending.pop(batch, None)

    # ── messages that leave ─────────────────────────────────────────────────────────────────

    def _send(self) -> None:
        items = self._outbox.take(self._watch.now())
        if not items:
            return
        answers = Answers()
        try:
            self._link.publish(self._letters(items), answers)
        except TargetError:  # perhaps because an exchange is gone: look again before the next try
            routed = (StoredRow, PassedOn)
            names = {item.message.destination for item in items if isinstance(item, routed)}
            self._parts.poller.routes.forget(names)
            raise
        finally:
            self._note(items, answers)
        sent = sorted_out(items, answers)
        self._confirmed(sent.confirmed)
        for item in sent.returned:
            self._returned(item)
        for item in sent.refused:
            self._outbox.add(item, due_at=self._watch.now() + _AGAIN_AFTER)
        for batch in {item.batch for item in items if isinstance(item, StoredRow)}:
            self._settle_if_answered(self._parts.sending[batch])

    def _letters(self, items: Sequence[Item]) -> Iterator[Letter]:
        """Yield the letters of *items*, with a step to be killed at in the middle."""
        half = len(items) // 2
        for letter in letters(items, version=self._parts.version, now=self._watch.now):
            if letter.key == half and any(isinstance(item, StoredRow) for item in items):
                self._parts.fault("dispatch.publishing")
            yield letter

    def _note(self, items: Sequence[Item], answers: Answers) -> None:
        """Remember which rows need not be sent again, also when the link is gone."""
        for key, item in enumerate(items):
            if not isinstance(item, StoredRow):
                continue
            if key in answers.returned:
                self._parts.sending[item.batch].note_returned(item.row)
            elif key in answers.confirmed:
                self._parts.sending[item.batch].note_sent(item.row)

    def _confirmed(self, items: Sequence[Item]) -> None:
        """Acknowledge the deliveries whose message, or copy, is confirmed elsewhere."""
        done: list[Delivery] = []
        for item in items:
            if not isinstance(item, StoredRow):
                self._parts.fault(_step(item))
                done.append(item.delivery)
        self._incoming.settle(done)

    def _returned(self, item: Item) -> None:
        """Deal with a message that no queue took; a stored row was noted already."""
        if isinstance(item, Copy):
            self._copy_returned(item)
        elif not isinstance(item, StoredRow):
            destination = item.message.destination
            self._parts.poller.routes.forget([destination])
            text = f"the broker returned it: nothing is bound for {destination!r}"
            self._incoming.fail(item.delivery, Failure(kind="migrator.Unroutable", text=text))

    def _copy_returned(self, item: Copy) -> None:
        if not item.is_final:  # the next link declares the retry queues again
            raise TargetUnavailable(f"queue {item.queue!r} is gone")
        _log.error(
            "the error queue does not exist; a failed message stays where it is",
            extra={
                "action": "error_queue_missing",
                "error_queue": item.queue,
                "queue": item.delivery.queue,
                "message_id": item.delivery.message.message_id,
            },
        )
        self._outbox.add(item, due_at=self._watch.now() + _AGAIN_AFTER)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def _rest(self, *, may_take: bool) -> timedelta:
        """Return how long there is nothing to do, unless something happens."""
        in_work = self._incoming.pending or self._claim or self._settling
        longest = _SLICE_IN_WORK if in_work else _SLICE
        if may_take and self._claim is None:
            left_s = self._next_poll_s - self._parts.clock.monotonic_s()
            longest = min(longest, timedelta(seconds=max(left_s, 0.0)))
        due_at = self._outbox.next_due_at
        if due_at is not None:
            longest = min(longest, max(due_at - self._watch.now(), timedelta(0)))
        return longest

    def _is_busy(self, *, may_take: bool) -> bool:
        due_at = self._outbox.next_due_at
        # a copy that no queue takes may wait for ever; nobody waits for it
        waits = due_at is not None and due_at - self._watch.now() < _AGAIN_AFTER / 2
        is_busy = bool(
            waits
            or self._parts.sending
            or self._incoming.pending
            or (self._incoming.has_waiting or self._control if may_take else self._claim)
        )
        if is_busy:
            self._last_busy_s = self._parts.clock.monotonic_s()
        return is_busy

    def _begin_work(self, where: Background, work: Callable[[], T]) -> Pending[T]:
        """Begin *work* in the background, and wake the broker's thread when it is done."""

        def then_wake() -> T:
            try:
                return work()
            finally:
                self._link.wake()

        return where.start(then_wake)


def _step(item: PassedOn | Forwarded | Copy) -> str:
    """Return the name of the step between a confirmed message and its acknowledgement."""
    if isinstance(item, Copy):
        return "error.published" if item.is_final else "retry.published"
    return "pass_on.confirmed" if isinstance(item, PassedOn) else "forward.confirmed"
