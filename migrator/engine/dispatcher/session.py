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

from migrator.domain.conversion import Reason
from migrator.domain.recoverability import Failure
from migrator.domain.routing import DelaysVersion
from migrator.domain.satellites import NotUnderstood, read_control
from migrator.domain.timeouts import BatchId, QueueName, TimeoutId
from migrator.engine.dispatcher.blame import Blame
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
from migrator.engine.dispatcher.setback import Setback
from migrator.engine.dispatcher.sparingly import Sparingly
from migrator.engine.dispatcher.trouble import Recoverability, Trouble
from migrator.engine.dispatcher.watch import Watch
from migrator.errors import (
    Interrupted,
    LeaseLost,
    MessageTooLarge,
    MigratorError,
    TargetError,
    TargetUnavailable,
)
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
    Unreachable,
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
"""A copy that no queue took is tried again after this."""
_REFUSED: Final = Unreachable(
    reason=Reason.REFUSED, detail="the broker refused it: its queue is full, or in trouble"
)


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
    sending: dict[BatchId, Sending] = field(default_factory=dict)
    """Batches that are being sent, by what this process knows."""
    blame: Blame = field(default_factory=Blame)


@dataclass(frozen=True, slots=True)
class _Claiming:
    """A claim under way, with the control messages that asked for it."""

    pending: Pending[Sequence[Claimed]]
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
        self._trouble = Trouble(
            parts.recoverability,
            frame_max_bytes=link.frame_max_bytes,
            sparingly=parts.sparingly,
        )
        self._incoming = Incoming(
            parts.take_in,
            lease=lease,
            link=link,
            trouble=self._trouble,
            outbox=self._outbox,
            watch=self._watch,
            begin=lambda work: self._begin_work(parts.storing, work),
            fault=parts.fault,
        )
        self._control: deque[Delivery] = deque()
        self._claim: _Claiming | None = None
        self._settling: dict[BatchId, Pending[None]] = {}
        self._active: set[BatchId] = set()
        self._may_have_left = True
        self._claims = Setback()
        self._next_poll_s = float("-inf")
        self._next_fold_s = parts.clock.monotonic_s() + _FOLD_EVERY_S
        self._last_busy_s = parts.clock.monotonic_s()
        self.has_polled = False
        """The store has answered this session; only then anything is consumed."""

    # ── from outside ────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Fit what is converted to this link; the first turns take up what was left open."""
        self._parts.poller.limit_frames(self._link.frame_max_bytes)
        if self._parts.take_in is not None:
            self._parts.take_in.limit_frames(self._link.frame_max_bytes)

    def turn(self, *, may_take: bool) -> bool:
        """Do what can be done now and wait a little; return whether anything is under way.

        Args:
            may_take: False while draining: what is claimed or held is finished, nothing more.

        Raises:
            LeaseLost, Interrupted: The session must end.
            TargetError: The link is gone, or of no use.
        """
        self._guard()
        self._incoming.finish(now_s=self._now_s())
        self._finish_claim()
        self._finish_settling()
        self._sort_deliveries()
        if may_take:
            self._incoming.begin(now_s=self._now_s())
        self._begin_claim(may_take=may_take)
        self._send()
        is_busy = self._is_busy(may_take=may_take)
        self._link.idle(self._rest(may_take=may_take).total_seconds())
        return is_busy

    @property
    def problem(self) -> MigratorError | None:
        """What keeps store or broker from doing their part; it is tried again."""
        return self._claims.error or self._incoming.setback.error

    def is_idle_for(self, seconds: float) -> bool:
        """Return whether there was nothing to do at all for so long."""
        return self._now_s() - self._last_busy_s >= seconds

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
            except Exception as exc:  # whatever it was, the next session begins anew
                _log.warning(
                    "background work failed; what it was about is in the store or in its queue",
                    extra={
                        "action": "dispatcher_work_failed",
                        "lane": self._lease.lane,
                        "error": str(exc),
                    },
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

    def _begin_claim(self, *, may_take: bool) -> None:
        if self._claim is not None or not self._claims.may_try(self._now_s()):
            return
        if self._may_have_left:
            self._begin_looking_back()
        elif not may_take or len(self._active) >= _MOST_BATCHES:
            return
        elif self._control:
            self._begin_control()
        elif self._now_s() >= self._next_poll_s:
            self._claim = _Claiming(self._begin_work(self._parts.claiming, self._poll))

    def _begin_looking_back(self) -> None:
        """Take up what is claimed and in nobody's hands: an earlier session's, or a lost answer."""
        parts, lease, active = self._parts, self._lease, frozenset(self._active)
        answered = {batch: frozenset(known.answered) for batch, known in parts.sending.items()}

        def look() -> Sequence[Claimed]:
            return parts.poller.left_open(lease, answered=answered, but_for=active)

        self._claim = _Claiming(self._begin_work(parts.claiming, look))

    def _poll(self) -> Sequence[Claimed]:
        """Run in the background."""
        self._watch.read()
        if self._now_s() >= self._next_fold_s:
            forgotten = self._parts.poller.fold(self._lease)
            self._next_fold_s = self._now_s() + (_FOLD_AGAIN_S if forgotten else _FOLD_EVERY_S)
        claimed = self._parts.poller.claim_due(self._lease)
        return () if claimed is None else (claimed,)

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

        self._claim = _Claiming(self._begin_work(self._parts.claiming, claim), understood)

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
            self._look_back_after(exc)
            return
        self._claims.clear()
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
        self._claims.note(exc, now_s=self._now_s())
        self._may_have_left = True

    def _has_looked_back(self) -> None:
        self._may_have_left = False
        for batch in [known for known in self._parts.sending if known not in self._active]:
            del self._parts.sending[batch]  # settled after all, or another owner did it

    def _has_polled(self, found: Sequence[Claimed]) -> None:
        if not any(claimed.was_full for claimed in found):
            self._next_poll_s = self._now_s() + self._parts.poll_every.total_seconds()
        if not self.has_polled:
            self.has_polled = True
            for queue in (self._parts.timeouts_queue, self._control_queue):
                if queue is not None:
                    self._link.consume(queue, prefetch=self._parts.prefetch)

    def _begin_sending(self, claimed: Claimed) -> None:
        """Put a claimed batch's rows into the outbox, but for those already sent."""
        sending = self._parts.sending.setdefault(claimed.batch.id, Sending(batch=claimed.batch))
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
        self._settling[batch] = self._begin_work(
            self._parts.claiming, lambda: poller.settle(sending, lease)
        )

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
                self._parts.sending.pop(batch, None)

    # ── messages that leave ─────────────────────────────────────────────────────────────────

    def _send(self) -> None:
        items = self._chosen(self._outbox.take(self._watch.now()))
        if not items:
            return
        answers = Answers()
        try:
            self._link.publish(self._letters(items), answers)
        except TargetError as exc:
            self._blame(sorted_out(items, answers).refused, exc)
            raise
        finally:
            self._note(items, answers)
        self._parts.blame.clear(items)
        sent = sorted_out(items, answers)
        self._confirmed(sent.confirmed)
        for item in sent.returned:
            self._not_taken(item, _unroutable(item))
        for item in sent.refused:
            self._not_taken(item, _REFUSED)
        self._settle_answered(items)

    def _chosen(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return what may be sent together; put aside what ended a channel when it was alone."""
        blame, innocent = self._parts.blame, []
        for item in items:
            error = blame.verdict(item)
            if error is None:
                innocent.append(item)
            else:
                self._condemned(item, error)
        self._settle_answered(items)
        chosen = blame.chosen(innocent)
        for item in innocent:
            if len(chosen) < len(innocent) and item is not chosen[0]:
                self._outbox.add(item, due_at=self._watch.now())
        return chosen

    def _blame(self, unanswered: Sequence[Item], error: TargetError) -> None:
        """Find out whose fault it is; an exchange may be gone, so routes are looked for anew."""
        routed = (StoredRow, PassedOn)
        names = {item.message.destination for item in unanswered if isinstance(item, routed)}
        self._parts.poller.routes.forget(names)
        self._parts.blame.note(unanswered, error)

    def _settle_answered(self, items: Sequence[Item]) -> None:
        for batch in {item.batch for item in items if isinstance(item, StoredRow)}:
            self._settle_if_answered(self._parts.sending[batch])

    def _letters(self, items: Sequence[Item]) -> Iterator[Letter]:
        """Yield the letters of *items*, with a step to be killed at in the middle."""
        half = len(items) // 2
        for letter in letters(items, version=self._parts.version, now=self._watch.now):
            self._guard()
            if letter.key == half and any(isinstance(item, StoredRow) for item in items):
                self._parts.fault("dispatch.publishing")
            yield letter

    def _note(self, items: Sequence[Item], answers: Answers) -> None:
        """Remember which rows were sent, also when the link is gone."""
        for key, item in enumerate(items):
            if isinstance(item, StoredRow) and key in answers.confirmed - answers.returned:
                self._parts.sending[item.batch].note_sent(item.row)

    def _confirmed(self, items: Sequence[Item]) -> None:
        """Acknowledge the deliveries whose message, or copy, is confirmed elsewhere."""
        done: list[Delivery] = []
        for item in items:
            if not isinstance(item, StoredRow):
                self._parts.fault(_step(item))
                done.append(item.delivery)
        self._incoming.settle(done)

    def _not_taken(self, item: Item, why: Unreachable) -> None:
        """Deal with a message that no queue took, or whose queue takes no more."""
        if isinstance(item, StoredRow):
            self._parts.sending[item.batch].note_returned(item.row, why)
        elif isinstance(item, Copy):
            self._copy_not_taken(item, why)
        else:
            self._parts.poller.routes.forget([item.message.destination])
            text = f"{why.reason}: {why.detail}"
            self._incoming.fail(item.delivery, Failure(kind="migrator.NotTaken", text=text))

    def _condemned(self, item: Item, error: TargetError) -> None:
        """Deal with a message that ended the channel all by itself."""
        # neither a missing right nor a missing exchange: then it is the message itself
        is_ours = type(error) is TargetError or isinstance(error, MessageTooLarge)
        if isinstance(item, StoredRow) and is_ours:
            is_large = isinstance(error, MessageTooLarge)
            reason = Reason.BODY_TOO_LARGE if is_large else Reason.REFUSED
            self._parts.sending[item.batch].note_unfit(item.row, reason, str(error))
        elif isinstance(item, StoredRow | Copy):
            self._not_taken(item, Unreachable(reason=Reason.REFUSED, detail=str(error)))
        else:
            failure = Failure(kind="migrator.Refused", text=str(error), is_final=is_ours)
            self._incoming.fail(item.delivery, failure)

    def _copy_not_taken(self, item: Copy, why: Unreachable) -> None:
        if why.reason is Reason.UNROUTABLE and not item.is_final:
            raise TargetUnavailable(f"queue {item.queue!r} is gone")  # the next link declares it
        instead = None
        if why.reason is Reason.UNROUTABLE:
            instead = self._trouble.instead_of_error_queue(item.delivery)
        again_at = self._watch.now() + (_AGAIN_AFTER if instead is None else timedelta(0))
        self._outbox.add(instead or item, due_at=again_at)

    # ── waiting ─────────────────────────────────────────────────────────────────────────────

    def _rest(self, *, may_take: bool) -> timedelta:
        """Return how long there is nothing to do, unless something happens."""
        in_work = self._incoming.pending or self._claim or self._settling
        longest = _SLICE_IN_WORK if in_work else _SLICE
        may_claim = may_take and self._claim is None and len(self._active) < _MOST_BATCHES
        if may_claim and self._claims.error is None:
            left_s = self._next_poll_s - self._now_s()
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
            or self._active
            or self._may_have_left
            or self._incoming.pending
            or (self._incoming.has_waiting or self._control if may_take else self._claim)
        )
        if is_busy:
            self._last_busy_s = self._now_s()
        return is_busy

    def _now_s(self) -> float:
        return self._parts.clock.monotonic_s()

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


def _unroutable(item: Item) -> Unreachable:
    where = item.queue if isinstance(item, Copy) else item.message.destination
    detail = f"the broker returned it: nothing is bound for {where!r}"
    return Unreachable(reason=Reason.UNROUTABLE, detail=detail)
