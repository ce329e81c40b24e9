"""The workers that hand over: one thread per lane, and one for each lane that is adopted.

Each takes a lane, opens a link, recovers, works; when something breaks it begins again. An adopted
lane may wait for minutes for a receipt, so no lane's thread adopts one that may have to: its own
rows would come late. Nor does any adopted lane wait for another.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from migrator.errors import (
    HandOverDoubtful,
    Interrupted,
    LaneGuarded,
    LeaseLost,
    LedgerAdopted,
    MigratorError,
    ReceiptMissing,
    TargetUnavailable,
)
from migrator.handover.lane import LaneSession, LaneSetup
from migrator.handover.link import LaneLinks
from migrator.handover.ports import Link
from migrator.handover.staged import MAX_WITHOUT_RECEIPT
from migrator.ledger.lease_keeper import OwnedLease, evict_dead
from migrator.ledger.leases import OpenBatch
from migrator.ledger.run_terms import BrokerPlace
from migrator.ledger.states import HALF_DONE, BatchState
from migrator.ledger.work import Backoff, Lease
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, BatchId, Lane
from migrator.service.worker import Worker, WorkerContext, WorkerPool, run_leased
from migrator.throttle.guard import ClaimGuard

_log = logging.getLogger(__name__)

_SLICE_S: Final = 1.0
"""Between two looks at whether to stop, while there is nothing to do."""
_SLICE_ONCE_S: Final = 0.2
"""With *once*, somebody waits for the end."""
_LONGEST_REST_S: Final = 3.0
"""Then it is looked for batches that an operator put into the lane, in any case."""
_LONGEST_REST_ONCE_S: Final = 1.0
"""With *once*, what is waited for is the end of others' work."""
_LATE_ANSWER_S: Final = 5.0
"""With *once*, so long a destination that answers nothing is waited for before the end."""
_LOOK_EVERY_S: Final = 2.0
"""How often a lane looks for batches that an operator put into it."""
_ADOPT_EVERY_S: Final = 4.0
"""How often it is looked for lanes to adopt, at least."""
_SLACK_S: Final = 0.2
"""So soon after the end of a lease it is looked whether its owner renewed it."""
_GUARDED_S: Final = 30.0
"""A lane that another connection has on the broker is left alone for so long."""
_MOST_ADOPTED: Final = 32
"""Lanes that are adopted at a time."""
_TELL_EVERY_S: Final = 60.0
"""How often the log names a batch that waits for another daemon."""
_MAY_WAIT: Final = frozenset({BatchState.COMMITTING, *HALF_DONE})
"""Batches in these states may have to wait, for a receipt or for their store."""
_ADOPT_AGAIN_S: Final = 10.0
"""After a failure, a dead owner's lane is left alone for so long."""
LOCKS_S: Final = 10.0
"""With *once*: so long rows are waited for that others have locked, after the last that was moved.
A timeout manager has one locked for as long as it takes to send it."""
_LOOK_AGAIN_S: Final = 2.0
"""While there is no lane to be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOpen:
    """What is left open in lanes of hand-over that have no living owner."""

    lanes: Mapping[Lane, Sequence[OpenBatch]]
    """All of it."""
    adoptable: Sequence[Lane]
    """Lanes in which something can be finished here; first those in which nothing may wait."""
    ready: Sequence[Lane]
    """Those of them in which all can be finished at once."""
    elsewhere: Mapping[OpenBatch, BrokerPlace]
    """What another broker's daemon has to finish, in lanes with an owner, too."""


NewSetup = Callable[[ExitStack], LaneSetup]
"""Makes what one thread hands over with; the stack ends its pools."""


class LaneWorker(Worker):
    """A thread that may take lanes; all of its waiting is interrupted by the stop."""

    crash_action = "lane_crashed"
    longest_backoff_s = 5.0

    def __init__(
        self,
        name: str,
        context: WorkerContext,
        claims: ClaimGuard,
        links: LaneLinks,
        new_setup: NewSetup,
    ) -> None:
        super().__init__(name, context)
        self._claims = claims
        self._throttle = claims.throttle
        self._names = [endpoint.name for endpoint in claims.endpoints]
        self._links = links
        self._setup = new_setup(self.ends)
        self._session: LaneSession | None = None
        self._max_commits = MAX_WITHOUT_RECEIPT
        """How many commits a session begins with; one, once a receipt did not come."""
        self._has_open_batches = False
        """Whether the last look found open batches, of any owner."""

    @property
    def _slice_s(self) -> float:
        return _SLICE_ONCE_S if self._once else _SLICE_S

    def _may_claim(self) -> bool:
        return not self.is_ending and self._claims.may_claim()

    @contextmanager
    def _linked(self, held: OwnedLease) -> Iterator[LaneSession]:
        """Connect, and finish what the lane's last owner left open."""
        lane, check = held.lease.lane, partial(self.check, held)
        link = self.link = self._links.open(held.lease, check)
        self._setup.limit_frames(link.frame_max_bytes)
        session = self._session = LaneSession(
            self._setup,
            lease=held.lease,
            link=link,
            guard=check,
            may_claim=self._may_claim,
            is_ending=self._is_told_to_end,
            max_commits=self._max_commits,
        )
        connection = self._links.connection_of(lane)
        node = f" (at {connection.address.host_port})" if len(connection.nodes) > 1 else ""
        held.doing = partial(self._doing, session, link, node)
        try:
            session.recover()
            if session.stuck is not None:  # it waits for a person; the rest goes on
                self._stop.stuck[lane] = session.stuck
            yield session
        finally:
            self.link = self._session = None
            link.close()  # first: whatever the background still does, nothing more is sent
            session.close()

    def _is_told_to_end(self) -> bool:
        return self.is_ending

    def _doing(self, session: LaneSession, link: Link, node: str) -> str:
        """Return what *session* does, or why it waits, and at which of several nodes."""
        if blocked := link.blocked_reason:
            return f"throttled: {blocked}{node}"
        doing = session.activity
        reason = self._throttle.reason_for_all(self._names) if doing == "idle" else None
        return (f"held: {reason.text}" if reason else doing) + node

    def _leave(self, lane: Lane, text: str, action: str, exc: MigratorError) -> None:
        """Leave *lane* to a person."""
        self._stop.doubtful.add(lane)
        self.failure = exc
        _log.error(text, extra={"action": action, "lane": lane, "error": str(exc)})

    # ── which lane ──────────────────────────────────────────────────────────────────────────

    def _take(self, lane: Lane, *, is_adopted: bool = False) -> OwnedLease | None:
        return self._keeper.acquire(lane, doing=partial(str, "working"), is_adopted=is_adopted)

    def _left_open(self) -> LeftOpen:
        """Return what is left open in lanes that no living owner has."""
        evict_dead(self._leases, self._context.is_surely_dead)
        lanes = defaultdict[Lane, list[OpenBatch]](list)
        elsewhere: dict[OpenBatch, BrokerPlace] = {}
        opened = self._leases.open_batches()
        self._has_open_batches = bool(opened)
        for batch in opened:
            if not batch.has_owner:
                lanes[batch.lane].append(batch)
            if batch.is_put_in or not batch.has_owner:
                place = self._setup.elsewhere(batch.run)
                if place is not None:
                    elsewhere[batch] = place
        ours = {
            lane: [each for each in batches if each not in elsewhere]
            for lane, batches in lanes.items()
            if lane not in self._not_ours_to_finish
        }
        ready = [
            lane
            for lane, batches in ours.items()
            if len(batches) == len(lanes[lane]) and _MAY_WAIT.isdisjoint(b.state for b in batches)
        ]
        others = [lane for lane, batches in ours.items() if batches and lane not in ready]
        return LeftOpen(lanes=lanes, adoptable=[*ready, *others], ready=ready, elsewhere=elsewhere)

    @property
    def _not_ours_to_finish(self) -> set[Lane]:
        """Lanes in which only a person can go on."""
        return self._stop.doubtful | self._stop.stuck.keys()

    @property
    def _sources(self) -> set[str]:
        return {endpoint.source for endpoint in self._claims.endpoints}

    def _note_elsewhere(self) -> None:
        """Note which batches of our endpoints only a daemon on another broker can finish."""
        self._stop.elsewhere = {
            batch.id: TargetUnavailable(
                f"batch {batch.id} waits for a daemon on {place}: {what_to_do(batch.id)}"
            )
            for batch, place in self._left_open().elsewhere.items()
            if batch.source in self._sources
        }

    def lanes_of_others(self) -> set[Lane]:
        """Return lanes with open batches of ours that no lane's thread of this process works on.

        Their owner either finishes them or its lease ends and they are adopted; until then they
        are not done. One that is adopted is not, either: its link may be lost before it is. What
        was noted to go elsewhere is not waited for.
        """
        left = self._keeper.working_lanes() | self._not_ours_to_finish
        return {
            batch.lane
            for batch in self._leases.open_batches()
            if batch.source in self._sources
            and batch.id not in self._stop.elsewhere
            and batch.lane not in left
        }


class LaneThread(LaneWorker):
    """Works on one lane until there is nothing left, or until told to stop."""

    _look_at_s = 0.0
    _locked_since_s: float | None = None
    """With *once*: since when rows are there that others have locked; monotonic."""

    def __init__(
        self,
        name: str,
        context: WorkerContext,
        claims: ClaimGuard,
        links: LaneLinks,
        new_setup: NewSetup,
    ) -> None:
        super().__init__(name, context, claims, links, new_setup)
        self._guarded_until_s: dict[Lane, float] = {}
        """Lanes that another connection has on the broker, and until when to leave them."""

    def _run(self) -> None:
        run_leased(
            self,
            self._acquire,
            self._work,
            tolerates=self._tolerates,
            log_lost=self._log_lost,
        )

    def _acquire(self) -> OwnedLease:
        """Take a lane that was left open and can be finished at once, else the first free one.

        It waits for the end of a recall. What may have to wait is left to the adopter.

        Raises:
            Interrupted: The thread is to end.
            LedgerAdopted: See ``Leases.acquire``.
        """
        ready = (self._take(lane) for lane in self._left_open().ready if self._may_try(lane))
        return next(filter(None, ready), None) or self._first_free()

    def _may_try(self, lane: Lane) -> bool:
        return time.monotonic() >= self._guarded_until_s.get(lane, 0.0)

    def _first_free(self) -> OwnedLease:
        while True:
            self.beat()
            self._wait_for_recall()
            left_open = self._left_open().lanes
            for number in range(SCAN_LANE):  # the first that is not for handing over
                lane = Lane(number)
                if self._keeper.is_busy_with(lane) or lane in left_open:
                    continue  # no need to ask the ledger, or to be adopted
                if not self._may_try(lane):
                    continue
                held = self._take(lane)
                if held is not None:
                    return held
                if self._leases.owner_of(RECALL_LANE) is not None:
                    break
            else:
                self._pause("every lane is taken")

    def _wait_for_recall(self) -> None:
        """Return once nobody recalls; until then no lane can be taken."""
        is_told = False
        while (owner := self._leases.owner_of(RECALL_LANE)) is not None:
            self.beat()
            if self._context.is_surely_dead(owner):
                self._leases.evict(RECALL_LANE, owner)
            elif not is_told:
                is_told = True
                _log.info(
                    "a recall is under way; nothing is claimed until it is over",
                    extra={"action": "waiting_for_recall", "owner": owner},
                )
            self._pause("waiting for a recall")

    def _pause(self, why: str) -> None:
        self._stop.draining.wait(_LOOK_AGAIN_S)
        if self.is_ending:
            raise Interrupted(f"asked to stop while {why}")

    def _work(self, held: OwnedLease) -> None:
        """Work over one link until the lane may end."""
        try:
            with self._linked(held) as session:
                self._hand_over(held, session)
        except LaneGuarded as exc:
            self._leave_guarded(held.lease, exc)
            raise
        except ReceiptMissing:
            self._max_commits = 1
            raise
        except HandOverDoubtful as exc:
            text = "it is not known whether a batch was handed over; this lane stops"
            self._leave(held.lease.lane, text, "lane_doubtful", exc)
        finally:
            self.is_resting = False

    def _leave_guarded(self, lease: Lease, exc: LaneGuarded) -> None:
        """Take another lane, unless some of this one was published that only we know of.

        Raises:
            LeaseLost: It is to be left. The adopter finishes what is open in it.
        """
        opened = self._leases.open_batches()
        if any(each.lane == lease.lane and each.state is BatchState.PUBLISHING for each in opened):
            return
        self._guarded_until_s[lease.lane] = time.monotonic() + _GUARDED_S
        raise LeaseLost(f"{exc}; this thread takes another lane") from exc

    def _hand_over(self, held: OwnedLease, session: LaneSession) -> None:
        """Take turn after turn until this lane may end."""
        while True:
            self.check(held)
            # both are read before the turn: what comes meanwhile counts at the next one
            is_ending, changes = self.is_ending, self._throttle.changes
            may_claim = self._may_claim()
            did_something = session.turn(may_claim=may_claim)
            if may_claim and self._note_look(did_something=did_something):
                # looked for whether or not the turn did anything, so never `or session.pick_up()`
                picked_up = session.pick_up()
                did_something = did_something or picked_up
            self.is_resting = not did_something
            self.backoff.succeeded()
            self.trouble = None
            if did_something:
                self._locked_since_s = None
                continue
            if self._once and not is_ending:
                self._note_elsewhere()
            if is_ending:
                return
            if self._once and self._check_all_done(held, changes):
                if session.unfinished is not None:
                    raise session.unfinished
                return
            self._rest(held, session)

    def _note_look(self, *, did_something: bool) -> bool:
        """Return whether to look now for batches that an operator put into the lane, and note it.

        That is every few seconds, whether there is other work or not, and before *once* may end.
        """
        now_s = time.monotonic()
        if now_s < self._look_at_s and not (self._once and not did_something):
            return False
        self._look_at_s = now_s + _LOOK_EVERY_S
        return True

    def _check_all_done(self, held: OwnedLease, changes: int) -> bool:
        """Return whether, with *once* and nothing to do in this lane, nothing is left at all.

        That is: nobody else has work of ours, and nothing had to wait since *changes* was read.
        """
        if others := self.lanes_of_others():
            _log.info(
                "waiting for batches in lanes of other owners",
                extra={"action": "waiting_for_others", "lanes": sorted(others)},
            )
            return False
        if self._setup.direct.holding.late.waiting(for_at_most_s=_LATE_ANSWER_S):
            return False  # what is answered once nothing listens any more is sent again
        waits = self._throttle.delays_the_end(self._names)
        waits = waits or self._setup.claimer.claimable.failing.is_any_awaited()
        if waits or self._throttle.changes != changes:
            return False
        return not self._waits_for_locks(held)

    def _waits_for_locks(self, held: OwnedLease) -> bool:
        """Look for rows that others have locked; wait for them for a while, then leave them."""
        left = self._setup.claimer.unclaimed(held.lease)
        now_s = time.monotonic()
        if not left:
            self._locked_since_s = None
        elif self._locked_since_s is None:
            self._locked_since_s = now_s
            _log.info(
                "waiting for rows that other transactions have locked",
                extra={"action": "waiting_for_locks", "rows": {str(k): n for k, n in left.items()}},
            )
        self._stop.left_locked = left
        return self._locked_since_s is not None and now_s < self._locked_since_s + LOCKS_S

    def _rest(self, held: OwnedLease, session: LaneSession) -> None:
        """Idle until it is time to look again, or until somebody acted."""
        claimable = self._setup.claimer.claimable
        longest_s = _LONGEST_REST_ONCE_S if self._once else _LONGEST_REST_S
        ends_s = time.monotonic() + min(claimable.rest_s, longest_s)
        while not (self.wake.is_set() or self.is_ending):
            self.beat()
            held.check()
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                break
            if session.idle(min(left_s, self._slice_s)):
                break
        if self.wake.is_set():
            claimable.forget()
            self._look_at_s = 0.0
        self.wake.clear()

    def _log_lost(self, exc: LeaseLost) -> None:
        _log.warning(
            "another process took this lane", extra={"action": "lane_lost", "error": str(exc)}
        )

    def _tolerates(self, exc: MigratorError) -> bool:
        """Say what is wrong; with *once*, give up when patience is over."""
        self.trouble = str(exc)
        if self._once and self.backoff.failing_s > self._context.patience_s:
            self.failure = exc
            _log.error(
                "it keeps failing; giving up", extra={"action": "lane_gave_up", "error": str(exc)}
            )
            return False
        _log.warning(
            "the lane failed and starts again", extra={"action": "lane_trouble", "error": str(exc)}
        )
        return True


class LaneAdopter(LaneWorker):
    """Finishes what a dead owner left in one lane, however long that takes, and ends.

    The lane is given back before it is tried again: another daemon may be able to finish it.
    """

    def __init__(self, lane: Lane, adopter: Adopter) -> None:
        super().__init__(f"adopter-lane-{lane}", *adopter.parts)
        self._lane = lane
        self._adopter = adopter
        self._failures = Backoff(first_s=_ADOPT_AGAIN_S, most_s=_ADOPT_AGAIN_S)
        self._passed_on = 0

    @property
    def is_ending(self) -> bool:
        """Whether to finish what is claimed, and end."""
        return super().is_ending or self._adopter.is_ending

    def check(self, held: OwnedLease) -> None:
        """Have lanes take at once what was passed on to them; see ``Worker.check``."""
        super().check(held)
        session = self._session
        if session is not None and session.passed_on != self._passed_on:
            self._passed_on = session.passed_on
            self._adopter.wake_lanes()

    def _run(self) -> None:
        while not (self.is_ending or self._try_to_finish()):
            self._wait()

    def _wait(self) -> None:
        while not (self.is_ending or self._failures.is_over):
            self.beat()
            self._stop.draining.wait(self._slice_s)

    def _try_to_finish(self) -> bool:
        """Do what can be done now; return False if it is to be tried again."""
        self.beat()
        held: OwnedLease | None = None
        try:
            held = self._take(self._lane, is_adopted=True)
            if held is not None:
                self._finish(held)
        except ReceiptMissing as exc:
            return self._note_failure(exc)
        except HandOverDoubtful as exc:
            self._leave(
                self._lane,
                "it is not known whether a batch of a dead owner's lane was handed over",
                "lane_doubtful",
                exc,
            )
        except Interrupted:
            return True
        except LedgerAdopted:
            raise  # trying again changes nothing
        except MigratorError as exc:
            return self._note_failure(exc)
        finally:
            self.give_back(held)
        self.trouble = None
        return True

    def _finish(self, held: OwnedLease) -> None:
        self._passed_on = 0
        with self._linked(held) as session:
            while session.turn(may_claim=False):
                self.check(held)
            if session.unfinished is not None:
                raise session.unfinished

    def _note_failure(self, exc: MigratorError) -> bool:
        """Say what is wrong; return whether it is not tried again."""
        self._failures.failed()
        self.trouble = f"lane {self._lane} of a dead owner: {exc}"
        if self._once and self._failures.failing_s > self._context.patience_s:
            self._leave(self._lane, "the lane of a dead owner keeps failing", "lane_gave_up", exc)
            return True
        _log.warning(
            "the lane of a dead owner could not be finished now; it is tried again",
            extra={"action": "adoption_failed", "lane": self._lane, "error": str(exc)},
        )
        return False


class Adopter(LaneWorker):
    """Looks for lanes of dead owners, and has each finished by a thread of its own.

    So none of them waits for another: one may wait minutes for a receipt, or for its queues to be
    free. At most every few seconds it looks, and when the next lease of another owner may end.
    """

    def __init__(
        self, context: WorkerContext, claims: ClaimGuard, links: LaneLinks, new_setup: NewSetup
    ) -> None:
        super().__init__("adopter", context, claims, links, new_setup)
        self.parts = (context, claims, links, new_setup)
        """What the thread of each lane is made of."""
        self._pool: WorkerPool | None = None
        self._adopting: dict[Lane, LaneAdopter] = {}
        self._told_s: dict[BatchId, float] = {}

    def serve(self, pool: WorkerPool) -> None:
        """Adopt beside the lanes of *pool*, and end when they have ended."""
        self._pool = pool

    def wake_lanes(self) -> None:
        """Have lanes look for what was passed on to them."""
        if self._pool is not None:
            self._pool.wake()

    @property
    def is_ending(self) -> bool:
        """Whether to finish what is claimed, and end."""
        return super().is_ending or (self._pool is not None and self._pool.lanes_have_ended())

    @property
    def silent_s(self) -> float:
        """The same of whichever of its threads is silent for longest."""
        threads = [*self._adopting.values()]
        return max((super().silent_s, *(each.silent_s for each in threads)))

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes one of its threads wait, or None."""
        reasons = (each.blocked_reason for each in [*self._adopting.values()])
        return next(filter(None, reasons), None)

    def _run(self) -> None:
        try:
            while not self.is_ending:
                try:
                    if self._may_claim():
                        self._look()
                except Interrupted:
                    return
                except LedgerAdopted:
                    raise  # trying again changes nothing
                except MigratorError as exc:  # the ledger does not answer; the lanes say so
                    self.trouble = str(exc)
                self._rest()
        finally:
            self._end_threads()

    def _rest(self) -> None:
        ends_s = time.monotonic() + self._next_look_s()
        while (left_s := ends_s - time.monotonic()) > 0 and not self.is_ending:
            self.beat()
            self._stop.draining.wait(min(left_s, self._slice_s))

    def _next_look_s(self) -> float:
        """Return when to look again: at the latest when the next lease of anybody may be over."""
        longest_s = _LOOK_EVERY_S if self._once else _ADOPT_EVERY_S
        if not self._has_open_batches:
            return longest_s
        try:
            end_s = self._leases.next_end_s()
        except MigratorError:  # the ledger does not answer
            return longest_s
        return longest_s if end_s is None else max(min(longest_s, end_s + _SLACK_S), _SLACK_S)

    def _look(self) -> None:
        """Have a thread for each lane that can be finished here, and say what cannot."""
        self._note_ended()
        found = self._left_open()
        self._log_elsewhere(found.elsewhere)
        for lane in found.adoptable:
            if len(self._adopting) >= _MOST_ADOPTED or self._stop.draining.is_set():
                break
            if lane not in self._adopting:
                self._adopting[lane] = LaneAdopter(lane, self)
                self._adopting[lane].start()
        self.trouble = next(filter(None, (each.trouble for each in self._adopting.values())), None)

    def _note_ended(self) -> None:
        """Forget threads that have ended, but not what ended them early."""
        for lane, thread in [*self._adopting.items()]:
            if thread.join(0):
                del self._adopting[lane]
                self.failure = self.failure or thread.failure
                self.crash = self.crash or thread.crash

    def _end_threads(self) -> None:
        while self._adopting:
            self.beat()
            next(iter(self._adopting.values())).join(_SLICE_ONCE_S)
            self._note_ended()

    def _log_elsewhere(self, elsewhere: Mapping[OpenBatch, BrokerPlace]) -> None:
        now_s = time.monotonic()
        for batch, place in elsewhere.items():
            if now_s >= self._told_s.get(batch.id, now_s):
                self._told_s[batch.id] = now_s + _TELL_EVERY_S
                _log.warning(
                    "a batch waits for a daemon that is connected to another broker",
                    extra={
                        "action": "batch_elsewhere",
                        "batch": batch.id,
                        "lane": batch.lane,
                        "state": str(batch.state),
                        "waits_for": str(place),
                        "what_to_do": what_to_do(batch.id),
                    },
                )
        self._told_s = {each.id: self._told_s[each.id] for each in elsewhere}


def what_to_do(batch: BatchId) -> str:
    """Return what to do about a batch that goes to another broker."""
    return (
        f"start `migrator run` there; if it is gone, `migrator db resolve {batch} --as claimed` "
        "hands the batch over by the latest run of its endpoint"
    )
