"""One lane's work while it holds its lease and its link: recover first, then batch after batch.

A lane is single-threaded; while the broker works on one batch, the next ones are claimed and
converted in the background, in order. Whatever ends a session (a lost connection, a lost lease, a
kill), the next one begins with ``recover`` and finds all it needs in the ledger.
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
from migrator.handover.pace import Booking, Pacer
from migrator.handover.ports import Link
from migrator.handover.prepare import Prepared, Preparer, QuarantineLimit
from migrator.handover.runs import HandOver, OtherRuns
from migrator.handover.staged import MAX_WITHOUT_RECEIPT, StagedHandOver
from migrator.ledger.run_terms import BrokerPlace
from migrator.ledger.states import HALF_DONE, BatchState, Event, Mode
from migrator.ledger.work import Batch, Batches, Clock, FaultPoint, Lease
from migrator.nservicebus.timeouts import BatchId, RunId
from migrator.text import rate_words

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DEPTH: Final = 2
"""Batches under way behind the one in hand: one is claimed while the other is converted."""
_SERVE_EVERY_S: Final = 0.2
"""A receipt that comes meanwhile is read about when it came: how long it took is measured."""
_PACED_SLICE_S: Final = 0.05
"""Between two looks at receipts while the levels have no room; waits for them are short."""
_SAY_PACED_EVERY_S: Final = 60.0
_OVERDUE_EVERY_S: Final = 0.2
"""Between two claims of overdue rows that found none, while a batch waits."""
_SOONEST_S: Final = 1.0
"""A batch is not put off until less than this before its first row is due."""
_RESUME_EVERY_S: Final = 10.0
"""Between two tries to finish what is half done while its store does not answer."""
_WEIGHED_ROWS: Final = 128
"""Of a large batch, the delays of about so many rows tell what all of them cost the broker."""

HandedOver = Callable[[Batch, int, float], None]
"""Called with a batch that is handed over, how many of its rows went to the broker, and how many
seconds after its claim, or after it was taken up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much at a time, and how fast; may change between two batches."""

    batch_rows: int
    rate_limit_per_s: int = 0
    """Messages per second; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSetup:
    """What one lane hands over with; it outlives its links, each of which gets a session."""

    batches: Batches
    clock: Clock
    claimer: Claimer
    preparer: Preparer
    direct: DirectHandOver
    claiming: Executor
    """Does one claim after the other; the claimer is not made for two at once."""
    preparing: Executor
    """Prepares one batch after the other, and may wait for *claiming*."""
    pace: Callable[[], Pace]
    """Asked before every batch."""
    pacer: Pacer
    """Shared by all lanes of the process."""
    quarantine_limit: QuarantineLimit
    """The same; is told what was claimed."""
    receipt_deadline_s: float
    """A commit without its receipt is doubtful then."""
    others: OtherRuns | None = None
    """Hands over what other runs claimed; None: there are no other runs."""
    fault: FaultPoint = lambda _name: None
    handed_over: HandedOver = lambda _batch, _rows, _seconds: None
    paced: Callable[[float], None] = lambda _seconds: None
    """Called with how many seconds a batch waited until the levels had room for it."""

    def of(self, batch: Batch) -> HandOver:
        """Return what hands *batch* over as its own run would."""
        other = None if self.others is None else self.others.hand_over(batch)
        return other or HandOver(preparer=self.preparer, direct=self.direct)

    def elsewhere(self, run: RunId) -> BrokerPlace | None:
        """Return the place to which *run* sends its timeouts; None: it is where we send ours."""
        return None if self.others is None else self.others.elsewhere(run)

    def limit_frames(self, frame_max_bytes: int) -> None:
        """Convert for a connection that negotiated this frame size; 0: no limit."""
        self.preparer.limit_frames(frame_max_bytes)
        if self.others is not None:
            self.others.limit_frames(frame_max_bytes)

    def limit_bodies(self, body_max_bytes: int) -> None:
        """Convert for a broker that takes no larger body than this."""
        self.preparer.limit_bodies(body_max_bytes)
        if self.others is not None:
            self.others.limit_bodies(body_max_bytes)


class Prefetcher:
    """The next batches of a lane, claimed and prepared while another one is handed over.

    They are begun in order, awaited in order, and always awaited. While a lane waits for one, the
    broker is served: a claim of documents can take longer than the broker keeps a silent connection
    (two to three heartbeats of five seconds). That is no sign of life: whether the work hangs, the
    watchdog has to notice. Used by the lane's thread only.

    *rows* says how many the next batch has; *serve* lets the connections do what is due.
    """

    def __init__(
        self,
        setup: LaneSetup,
        lease: Lease,
        *,
        rows: Callable[[], int],
        serve: Callable[[], None],
    ) -> None:
        self._setup = setup
        self._lease = lease
        self._rows = rows
        self._serve = serve
        self._under_way: deque[Future[Prepared | None]] = deque()
        self._awaited: Future[Any] | None = None
        self._overdue: Future[Prepared | None] | None = None
        """The claim of overdue rows that is under way, out of turn."""
        self._overdue_at_s = float("-inf")
        """When there may be the next."""
        self.claimed_s: dict[BatchId, float] = {}
        """When each batch was claimed; monotonic. Whoever is done with one takes it out."""

    def next(self, *, may_claim: bool) -> Prepared | None:
        """Return the next batch, and have those behind it worked on meanwhile; None: no rows."""
        prepared = None
        while prepared is None and self._under_way:
            prepared = self._wait_for(self._under_way.popleft())
        if prepared is None and may_claim:
            prepared = self._wait_for(self._begin())
        if prepared is not None and may_claim:
            while len(self._under_way) < _DEPTH:
                self._under_way.append(self._begin())
        return prepared

    def next_due(
        self, modes: Collection[Mode], *, may_claim: bool, until_s: float = math.inf
    ) -> Prepared | None:
        """Return a batch that nothing may put off any longer, out of turn; None: there is none.

        It is one of those under way, or one of overdue rows that is claimed for this.

        Args:
            modes: Of which modes it may be.
            may_claim: Whether rows may be claimed.
            until_s: Not to be waited for that claim any longer; it goes on. Monotonic.
        """
        clock, claim = self._setup.clock, self._overdue
        if may_claim and claim is None and clock.monotonic_s() >= self._overdue_at_s:
            claim = self._overdue = self._begin(only_overdue=True)
            self._under_way.append(claim)
        while claim is not None and not claim.done() and clock.monotonic_s() < until_s:
            self._wait_a_little(claim, min(until_s - clock.monotonic_s(), _SERVE_EVERY_S))
        if claim is not None and claim.done():
            self._overdue = None
            if claim.result() is None:
                self._overdue_at_s = clock.monotonic_s() + _OVERDUE_EVERY_S
        for future in tuple(self._under_way):
            if not future.done():
                continue
            found = future.result()
            if found is None:
                self._under_way.remove(future)
            elif found.batch.mode in modes and _is_due(found, clock.now()):
                self._under_way.remove(future)
                return found
        return None

    def prepare(self, batch: Batch, *, answered: Collection[int] = ()) -> Prepared:
        """Return the messages of a batch in hand; see ``Preparer.prepare``."""
        given = self._setup
        preparer = given.of(batch).preparer
        return self._wait_for(
            given.preparing.submit(preparer.prepare, batch, self._lease, answered=answered)
        )

    def resume(self, batch: Batch) -> Batch | None:
        """Finish a claim, or a release, that is half-done; see ``Claims.resume``."""
        given = self._setup
        return self._wait_for(given.claiming.submit(given.claimer.resume, batch, self._lease))

    def end(self) -> None:
        """Wait until nothing is under way; what goes wrong is logged."""
        left = [*filter(None, [self._awaited]), *self._under_way]
        self._awaited = None
        self._under_way.clear()
        for future in left:
            try:
                future.result()
            except Exception:
                _log.warning(
                    "claiming the next batch ahead failed; if it was claimed, it is in the ledger",
                    extra={"action": "claim_ahead_failed", "lane": self._lease.lane},
                    exc_info=True,
                )

    def _begin(self, *, only_overdue: bool = False) -> Future[Prepared | None]:
        given = self._setup
        claimed = given.claiming.submit(
            given.claimer.claim, self._lease, max_rows=self._rows(), only_overdue=only_overdue
        )

        def prepare() -> Prepared | None:
            batch = claimed.result()
            if batch is None:
                return None
            self.claimed_s[batch.id] = given.clock.monotonic_s()
            prepared = given.preparer.prepare(batch, self._lease)
            given.quarantine_limit.count(prepared)
            return prepared

        return given.preparing.submit(prepare)

    def _wait_for(self, future: Future[T]) -> T:
        """Return the result of *future*, or raise its error; serve the broker meanwhile.

        Raises:
            TargetUnavailable: A connection went away; the work goes on until ``end``.
        """
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
    """Return whether *prepared* goes without waiting for a level; see ``Pacer.book``."""
    soon = now + timedelta(seconds=_SOONEST_S)
    return not prepared.messages or any(each.due_at <= soon for each in prepared.messages)


class LaneSession:
    """The work of one lane over one link.

    Work under *lease* over *link*; its staging is opened when first needed.

    Args:
        setup: What outlives the session.
        lease: The lane's.
        link: The broker.
        guard: Raises when everything is to stop, or when the lane is no longer ours.
        may_claim: Whether overdue rows may be claimed while receipts are waited for.
        is_ending: Whether to wait no longer for a receipt that is late.
        max_commits: How many may be without receipt until the first one comes.
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
        self._prefetcher = Prefetcher(setup, lease, rows=lambda: self._size.rows, serve=self._serve)
        self._sent = 0
        """Rows handed over; those that did not get there, too."""
        self._paced_s, self._say_paced_s = 0.0, float("-inf")
        """How long batches waited for the levels since that was logged, and when it is again."""
        self._behind: list[Batch] = []
        """Staged batches that are claimed, and wait until the commits before them are resolved."""
        self.passed_on = 0
        """How many batches were left to other lanes."""
        self.doing = "starting"
        self.stuck: SourceGone | None = None
        """Why a half-done batch of this lane waits for a person, once ``recover`` met one."""
        self.unfinished: StoreError | None = None
        """Why half-done batches are still so: their store does not answer now."""
        self._half_done: list[Batch] = []
        self._resume_at_s = float("-inf")

    def recover(self) -> None:
        """Finish or take back everything an earlier owner of the lane left open.

        Rows that were overdue come first, because they wait for nothing; then commits without a
        known outcome: nothing else may be nacked before. When that takes longer than usual, what
        is claimed behind them is left to other lanes. What is half-done comes last: it needs
        the document store, and what is claimed need not wait for that. What came from a store
        that is gone stays as it is, and stops nothing else. So does what goes to another broker
        than this link's: what of it is claimed is left to a daemon that is connected there.
        """
        opened = [self._taken_back(batch) for batch in self._batches.open_batches(self._lease)]
        opened = self._for_here(opened)
        for batch in opened:
            if batch.mode is Mode.DIRECT and batch.state not in HALF_DONE:
                self._take_up(batch)
        self._behind = [
            batch
            for batch in opened
            if batch.mode is Mode.STAGED and batch.state is BatchState.CLAIMED
        ]
        for batch in opened:
            if batch.state is BatchState.COMMITTING:
                self._resolve(batch)
        self._behind = []
        for batch in self._for_here(self._batches.open_batches(self._lease)):
            if batch.state not in HALF_DONE:
                self._take_up(batch)
        self._half_done = [batch for batch in opened if batch.state in HALF_DONE]
        self._finish_half_done()

    def turn(self, *, may_claim: bool) -> bool:
        """Do the next piece of work; return False when there is none for now.

        Args:
            may_claim: False while draining: only what is already claimed is finished.
        """
        self._hear()
        prepared = self._prefetcher.next(may_claim=may_claim)
        if prepared is None:
            return self._finish_receipts()
        self._hand_over(prepared)
        return True

    def pick_up(self) -> bool:
        """Hand over batches that any lane may take, or that were put into this one; was there one?

        A quarantine retry does so, `migrator db resolve --as claimed`, and a lane that passes on.
        """
        self._finish_half_done()
        others = self._setup.others
        not_of = () if others is None else others.known_elsewhere
        put_in = self._for_here(self._batches.put_in(self._lease, not_of=not_of))
        for batch in put_in:
            self._setup.of(batch).preparer.holding.let_try(batch)
            self._take_up(batch)
        return bool(put_in)

    def idle(self, wait_s: float) -> bool:
        """Serve the broker while there is nothing to do; return whether there is something now."""
        self.doing = "idle"
        self._link.idle(wait_s)
        return self._hear()

    def close(self) -> None:
        """Let the background finish, so that the next session sees what it claimed."""
        self._prefetcher.end()

    # ── what others left ────────────────────────────────────────────────────────────────────

    def _taken_back(self, batch: Batch) -> Batch:
        """Return *batch*; what was only staged is claimed again, as nothing of it can have left."""
        if batch.state is not BatchState.STAGING:
            return batch
        return self._batches.advance(batch, Event.ABANDON, self._lease)

    def _for_here(self, opened: Sequence[Batch]) -> list[Batch]:
        """Return those of *opened* that go to this link's broker; leave the others to others."""
        mine = []
        for batch in opened:
            # what is half done asks its store first
            if batch.state in HALF_DONE or self._setup.elsewhere(batch.run) is None:
                mine.append(batch)
            elif batch.state is BatchState.CLAIMED:
                self._pass_on(batch)
        return mine

    def _pass_on(self, batch: Batch) -> None:
        self._batches.pass_on(batch, self._lease)
        self.passed_on += 1
        _log.info(
            "a claimed batch is left to another lane",
            extra={"action": "batch_passed_on", "batch": batch.id, "lane": self._lease.lane},
        )

    # ── the parts of a turn ─────────────────────────────────────────────────────────────────

    def _hear(self) -> bool:
        """Take up what was answered late; return whether rows may be claimed because of that."""
        if not self._setup.direct.holding.hear():
            return False
        self._setup.claimer.look.forget()
        return True

    def _serve(self) -> None:
        self._link.serve()
        self._count_settled(wait_s=0.0)

    def _hand_over(self, prepared: Prepared) -> None:
        """Send *prepared* once the levels have room; what is due meanwhile needs none, and goes.

        Its delays are fixed only then.
        """
        clock, pacer, sent_before = self._setup.clock, self._setup.pacer, self._sent
        began_s = clock.monotonic_s()
        booking = self._book(prepared, began_s)
        while pacer.is_on() and (left_s := booking.start_s - clock.monotonic_s()) > 0:
            self._guard()
            due = self._prefetcher.next_due(
                tuple(Mode), may_claim=self._may_claim(), until_s=booking.start_s
            )
            if due is None:
                self.doing = f"paced: {booking.reason}"
                self._link.idle(min(left_s, _PACED_SLICE_S))
                self._count_settled(wait_s=0.0)
                continue
            due_began_s, sent = clock.monotonic_s(), self._sent
            self._book(due, due_began_s)  # it starts at once
            self._send(due)
            self._hold_rate(self._sent - sent, due_began_s)
        if booking.start_s > began_s:
            self._note_pace(clock.monotonic_s() - began_s, booking.reason)
        self._send(prepared)
        self._hold_rate(self._sent - sent_before, began_s)  # with what went out of turn meanwhile

    def _book(self, prepared: Prepared, began_s: float) -> Booking:
        """Have the levels expect *prepared*."""
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
            # learnt the hard way; the next session prepares the batch anew and quarantines
            self._setup.limit_bodies(exc.limit_bytes)
            raise
        self._sent += len(prepared.messages)

    def _hand_over_directly(self, prepared: Prepared) -> None:
        batch, unroutable = self._setup.of(prepared.batch).direct.hand_over(
            prepared, self._link, self._lease, tell=self._tell
        )
        self._count(batch, len(prepared.messages) - len(unroutable))

    def _tell(self, doing: str) -> None:
        self.doing = doing

    def _hand_over_staged(self, prepared: Prepared) -> None:
        self.doing = f"staging batch {prepared.batch.id}"
        staged = self._staging()
        while (abandoned := staged.hand_over(prepared)) is not None:
            self._guard()
            self._size.halve(self._size.rows)
            _log.warning(
                "an attempt took too long; its batch is staged again, with fresh delays",
                extra={
                    "action": "attempt_abandoned",
                    "batch": prepared.batch.id,
                    "rows": self._size.rows,
                },
            )
            prepared = self._setup.of(abandoned).preparer.prepare(abandoned, self._lease)
        self._count_settled(wait_s=0.0)

    def _finish_receipts(self) -> bool:
        """Wait a little for receipts still out; return whether some are."""
        if self._staged is None:
            return False
        self.doing = self._waiting()
        self._count_settled(wait_s=0.5)
        self._end_if_late()
        return self._staged.has_open_commits()

    def _resolve(self, batch: Batch) -> None:
        self.doing = f"resolving batch {batch.id}"
        rows = frozenset(row.row_index for row in self._batches.rows(batch))
        outcome = self._staging().resolve(batch, rows)
        _log.info(
            "an interrupted commit is resolved",
            extra={"action": "commit_resolved", "batch": batch.id, "state": str(outcome.state)},
        )
        self._count_settled(wait_s=0.0)

    def _take_up(self, batch: Batch) -> None:
        self._guard()
        _log.info(
            "taking over a batch that was left open",
            extra={"action": "batch_recovered", "batch": batch.id, "state": str(batch.state)},
        )
        # an operator may have put it in, who has just mended what was refused
        by = self._setup.of(batch)
        by.preparer.destinations.forget_refusals()
        answered = by.direct.answered(batch)
        self._hand_over(self._prefetcher.prepare(batch, answered=answered))

    def _finish_half_done(self) -> None:
        """Finish what is half claimed or half put back; try again what its store keeps from it."""
        now_s = self._setup.clock.monotonic_s()
        if not self._half_done or now_s < self._resume_at_s:
            return
        self._resume_at_s = now_s + _RESUME_EVERY_S
        left, self._half_done, self.unfinished = self._half_done, [], None
        for batch in left:
            try:
                resumed = self._resume(batch)
            except StoreError as exc:
                self._half_done.append(batch)
                self.unfinished = exc
                _log.warning(
                    "a half-done batch waits for its store; it is tried again",
                    extra={"action": "claim_waits", "batch": batch.id, "error": str(exc)},
                )
                continue
            for whole in self._for_here([] if resumed is None else [resumed]):
                self._take_up(whole)

    def _resume(self, batch: Batch) -> Batch | None:
        self.doing = f"finishing the {batch.state} of batch {batch.id}"
        try:
            resumed = self._prefetcher.resume(batch)
        except SourceGone as exc:
            self.stuck = exc
            _log.error(
                "a half-done batch needs a decision: its store is gone; use `migrator db resolve`",
                extra={
                    "action": "claim_stuck",
                    "batch": batch.id,
                    "state": str(batch.state),
                    "error": str(exc),
                },
            )
            return None
        _log.info(
            "a half-done claim or release was finished",
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
                guard=self._meanwhile,
                max_without_receipt=self._max_commits,
            )
        return self._staged

    def _meanwhile(self) -> None:
        """Go on with rows already due, which need no receipt, while receipts are late.

        What waits behind them is left to other lanes.
        """
        self._guard()
        self._end_if_late()
        if not self._staging().receipts_are_late:
            return
        behind, self._behind = self._behind, []
        for batch in behind:
            self._pass_on(batch)
        while prepared := self._prefetcher.next_due([Mode.DIRECT], may_claim=self._may_claim()):
            self._hand_over(prepared)
        self.doing = self._waiting()

    def _end_if_late(self) -> None:
        """Wait no longer for a receipt that is late when all is to end; the next start looks again.

        Raises:
            Interrupted: That is so. The commit stays as it is.
        """
        if self._is_ending() and (late := self._staging().late_receipt()) is not None:
            raise Interrupted(f"asked to stop while a receipt is late: {late}")

    def _waiting(self) -> str:
        return self._staging().late_receipt() or "waiting for receipts"

    def _count_settled(self, *, wait_s: float) -> None:
        settled = self._staged.settled(wait_s) if self._staged is not None else ()
        for batch, rows, seconds in settled:
            if seconds is not None and self._size.resize(rows, seconds):
                _log.info(
                    "an attempt took long to reach the levels; the next batches are smaller",
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

    def _note_pace(self, waited_s: float, reason: str) -> None:
        self._setup.paced(waited_s)
        self._paced_s += waited_s
        now_s = self._setup.clock.monotonic_s()
        if now_s >= self._say_paced_s:
            _log.info(
                "the delay levels set the pace",
                extra={"action": "paced", "why": reason, "seconds": round(self._paced_s, 1)},
            )
            self._say_paced_s, self._paced_s = now_s + _SAY_PACED_EVERY_S, 0.0

    def _hold_rate(self, rows: int, began_s: float) -> None:
        """Wait until *rows* are no more than the rate allows; a new rate counts at once."""
        while rows and (limit := self._setup.pace().rate_limit_per_s):
            left_s = began_s + rows / limit - self._setup.clock.monotonic_s()
            if left_s <= 0:
                return
            self._guard()
            self.doing = f"throttled: rate limit of {rate_words(limit)}"
            self._link.idle(min(left_s, 0.5))
