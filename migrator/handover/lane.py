"""One lane's work under its lease, over one link: recover first, then batch after batch.

While the broker works on one batch, the next ones are claimed and converted in the background, in
order. Whatever ends a session (a lost connection, a lost lease, a kill), the next one begins with
``recover`` and finds all it needs in the ledger.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from migrator.delays.releases import load
from migrator.delays.routing import delay_s
from migrator.errors import Interrupted, MessageTooLarge, SourceGone, StoreError
from migrator.handover.claiming import Claimer, PassSize
from migrator.handover.direct import DirectHandOver
from migrator.handover.pacing import Booking, Pacer
from migrator.handover.ports import Link
from migrator.handover.prepare import Prepared, Preparer
from migrator.handover.runs import HandOver, OtherRuns
from migrator.handover.staged import MAX_WITHOUT_RECEIPT, StagedHandOver
from migrator.ledger.run_terms import BrokerPlace
from migrator.ledger.states import HALF_DONE, BatchState, Event, Mode
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease, no_fault
from migrator.nservicebus.timeouts import BatchId, RunId
from migrator.text import rate_words
from migrator.throttle.guard import QuarantineLimit

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DEPTH: Final = 2
"""Batches prefetched behind the current one: one is claimed while the other is converted."""
_SERVE_EVERY_S: Final = 0.2
"""While a batch is prefetched; receipts are read soon, because their latency is measured."""
_PACED_SLICE_S: Final = 0.05
_LOG_PACED_EVERY_S: Final = 60.0
_OVERDUE_EVERY_S: Final = 0.2
"""After a claim of overdue rows that found none, while a batch waits for its levels."""
_SOONEST_S: Final = 1.0
"""A batch is sent, room or not, so long before its first row is due."""
_RESUME_EVERY_S: Final = 10.0
"""While the store of a half-done batch does not answer."""
_WEIGHED_ROWS: Final = 128
"""A large batch is weighed by the delays of about so many of its rows."""

HandedOver = Callable[[Batch, int, float], None]
"""Called with the batch, the number of its rows sent, and the seconds since its claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePacing:
    batch_rows: int
    rate_limit_per_s: int = 0
    """Messages per second; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSetup:
    batches: Batches
    clock: Clock
    claimer: Claimer
    preparer: Preparer
    direct: DirectHandOver
    claiming: Executor
    preparing: Executor
    """One thread, which may wait for *claiming*."""
    pace: Callable[[], LanePacing]
    pacer: Pacer
    """Shared by all lanes of the process, as is the limit below."""
    quarantine_limit: QuarantineLimit
    receipt_deadline_s: float
    """A commit without a receipt is doubtful then."""
    others: OtherRuns | None = None
    fault: FaultPoint = no_fault
    handed_over: HandedOver = lambda _batch, _rows, _seconds: None
    paced: Callable[[float], None] = lambda _seconds: None

    def of(self, batch: Batch) -> HandOver:
        """Return what hands *batch* over by the terms of its own run."""
        other = None if self.others is None else self.others.hand_over(batch)
        return other or HandOver(preparer=self.preparer, direct=self.direct)

    def elsewhere(self, run: RunId) -> BrokerPlace | None:
        """Return the broker of *run*; None: it is the broker of this process."""
        return None if self.others is None else self.others.elsewhere(run)

    def limit_frames(self, frame_max_bytes: int) -> None:
        self.preparer.limit_frames(frame_max_bytes)
        if self.others is not None:
            self.others.limit_frames(frame_max_bytes)

    def limit_bodies(self, body_max_bytes: int) -> None:
        self.preparer.limit_bodies(body_max_bytes)
        if self.others is not None:
            self.others.limit_bodies(body_max_bytes)


class Prefetcher:
    """The next batches of a lane, claimed and prepared while another one is handed over.

    Futures are begun in order, awaited in order, and always awaited. While the lane waits, *serve*
    keeps the connections alive: a claim of documents may outlast two heartbeats of the broker. It
    is no heartbeat of the lane: a hanging claim is for the watchdog. For the lane's thread only.
    """

    def __init__(
        self, setup: LaneSetup, lease: Lease, size: PassSize, *, serve: Callable[[], None]
    ) -> None:
        self._setup = setup
        self._lease = lease
        self._size = size
        self._serve = serve
        self._futures: deque[Future[Prepared | None]] = deque()
        self._awaited: Future[Any] | None = None
        self._overdue: Future[Prepared | None] | None = None
        """A running claim of overdue rows."""
        self._overdue_at_s = float("-inf")
        self.claimed_s: dict[BatchId, float] = {}
        """Monotonic time of each claim, until the batch is handed over."""

    def next(self, *, may_claim: bool) -> Prepared | None:
        prepared = None
        while prepared is None and self._futures:
            prepared = self._wait_for(self._futures.popleft())
        if prepared is None and may_claim:
            prepared = self._wait_for(self._begin())
        if prepared is not None and may_claim:
            while len(self._futures) < _DEPTH:
                self._futures.append(self._begin())
        return prepared

    def next_due(
        self, modes: Collection[Mode], *, may_claim: bool, until_s: float = math.inf
    ) -> Prepared | None:
        """Return a prefetched batch with due rows, or claim one.

        At *until_s* (monotonic) the wait for that claim ends; the claim continues.
        """
        clock, claim = self._setup.clock, self._overdue
        if may_claim and claim is None and clock.monotonic_s() >= self._overdue_at_s:
            claim = self._overdue = self._begin(only_overdue=True)
            self._futures.append(claim)
        while claim is not None and not claim.done() and clock.monotonic_s() < until_s:
            self._wait_a_little(claim, min(until_s - clock.monotonic_s(), _SERVE_EVERY_S))
        if claim is not None and claim.done():
            self._overdue = None
            if claim.result() is None:
                self._overdue_at_s = clock.monotonic_s() + _OVERDUE_EVERY_S
        for future in tuple(self._futures):
            if not future.done():
                continue
            found = future.result()
            if found is None:
                self._futures.remove(future)
            elif found.batch.mode in modes and _is_due(found, clock.now()):
                self._futures.remove(future)
                return found
        return None

    def prepare(self, batch: Batch, *, answered: Collection[int] = ()) -> Prepared:
        given = self._setup
        preparer = given.of(batch).preparer
        return self._wait_for(
            given.preparing.submit(preparer.prepare, batch, self._lease, answered=answered)
        )

    def resume(self, batch: Batch) -> Batch | None:
        given = self._setup
        return self._wait_for(given.claiming.submit(given.claimer.resume, batch, self._lease))

    def end(self) -> None:
        pending = [*filter(None, [self._awaited]), *self._futures]
        self._awaited = None
        self._futures.clear()
        for future in pending:
            try:
                future.result()
            except Exception:
                _log.warning(
                    "prefetch failed; a batch that was claimed is in the ledger",
                    extra={"action": "claim_ahead_failed", "lane": self._lease.lane},
                    exc_info=True,
                )

    def _begin(self, *, only_overdue: bool = False) -> Future[Prepared | None]:
        given = self._setup
        claimed = given.claiming.submit(
            given.claimer.claim, self._lease, max_rows=self._size.rows, only_overdue=only_overdue
        )

        def prepare() -> Prepared | None:
            batch = claimed.result()
            if batch is None:
                return None
            self.claimed_s[batch.id] = given.clock.monotonic_s()
            prepared = given.preparer.prepare(batch, self._lease)
            given.quarantine_limit.count(
                batch.endpoint, claimed=prepared.batch.size, quarantined=prepared.quarantined
            )
            return prepared

        return given.preparing.submit(prepare)

    def _wait_for(self, future: Future[T]) -> T:
        self._awaited = future
        while not future.done():
            self._wait_a_little(future, _SERVE_EVERY_S)
        self._awaited = None
        return future.result()

    def _wait_a_little(self, future: Future[Any], seconds: float) -> None:
        try:
            future.exception(seconds)
        except TimeoutError:
            self._serve()


def _is_due(prepared: Prepared, now: datetime) -> bool:
    soon = now + timedelta(seconds=_SOONEST_S)
    return not prepared.messages or any(each.due_at <= soon for each in prepared.messages)


class LaneSession:
    """The work of one lane over one link.

    Args:
        setup: Outlives the session.
        lease: Of the lane.
        link: Of the lane.
        guard: Raises when the process must stop, or when another daemon owns the lane.
        may_claim: Whether overdue rows may be claimed while receipts are awaited.
        is_ending: Whether to stop waiting for a late receipt; the next start resolves it.
        max_commits: Commits without a receipt at a time, until the first receipt.
    """

    def __init__(
        self,
        setup: LaneSetup,
        *,
        lease: Lease,
        link: Link,
        guard: Callable[[], None] = lambda: None,
        may_claim: Callable[[], bool] = lambda: True,
        is_ending: Callable[[], bool] = lambda: False,
        max_commits: int = MAX_WITHOUT_RECEIPT,
    ) -> None:
        self._setup = setup
        self._batches = setup.batches
        self._lease = lease
        self._link = link
        self._guard = guard
        self._may_claim = may_claim
        self._is_ending = is_ending
        self._max_commits = max_commits
        self._staged: StagedHandOver | None = None
        self._size = PassSize(lambda: setup.pace().batch_rows)
        self._prefetcher = Prefetcher(setup, lease, self._size, serve=self._serve)
        self._sent = 0
        """Rows handed over, including unroutable ones."""
        self._paced_s, self._log_paced_at_s = 0.0, float("-inf")
        """Seconds that batches waited for the levels since the last log line, and its next time."""
        self._behind: list[Batch] = []
        """Claimed staged batches that wait until older commits are resolved."""
        self.passed_on = 0
        """Batches given to other lanes."""
        self.activity = "starting"
        self.stuck: SourceGone | None = None
        """Why a half-done batch of this lane needs the operator."""
        self.unfinished: StoreError | None = None
        """Why half-done batches cannot be finished now."""
        self._half_done: list[Batch] = []
        self._resume_at_s = float("-inf")

    def recover(self) -> None:
        """Finish or take back everything an earlier owner of the lane left open.

        Overdue rows come first, because they wait for nothing. Commits without a known outcome
        come next: no other attempt may be nacked before. When that takes longer than usual, the
        claimed batches behind them go to other lanes. Half-done batches come last, because they
        need the document store. A batch whose store is gone stays as it is and stops nothing
        else. So does a batch for another broker; if claimed, it goes to a daemon connected there.
        """
        opened = [self._claimed_again(batch) for batch in self._batches.open_batches(self._lease)]
        opened = self._for_this_broker(opened)
        for batch in opened:
            if batch.mode is Mode.DIRECT and batch.state not in HALF_DONE:
                self._recover_batch(batch)
        self._behind = [
            batch
            for batch in opened
            if batch.mode is Mode.STAGED and batch.state is BatchState.CLAIMED
        ]
        for batch in opened:
            if batch.state is BatchState.COMMITTING:
                self._resolve(batch)
        self._behind = []
        for batch in self._for_this_broker(self._batches.open_batches(self._lease)):
            if batch.state not in HALF_DONE:
                self._recover_batch(batch)
        self._half_done = [batch for batch in opened if batch.state in HALF_DONE]
        self._finish_half_done()

    def turn(self, *, may_claim: bool) -> bool:
        """Hand over one batch, or wait for receipts; return False when there is no work now."""
        self._take_late_answers()
        prepared = self._prefetcher.next(may_claim=may_claim)
        if prepared is None:
            return self._finish_receipts()
        self._hand_over(prepared)
        return True

    def pick_up(self) -> bool:
        """Hand over batches of a quarantine retry, of `migrator db resolve`, or of other lanes."""
        self._finish_half_done()
        others = self._setup.others
        not_of = () if others is None else others.known_elsewhere
        put_in = self._for_this_broker(self._batches.put_in(self._lease, not_of=not_of))
        for batch in put_in:
            self._setup.of(batch).preparer.holding.let_try(batch)
            self._recover_batch(batch)
        return bool(put_in)

    def idle(self, wait_s: float) -> bool:
        self.activity = "idle"
        self._link.idle(wait_s)
        return self._take_late_answers()

    def close(self) -> None:
        """Await the prefetched batches, so that the next session sees what was claimed."""
        self._prefetcher.end()

    # ── recovery ────────────────────────────────────────────────────────────────────────────

    def _claimed_again(self, batch: Batch) -> Batch:
        if batch.state is not BatchState.STAGING:
            return batch
        # without its nack, nothing of the attempt can have left
        return self._batches.advance(batch, Event.ABANDON, self._lease)

    def _for_this_broker(self, opened: Sequence[Batch]) -> list[Batch]:
        mine = []
        for batch in opened:
            # a half-done batch asks its store first
            if batch.state in HALF_DONE or self._setup.elsewhere(batch.run) is None:
                mine.append(batch)
            elif batch.state is BatchState.CLAIMED:
                self._pass_on(batch)
        return mine

    def _pass_on(self, batch: Batch) -> None:
        self._batches.pass_on(batch, self._lease)
        self.passed_on += 1
        _log.info(
            "claimed batch passed to other lanes",
            extra={"action": "batch_passed_on", "batch": batch.id, "lane": self._lease.lane},
        )

    # ── the parts of a turn ─────────────────────────────────────────────────────────────────

    def _take_late_answers(self) -> bool:
        if not self._setup.direct.holding.free_answered():
            return False
        self._setup.claimer.claimable.forget()
        return True

    def _serve(self) -> None:
        self._link.serve()
        self._count_handed_over(wait_s=0.0)

    def _hand_over(self, prepared: Prepared) -> None:
        """Send *prepared* once the levels have room, and batches that get due meanwhile at once."""
        clock, pacer, sent_before = self._setup.clock, self._setup.pacer, self._sent
        began_s = clock.monotonic_s()
        booking = self._book(prepared, began_s)
        while pacer.is_on() and (remaining_s := booking.start_s - clock.monotonic_s()) > 0:
            self._guard()
            due = self._prefetcher.next_due(
                tuple(Mode), may_claim=self._may_claim(), until_s=booking.start_s
            )
            if due is None:
                self.activity = f"paced: {booking.reason}"
                self._link.idle(min(remaining_s, _PACED_SLICE_S))
                self._count_handed_over(wait_s=0.0)
                continue
            due_began_s, sent = clock.monotonic_s(), self._sent
            self._book(due, due_began_s)  # it starts at once
            self._send(due)
            self._wait_for_rate_limit(self._sent - sent, due_began_s)
        if booking.start_s > began_s:
            self._note_wait_for_levels(clock.monotonic_s() - began_s, booking.reason)
        self._send(prepared)
        self._wait_for_rate_limit(self._sent - sent_before, began_s)

    def _book(self, prepared: Prepared, began_s: float) -> Booking:
        pacer, messages = self._setup.pacer, prepared.messages
        self._prefetcher.claimed_s.setdefault(prepared.batch.id, began_s)
        now = self._setup.clock.now()
        # an odd step, or rows due at regular intervals would all have the same low bits
        step = len(messages) // _WEIGHED_ROWS | 1
        delays = [delay_s(each.due_at, now=now) for each in messages[::step]]
        first_s = min((each.due_at for each in messages), default=now) - now
        weight = len(messages) / max(len(delays), 1)
        return pacer.book(
            load(delays, receiving=pacer.receiving, weight=weight),
            now_s=began_s,
            latest_s=began_s + first_s.total_seconds() - _SOONEST_S,
        )

    def _send(self, prepared: Prepared) -> None:
        try:
            if prepared.batch.mode is Mode.STAGED and prepared.messages:
                self._hand_over_staged(prepared)
            else:
                self._hand_over_directly(prepared)
        except MessageTooLarge as exc:
            # the next session prepares the batch anew and quarantines the row
            self._setup.limit_bodies(exc.limit_bytes)
            raise
        self._sent += len(prepared.messages)

    def _hand_over_directly(self, prepared: Prepared) -> None:
        batch, unroutable = self._setup.of(prepared.batch).direct.hand_over(
            prepared, self._link, self._lease, report=self._report
        )
        self._count(batch, len(prepared.messages) - len(unroutable))

    def _report(self, activity: str) -> None:
        self.activity = activity

    def _hand_over_staged(self, prepared: Prepared) -> None:
        self.activity = f"staging batch {prepared.batch.id}"
        staged = self._staging()
        while (abandoned := staged.hand_over(prepared)) is not None:
            self._guard()
            self._size.halve(self._size.rows)
            _log.warning(
                "attempt too slow; batch is staged again with fresh delays",
                extra={
                    "action": "attempt_abandoned",
                    "batch": prepared.batch.id,
                    "rows": self._size.rows,
                },
            )
            prepared = self._setup.of(abandoned).preparer.prepare(abandoned, self._lease)
        self._count_handed_over(wait_s=0.0)

    def _finish_receipts(self) -> bool:
        if self._staged is None:
            return False
        self.activity = self._receipt_activity()
        self._count_handed_over(wait_s=0.5)
        self._end_if_receipt_late()
        return self._staged.has_open_commits()

    def _resolve(self, batch: Batch) -> None:
        self.activity = f"resolving batch {batch.id}"
        rows = frozenset(row.row_index for row in self._batches.rows(batch))
        outcome = self._staging().resolve(batch, rows)
        _log.info(
            "interrupted commit resolved",
            extra={"action": "commit_resolved", "batch": batch.id, "state": str(outcome.state)},
        )
        self._count_handed_over(wait_s=0.0)

    def _recover_batch(self, batch: Batch) -> None:
        self._guard()
        _log.info(
            "recovering an open batch",
            extra={"action": "batch_recovered", "batch": batch.id, "state": str(batch.state)},
        )
        # the operator may have put it in after granting what the broker refused
        by = self._setup.of(batch)
        by.preparer.destinations.forget_refusals()
        answered = by.direct.answered(batch)
        self._hand_over(self._prefetcher.prepare(batch, answered=answered))

    def _finish_half_done(self) -> None:
        now_s = self._setup.clock.monotonic_s()
        if not self._half_done or now_s < self._resume_at_s:
            return
        self._resume_at_s = now_s + _RESUME_EVERY_S
        pending, self._half_done, self.unfinished = self._half_done, [], None
        for batch in pending:
            try:
                resumed = self._resume(batch)
            except StoreError as exc:
                self._half_done.append(batch)
                self.unfinished = exc
                _log.warning(
                    "half-done batch waits for its store; retrying",
                    extra={"action": "claim_waits", "batch": batch.id, "error": str(exc)},
                )
                continue
            for whole in self._for_this_broker([] if resumed is None else [resumed]):
                self._recover_batch(whole)

    def _resume(self, batch: Batch) -> Batch | None:
        self.activity = f"finishing the {batch.state} of batch {batch.id}"
        try:
            resumed = self._prefetcher.resume(batch)
        except SourceGone as exc:
            self.stuck = exc
            _log.error(
                "half-done batch needs a decision: its store is gone; use `migrator db resolve`",
                extra={
                    "action": "claim_stuck",
                    "batch": batch.id,
                    "state": str(batch.state),
                    "error": str(exc),
                },
            )
            return None
        _log.info(
            "half-done claim or release finished",
            extra={
                "action": "claim_resumed",
                "batch": batch.id,
                "state": str(batch.state),
                "rows": 0 if resumed is None else resumed.size,
            },
        )
        return resumed

    def _staging(self) -> StagedHandOver:
        if self._staged is None:
            given = self._setup
            self._staged = StagedHandOver(
                batches=given.batches,
                clock=given.clock,
                staging=self._link.staging(),
                lease=self._lease,
                receipt_deadline_s=given.receipt_deadline_s,
                fault=given.fault,
                guard=self._guard_receipts,
                max_without_receipt=self._max_commits,
            )
        return self._staged

    def _guard_receipts(self) -> None:
        """While receipts are late, pass on the batches behind them and hand over overdue rows."""
        self._guard()
        self._end_if_receipt_late()
        if not self._staging().receipts_are_late:
            return
        behind, self._behind = self._behind, []
        for batch in behind:
            self._pass_on(batch)
        while prepared := self._prefetcher.next_due([Mode.DIRECT], may_claim=self._may_claim()):
            self._hand_over(prepared)
        self.activity = self._receipt_activity()

    def _end_if_receipt_late(self) -> None:
        if self._is_ending() and (late := self._staging().late_receipt()) is not None:
            raise Interrupted(f"asked to stop while a receipt is late: {late}")

    def _receipt_activity(self) -> str:
        return self._staging().late_receipt() or "waiting for receipts"

    def _count_handed_over(self, *, wait_s: float) -> None:
        handed_over = () if self._staged is None else self._staged.take_handed_over(wait_s)
        for batch, rows, seconds in handed_over:
            if seconds is not None and self._size.resize(rows, seconds):
                _log.info(
                    "attempt was slow to reach the levels; the next batches are smaller",
                    extra={
                        "action": "batches_made_smaller",
                        "batch": batch.id,
                        "seconds": round(seconds, 2),
                        "rows": self._size.rows,
                    },
                )
            self._count(batch, rows)

    def _count(self, batch: Batch, rows: int) -> None:
        now_s = self._setup.clock.monotonic_s()
        seconds = now_s - self._prefetcher.claimed_s.pop(batch.id, now_s)
        self._setup.handed_over(batch, rows, seconds)
        _log.info(
            "batch handed over",
            extra={
                "action": "batch_handed_over",
                "batch": batch.id,
                "endpoint": batch.endpoint,
                "mode": str(batch.mode),
                "rows": rows,
                "attempt": batch.attempt,
            },
        )

    def _note_wait_for_levels(self, waited_s: float, reason: str) -> None:
        self._setup.paced(waited_s)
        self._paced_s += waited_s
        now_s = self._setup.clock.monotonic_s()
        if now_s >= self._log_paced_at_s:
            _log.info(
                "throttled: delay levels at their release rate",
                extra={"action": "paced", "why": reason, "seconds": round(self._paced_s, 1)},
            )
            self._log_paced_at_s, self._paced_s = now_s + _LOG_PACED_EVERY_S, 0.0

    def _wait_for_rate_limit(self, rows: int, began_s: float) -> None:
        while rows and (limit := self._setup.pace().rate_limit_per_s):
            remaining_s = began_s + rows / limit - self._setup.clock.monotonic_s()
            if remaining_s <= 0:
                return
            self._guard()
            self.activity = f"throttled: rate limit of {rate_words(limit)}"
            self._link.idle(min(remaining_s, 0.5))
