"""Stored rows that get due: claimed, put into the outbox, and completed once each has an answer.

Rules of this file:

* a row is claimed (it leaves the legacy table for the ledger) before it is sent, so that no other
  program sends it; its batch is ``publishing`` before the first row is sent;
* a row whose destination does not accept it is parked in the ledger;
* a claim writes even if it finds nothing, so a read comes before it;
* open batches that no session works on (of an earlier session, or a claim whose answer was lost)
  are resumed before any new claim;
* a batch is completed once, when each of its rows has an answer;
* ``Poller`` runs in one background thread, in order; the thread that serves the broker, with
  ``DueRows``, never waits for the database. Source: docs/adr/0006-dispatcher-claims.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import Unreachable, no_answer
from migrator.dispatcher.failures import new_backoff
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.dispatcher.link import Delivery, RabbitRoutes, Route
from migrator.dispatcher.outbox import Item, StoredRow
from migrator.dispatcher.receive import LinkContext, Receiver, next_chunk, not_understood
from migrator.dispatcher.rules import to_dispatch
from migrator.errors import Interrupted, LeaseLost, MigratorError, PreflightRefused
from migrator.ledger.held_destinations import HeldChecks, HeldDestinations
from migrator.ledger.parking import Wanted
from migrator.ledger.states import Event, Mode
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease, StoreEndpoint
from migrator.nservicebus.conversion import BrokerLimits, Quarantine, Reason
from migrator.nservicebus.satellites import NotUnderstood, read_control
from migrator.nservicebus.timeouts import (
    BatchId,
    NativeMessage,
    QueueName,
    RunId,
    StoredTimeout,
    TimeoutId,
)
from migrator.rabbitmq.late import LateAnswers, Sent
from migrator.stores.due_times import DueTimeReader
from migrator.stores.requests import ClaimRequest
from migrator.stores.sql.claims import SqlClaims

_log = logging.getLogger(__name__)

_DUE_TIMES_AGAIN_S: Final = 600.0
"""After a reading that proved the time zone."""
_DUE_TIMES_AT_REST_S: Final = 10.0
"""While there is nothing to claim; each claim checks them first."""
LONGEST_PAUSE: Final = timedelta(seconds=1.5)
"""Between two polls, unless the interval is longer. Only a row that another program writes due at
once is late by it: less than the two seconds of docs/promise.md, with half a second to send it."""
_MOST_BATCHES: Final = 8
"""Claimed and not completed; more would only wait here instead of in the store."""
_PRUNE_EVERY_S: Final = 60.0
_PRUNE_AGAIN_S: Final = 5.0
"""After a call that found old rows; one call is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    batch: Batch
    rows: Sequence[StoredRow]
    """The rows to send, unordered."""
    was_full: bool


@dataclass(slots=True)
class Sending:
    """A batch being sent; it outlives the link, so that no row is sent twice."""

    batch: Batch
    waiting: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    """Row indexes that need not be sent again, even over another link."""
    returned: dict[int, tuple[str, Unreachable]] = field(default_factory=dict)
    """By row index: destination and reason, of rows that no queue accepted."""
    unfit: list[Quarantine] = field(default_factory=list)
    """Rows that the broker can never accept."""
    begun_s: float = 0.0
    reached: set[str] = field(default_factory=set)

    def note_sent(self, item: StoredRow) -> None:
        self._note(item.row)
        self.reached.add(item.message.destination)

    def note_returned(self, item: StoredRow, why: Unreachable) -> None:
        self._note(item.row)
        self.returned[item.row.row_index] = item.message.destination, why

    def note_unfit(self, row: StoredTimeout, reason: Reason, detail: str) -> None:
        self._note(row)
        self.unfit.append(
            Quarantine(row_index=row.row_index, timeout_id=row.id, reason=reason, detail=detail)
        )

    def _note(self, row: StoredTimeout) -> None:
        self.waiting.discard(row.row_index)
        self.answered.add(row.row_index)


@dataclass(kw_only=True)
class Poller:
    """Claims and completes batches of one endpoint; used by one thread at a time."""

    endpoint: StoreEndpoint
    run: RunId
    claims: SqlClaims
    batches: Batches
    dispatched: DispatchedBatches
    held: HeldDestinations
    routes: RabbitRoutes
    clock: Clock
    interval: timedelta
    """Between two polls; longer while there are no rows."""
    look_ahead: timedelta
    """Rows due within this are claimed and wait in memory."""
    max_rows: int
    max_bytes: int
    remember: timedelta
    """How long the ledger keeps dispatched rows, to recognise redelivered messages."""
    conversion: BrokerLimits
    fault: FaultPoint
    due_times: DueTimeReader

    def __post_init__(self) -> None:
        self._due_times_at_s = float("-inf")
        self._checks = HeldChecks(self.clock)
        self.pause = self.interval
        """Until the next poll."""
        self.sending: dict[BatchId, Sending] = {}
        """Used by the thread that serves the broker."""
        self.late = LateAnswers[str]()
        """Rows sent to destinations that have not answered."""

    def limit_frames(self, frame_max_bytes: int) -> None:
        self.conversion = replace(self.conversion, frame_max_bytes=frame_max_bytes)

    # ── claiming ────────────────────────────────────────────────────────────────────────────

    def open_batches(
        self,
        lease: Lease,
        *,
        answered: Mapping[BatchId, Collection[int]],
        but_for: Collection[BatchId] = (),
    ) -> Sequence[Claimed]:
        """Return open batches, except *but_for*, with their rows to send, except *answered*."""
        self._checks.load([self.held])
        return [
            self._prepared(batch, lease, skip=answered.get(batch.id, ()))
            for batch in self.batches.open_batches(lease)
            if batch.id not in but_for
        ]

    def claim_due(self, lease: Lease) -> Sequence[Claimed]:
        """Claim the soonest rows due within the look-ahead.

        Due and future rows never share a batch: it would stay open for long, and a crash would
        send all of it again.
        """
        self.held.free(self.late.take_heard())
        found = self._claim_unparked(lease)
        now = self.clock.now()
        if not self._poll_look_ahead(lease, now):
            if not found:
                self._check_due_times(again_s=_DUE_TIMES_AT_REST_S)
            return found
        for until in (now, now + self.look_ahead):
            claimed = self._claim(lease, until=until, only=None)
            if claimed is not None:
                found.append(claimed)
                if claimed.was_full:
                    break
        return found

    def _claim_unparked(self, lease: Lease) -> list[Claimed]:
        """Claim parked rows of reachable destinations; check some destinations at intervals."""
        self._check_held()
        now = self.clock.now()
        if not self.held.has_ready:
            return []
        wanted = Wanted(
            run=self.run,
            mode=Mode.DISPATCH,
            lease=lease,
            most_rows=self.max_rows,
            due_until=now + self.look_ahead,
        )
        batch = self.held.next_batch(wanted, now=now)
        return [] if batch is None else [self._prepared(batch, lease)]

    def _poll_look_ahead(self, lease: Lease, now: datetime) -> bool:
        """Return whether a row is due within the look-ahead; choose the next pause.

        The pause grows only while no row is due within the look-ahead and a longer pause.
        """
        longer = min(self.pause * 2, max(LONGEST_PAUSE, self.interval))
        soon, later = (
            self._request(lease, until=now + span, only=None)
            for span in (self.look_ahead, self.look_ahead + longer)
        )
        found = self.claims.promising([soon, later])
        self.pause = self.interval if found or self.held.has_ready else longer
        return soon in found

    def claim_these(self, ids: Collection[TimeoutId], lease: Lease) -> Sequence[Claimed]:
        until = self.clock.now() + self.look_ahead
        claimed = self._claim(lease, until=until, only=ids)
        return () if claimed is None else (claimed,)

    def _check_due_times(self, *, again_s: float = 0.0) -> None:
        """Refuse to claim while due times are read in the wrong time zone.

        If no row proves the zone, the next call with *again_s* reads them again after so long.
        """
        now_s = self.clock.monotonic_s()
        if now_s < self._due_times_at_s + again_s:
            return
        reading = self.due_times.read(self.endpoint)
        if reading.is_refused:
            raise PreflightRefused(f"time_zone: {reading.text}; {reading.remedy}")
        self._due_times_at_s = now_s + (_DUE_TIMES_AGAIN_S if reading.comparable else 0.0)

    def _claim(
        self,
        lease: Lease,
        *,
        until: datetime,
        only: Collection[TimeoutId] | None,
    ) -> Claimed | None:
        self._check_due_times()
        claim = self.claims.claim(self._request(lease, until=until, only=only))
        if claim is None:
            return None
        self.fault("dispatch.claimed")
        return self._prepared(claim.batch, lease)

    def _request(
        self,
        lease: Lease,
        *,
        until: datetime,
        only: Collection[TimeoutId] | None,
    ) -> ClaimRequest:
        return ClaimRequest(
            run=self.run,
            endpoint=self.endpoint,
            lease=lease,
            mode=Mode.DISPATCH,
            due_after=None,
            due_until=until,
            max_rows=self.max_rows,
            max_bytes=self.max_bytes,
            cursor=None,
            only=only,
        )

    def _prepared(self, batch: Batch, lease: Lease, *, skip: Collection[int] = ()) -> Claimed:
        was_full = batch.size >= self.max_rows or batch.body_bytes >= self.max_bytes
        found, unreadable = self.batches.readable(batch)
        rows = [row for row in found if row.row_index not in skip]
        converted = [(row, to_dispatch(row, rules=self.conversion)) for row in rows]
        unfit = [*unreadable, *(found for _, found in converted if isinstance(found, Quarantine))]
        fit = [(row, found) for row, found in converted if isinstance(found, NativeMessage)]
        names = {message.destination for _, message in fit}
        held = self.held.unreachable(names, of=batch.id)
        routes: dict[QueueName, Route | Unreachable] = {QueueName(n): held[n] for n in held}
        routes |= self.routes.answers(names - held.keys())
        ready: list[StoredRow] = []
        lost: dict[int, tuple[str, Unreachable]] = {}
        for row, message in fit:
            route = routes[message.destination]
            if isinstance(route, Unreachable):
                lost[row.row_index] = message.destination, route
            else:
                ready.append(StoredRow(batch=batch.id, message=message, route=route, row=row))
        batch = self._put_aside(batch, unfit, lost, lease)
        batch = self.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
        self.fault("dispatch.begun")
        return Claimed(batch=batch, rows=ready, was_full=was_full)

    def _put_aside(
        self,
        batch: Batch,
        unfit: Sequence[Quarantine],
        lost: Mapping[int, tuple[str, Unreachable]],
        lease: Lease,
    ) -> Batch:
        if unfit:
            self.batches.quarantine(batch, unfit, lease)
        return self.held.park(batch, lost, lease, now=self.clock.now()) if lost else batch

    def _check_held(self) -> None:
        """Check some parked destinations; those still unreachable wait longer."""
        if due := self._checks.take_due([self.held]):
            routes = self.routes.answers({QueueName(each.held.destination) for each in due})
            lost = {name: each for name, each in routes.items() if isinstance(each, Unreachable)}
            self._checks.judge(due, lost)

    # ── completing ────────────────────────────────────────────────────────────────────────────

    def complete(self, sending: Sending, lease: Lease) -> None:
        self.fault("dispatch.confirmed")
        batch = self._put_aside(sending.batch, sending.unfit, sending.returned, lease)
        self.routes.forget({QueueName(name) for name, _ in sending.returned.values()})
        self.held.reached(sending.reached, by=batch.id)
        self.batches.advance(batch, Event.ALL_DISPATCHED, lease)
        self.fault("dispatch.settled")


@dataclass(kw_only=True)
class DueRows:
    context: LinkContext
    poller: Poller
    receiver: Receiver
    background: Executor
    completed: Callable[[int, float], None]
    """Called for each completed batch: rows sent, and seconds since its claim."""
    most_bytes: int
    """Bodies of claimed batches in memory; the last batch may exceed it."""

    def __post_init__(self) -> None:
        self._control: deque[Delivery] = deque()
        self._claim: Future[Sequence[Claimed]] | None = None
        self._claimed_for: Sequence[Delivery] = ()
        """The control messages that named the rows of that claim."""
        self._completing: dict[BatchId, Future[None]] = {}
        self._active: set[BatchId] = set()
        self._may_have_open_batches = True
        self._has_claim_failed = False
        """The last claim failed; a successful read of open batches does not change that."""
        self._backoff = new_backoff(self.context.time.monotonic_s)
        self.error: MigratorError | None = None
        """The last error of the store; the work is repeated."""
        self._next_poll_s = float("-inf")
        self._may_have_new_rows = False
        """Rows may have been written since the last poll began."""
        self._next_prune_s = self.context.time.monotonic_s() + _PRUNE_EVERY_S
        self.has_polled = False
        """The store has answered this session."""

    @property
    def pending(self) -> Sequence[Future[object]]:
        claim = () if self._claim is None else (self._claim,)
        return (*claim, *self._completing.values())

    def is_busy(self, *, may_take: bool) -> bool:
        """Return whether there is work; while draining, work that cannot be done does not count."""
        if self._active or (self._claim is not None and not may_take):
            return True
        return (
            bool(self._control) if may_take else self._may_have_open_batches and self.error is None
        )

    @property
    def next_poll_in_s(self) -> float | None:
        """None: something else has to happen before the next poll."""
        if self._claim is not None or self.error is not None or self._is_full:
            return None
        return max(self._next_poll_s - self._now_s(), 0.0)

    @property
    def _is_full(self) -> bool:
        sending = self.poller.sending
        body_bytes = sum(sending[each].batch.body_bytes for each in self._active if each in sending)
        return len(self._active) >= _MOST_BATCHES or body_bytes >= self.most_bytes

    def add_control(self, delivery: Delivery) -> None:
        self._control.append(delivery)

    def poll_soon(self) -> None:
        """Poll after the shortest pause: rows may have just been written."""
        self._may_have_new_rows = True
        self._next_poll_s = min(
            self._next_poll_s, self._now_s() + self.poller.interval.total_seconds()
        )

    def finish(self) -> None:
        self._finish_claim()
        self._finish_completing()

    def sending(self, item: StoredRow) -> Sending:
        return self.poller.sending[item.batch]

    def complete_answered(self, items: Sequence[Item]) -> None:
        for batch in {item.batch for item in items if isinstance(item, StoredRow)}:
            self._complete_if_answered(self.poller.sending[batch])

    def begin(self, *, may_take: bool) -> None:
        if self._claim is not None or not self._backoff.is_over:
            return
        if self._may_have_open_batches:
            self._begin_resuming()
        elif not may_take or self._is_full:
            return
        elif self._control:
            self._begin_control()
        elif self._now_s() >= self._next_poll_s:
            self._may_have_new_rows = False
            self._claim = self.background.submit(self._poll)

    def _begin_resuming(self) -> None:
        """Resume open batches of an earlier session, or of a claim whose answer was lost."""
        sending, active = self.poller.sending, frozenset(self._active)
        answered = {batch: frozenset(known.answered) for batch, known in sending.items()}
        open_batches = self.poller.open_batches
        lease = self.context.lease
        self._claim = self.background.submit(open_batches, lease, answered=answered, but_for=active)

    def _poll(self) -> Sequence[Claimed]:
        self.context.time.read()
        if self._now_s() >= self._next_prune_s:
            poller, lease = self.poller, self.context.lease
            forgotten = poller.dispatched.prune(lease, older_than=poller.remember)
            self._next_prune_s = self._now_s() + (_PRUNE_AGAIN_S if forgotten else _PRUNE_EVERY_S)
        return self.poller.claim_due(self.context.lease)

    def _begin_control(self) -> None:
        """Claim the due rows that control messages name; the poller claims the others later."""
        ids: dict[TimeoutId, None] = {}
        understood: list[Delivery] = []
        for delivery in next_chunk(self._control):
            try:
                ids[read_control(delivery.message)] = None
                understood.append(delivery)
            except NotUnderstood as exc:
                self.receiver.fail(delivery, not_understood(exc))
        if not ids:
            return
        lease = self.context.lease
        self._claim = self.background.submit(self.poller.claim_these, tuple(ids), lease)
        self._claimed_for = understood

    def _finish_claim(self) -> None:
        if self._claim is None or not self._claim.done():
            return
        claim, self._claim = self._claim, None
        claimed_for, self._claimed_for = self._claimed_for, ()
        try:
            found = claim.result()
        except (LeaseLost, Interrupted):
            raise
        except MigratorError as exc:
            self._control.extendleft(reversed(claimed_for))
            self._has_claim_failed = self._has_claim_failed or not self._may_have_open_batches
            self._resume_after(exc)
            return
        self._has_claim_failed = self._has_claim_failed and self._may_have_open_batches
        if not self._has_claim_failed:
            self._backoff.succeeded()
            self.error = None
        for claimed in found:
            self._begin_sending(claimed)
        if self._may_have_open_batches:
            self._note_resumed()
        elif claimed_for:
            self.context.fault("control.claimed")
            self.receiver.ack(claimed_for)
        else:
            self._note_polled(found)

    def _resume_after(self, exc: MigratorError) -> None:
        """Pause; then look for what was committed before *exc*, before any new claim."""
        self._backoff.failed()
        self.error = exc
        self._may_have_open_batches = True

    def _note_resumed(self) -> None:
        self._may_have_open_batches = False
        for batch in [known for known in self.poller.sending if known not in self._active]:
            del self.poller.sending[batch]  # completed before an error, or by another owner

    def _note_polled(self, found: Sequence[Claimed]) -> None:
        if not any(claimed.was_full for claimed in found):
            pause = self.poller.interval if self._may_have_new_rows else self.poller.pause
            self._next_poll_s = self._now_s() + pause.total_seconds()
        self.has_polled = True

    def _begin_sending(self, claimed: Claimed) -> None:
        sending = self.poller.sending.setdefault(
            claimed.batch.id, Sending(batch=claimed.batch, begun_s=self._now_s())
        )
        sending.batch = claimed.batch
        sending.waiting = {row.row.row_index for row in claimed.rows} - sending.answered
        self._active.add(claimed.batch.id)
        for row in claimed.rows:
            if row.row.row_index in sending.waiting:
                self._send_unless_sent(row, sending)
        self._complete_if_answered(sending)

    def _send_unless_sent(self, row: StoredRow, sending: Sending) -> None:
        match self.poller.late.sent(row.row.id):
            case Sent.NOT:
                self.context.outbox.add(row, due_at=row.message.due_at)
            case Sent.SURELY:
                sending.note_sent(row)
                self.poller.late.forget([row.row.id])
            case Sent.MAYBE:
                sending.note_returned(row, no_answer(row.message.destination))

    def _complete_if_answered(self, sending: Sending) -> None:
        batch = sending.batch.id
        if sending.waiting or batch in self._completing:
            return
        self._completing[batch] = self.background.submit(
            self.poller.complete, sending, self.context.lease
        )

    def _finish_completing(self) -> None:
        for batch, pending in [*self._completing.items()]:
            if not pending.done():
                continue
            del self._completing[batch]
            self._active.discard(batch)
            try:
                pending.result()
            except (LeaseLost, Interrupted):
                raise
            except MigratorError as exc:
                self._resume_after(exc)  # what was sent stays known
            else:
                self._count(self.poller.sending.pop(batch, None))

    def _count(self, sending: Sending | None) -> None:
        if sending is not None:
            sent = len(sending.answered) - len(sending.returned) - len(sending.unfit)
            self.completed(max(sent, 0), self._now_s() - sending.begun_s)

    def _now_s(self) -> float:
        return self.context.time.monotonic_s()
