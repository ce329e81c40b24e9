"""The workers that hand over: one thread per lane, and one that finishes what dead owners left.

Each takes a lane, opens a link, recovers, works; when something breaks it begins again. An adopted
lane may wait for minutes for a receipt, so no lane's thread adopts: its own rows would come late.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from migrator.app import App
from migrator.errors import (
    HandOverDoubtful,
    Interrupted,
    LeaseLost,
    LedgerAdopted,
    MigratorError,
)
from migrator.handover.lane import LaneSession, LaneSetup
from migrator.handover.ports import Link
from migrator.ledger.lease_keeper import HeldLease, evict_dead
from migrator.ledger.work import Backoff, Lease
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, Lane
from migrator.service.throttle import ClaimGuard
from migrator.service.worker import Worker, WorkerContext

_log = logging.getLogger(__name__)

_SLICE_S: Final = 1.0
"""Between two looks at whether to stop, while there is nothing to do."""
_SLICE_ONCE_S: Final = 0.2
"""With *once*, somebody waits for the end."""
_LONGEST_REST_S: Final = 10.0
"""Then it is looked for batches that an operator put into the lane, in any case."""
_LONGEST_REST_ONCE_S: Final = 1.0
"""With *once*, what is waited for is the end of others' work."""
_LOOK_EVERY_S: Final = 2.0
"""How often a lane looks for batches that an operator put into it."""
_ADOPT_EVERY_S: Final = 4.0
"""How often it is looked for lanes to adopt."""
_ADOPT_AGAIN_S: Final = 10.0
"""After a failure, a dead owner's lane is left alone for so long."""
_LOOK_AGAIN_S: Final = 2.0
"""While there is no lane to be had."""


NewSetup = Callable[[ExitStack], LaneSetup]
"""Makes what one thread hands over with; the stack ends its pools."""


class LaneWorker(Worker):
    """A thread that may take lanes; all of its waiting is interrupted by the stop."""

    crash_action = "lane_crashed"
    longest_backoff_s = 5.0

    def __init__(
        self, name: str, context: WorkerContext, claims: ClaimGuard, app: App, new_setup: NewSetup
    ) -> None:
        """Prepare the thread; its setup outlives its links, which are opened by *app*."""
        super().__init__(name, context)
        self._claims = claims
        self._throttle = claims.throttle
        self._names = [endpoint.name for endpoint in claims.endpoints]
        self._app = app
        self._setup = new_setup(self.ends)
        self._link: Link | None = None

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait, or None."""
        link = self._link
        return None if link is None else link.blocked_reason

    @property
    def _slice_s(self) -> float:
        return _SLICE_ONCE_S if self._once else _SLICE_S

    def _may_claim(self) -> bool:
        return not self.is_ending and self._claims.may_claim()

    @contextmanager
    def _session(self, held: HeldLease) -> Iterator[LaneSession]:
        """Connect, and finish what the lane's last owner left open."""
        lane = held.lease.lane
        session, link = self._open(held.lease, partial(self.check, held))
        self._link = link
        connection = self._app.lane_connection(lane)
        node = f" (at {connection.address.host_port})" if len(connection.nodes) > 1 else ""
        held.doing = partial(self._doing, session, link, node)
        try:
            session.recover()
            if session.stuck is not None:  # it waits for a person; the rest goes on
                self._stop.stuck[lane] = session.stuck
            yield session
        finally:
            self._link = None
            link.close()  # first: whatever the background still does, nothing more is sent
            session.close()

    def _open(self, lease: Lease, check: Callable[[], None]) -> tuple[LaneSession, Link]:
        link = self._app.open_lane(lease, check)
        self._setup.preparer.limit_frames(link.frame_max_bytes)
        session = LaneSession(
            self._setup, lease=lease, link=link, guard=check, may_claim=self._may_claim
        )
        return session, link

    def _doing(self, session: LaneSession, link: Link, node: str) -> str:
        """Return what *session* does, or why it waits, and at which of several nodes."""
        if blocked := link.blocked_reason:
            return f"throttled: {blocked}{node}"
        doing = session.doing
        reason = self._throttle.reason_for_all(self._names) if doing == "idle" else None
        return (f"held: {reason.text}" if reason else doing) + node

    def _give_back(self, held: HeldLease) -> None:
        """Give the lane back; a doubtful one is kept, or it would be somebody else's trouble."""
        if held.lease.lane not in self._stop.doubtful:
            self._keeper.surrender(held)

    def _leave(self, lane: Lane, text: str, action: str, exc: MigratorError) -> None:
        """Leave *lane* to a person."""
        self._stop.doubtful.add(lane)
        self.failure = exc
        _log.error(text, extra={"action": action, "lane": lane, "error": str(exc)})

    # ── which lane ──────────────────────────────────────────────────────────────────────────

    def _take(self, lane: Lane, *, is_adopted: bool = False) -> HeldLease | None:
        return self._keeper.acquire(lane, doing=lambda: "working", is_adopted=is_adopted)

    def orphans(self) -> Sequence[Lane]:
        """Return lanes with open batches and no living owner that we may finish, ascending."""
        evict_dead(self._leases, self._context.is_surely_dead)
        left = self._not_ours_to_finish
        return [lane for lane in self._leases.orphaned_lanes() if lane not in left]

    @property
    def _not_ours_to_finish(self) -> set[Lane]:
        """Lanes in which only a person can go on."""
        return self._stop.doubtful | self._stop.stuck.keys()

    def lanes_of_others(self) -> set[Lane]:
        """Return lanes with open batches of ours that no lane's thread of this process works on.

        Their owner either finishes them or its lease ends and they are orphans; until then they
        are not done. One that is adopted is not, either: its link may be lost before it is.
        """
        sources = [endpoint.source for endpoint in self._claims.endpoints]
        busy = set(self._leases.lanes_with_work(sources))
        return busy - self._keeper.working_lanes() - self._not_ours_to_finish


class LaneThread(LaneWorker):
    """Works on one lane until there is nothing left, or until told to stop."""

    _look_at_s = 0.0

    def _acquire(self) -> HeldLease:
        """Take an orphaned lane, else the first that is free, waiting for the end of a recall.

        Raises:
            Interrupted: The thread is to end.
            LedgerAdopted: See ``Leases.acquire``.
        """
        orphans = (self._take(lane) for lane in self.orphans())
        return next(filter(None, orphans), None) or self._first_free()

    def _first_free(self) -> HeldLease:
        while True:
            self.beat()
            self._wait_for_recall()
            for number in range(SCAN_LANE):  # the first that is not for handing over
                lane = Lane(number)
                if self._keeper.is_busy_with(lane):
                    continue  # no need to ask the ledger
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

    def _one_session(self, held: HeldLease) -> None:
        try:
            with self._session(held) as session:
                self._hand_over(held, session)
        except HandOverDoubtful as exc:
            text = "it is not known whether a batch was handed over; this lane stops"
            self._leave(held.lease.lane, text, "lane_doubtful", exc)
        finally:
            self.is_resting = False

    def _hand_over(self, held: HeldLease, session: LaneSession) -> None:
        """Take turn after turn until this lane may end."""
        while True:
            self.check(held)
            # both are read before the turn: what comes meanwhile counts at the next one
            is_ending, changes = self.is_ending, self._throttle.changes
            may_claim = self._may_claim()
            did_something = session.turn(may_claim=may_claim)
            if may_claim and self._is_time_to_look(did_something=did_something):
                # looked for whether or not the turn did anything, so never `or session.pick_up()`
                picked_up = session.pick_up()
                did_something = did_something or picked_up
            self.is_resting = not did_something
            self._backoff.succeeded()
            self.trouble = None
            if did_something:
                continue
            if is_ending or (self._once and self._is_all_done(changes)):
                return
            self._rest(held, session)

    def _is_time_to_look(self, *, did_something: bool) -> bool:
        """Return whether to look for batches that an operator put into the lane.

        That is every few seconds, whether there is other work or not, and before *once* may end.
        """
        now_s = time.monotonic()
        if now_s < self._look_at_s and not (self._once and not did_something):
            return False
        self._look_at_s = now_s + _LOOK_EVERY_S
        return True

    def _is_all_done(self, changes: int) -> bool:
        """Return whether, with *once* and nothing to do in this lane, nothing is left at all.

        That is: nobody else has work of ours, and nothing had to wait since *changes* was read.
        """
        if others := self.lanes_of_others():
            _log.info(
                "waiting for batches in lanes of other owners",
                extra={"action": "waiting_for_others", "lanes": sorted(others)},
            )
            return False
        waits = self._throttle.delays_the_end(self._names)
        waits = waits or self._setup.claimer.look.failing.is_any_awaited()
        return not waits and self._throttle.changes == changes

    def _rest(self, held: HeldLease, session: LaneSession) -> None:
        """Idle until it is time to look again, or until somebody acted."""
        look = self._setup.claimer.look
        longest_s = _LONGEST_REST_ONCE_S if self._once else _LONGEST_REST_S
        ends_s = time.monotonic() + min(look.rest_s, longest_s)
        while not (self.wake.is_set() or self.is_ending):
            self.beat()
            held.check()
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                break
            session.idle(min(left_s, self._slice_s))
        if self.wake.is_set():
            look.forget()
        self.wake.clear()

    def _say_lost(self, exc: LeaseLost) -> None:
        _log.warning(
            "another process took this lane", extra={"action": "lane_lost", "error": str(exc)}
        )

    def _tolerates(self, exc: MigratorError) -> bool:
        """Say what is wrong; with *once*, give up when patience is over."""
        self.trouble = str(exc)
        if self._once and self._backoff.failing_s > self._context.patience_s:
            self.failure = exc
            _log.error(
                "it keeps failing; giving up", extra={"action": "lane_gave_up", "error": str(exc)}
            )
            return False
        _log.warning(
            "the lane failed and starts again", extra={"action": "lane_trouble", "error": str(exc)}
        )
        return True


class Adopter(LaneWorker):
    """Looks for lanes of dead owners every few seconds, and finishes them one after the other."""

    def __init__(
        self,
        context: WorkerContext,
        claims: ClaimGuard,
        app: App,
        new_setup: NewSetup,
        *,
        lanes_have_ended: Callable[[], bool],
    ) -> None:
        """Prepare the thread; it ends when *lanes_have_ended*, too."""
        super().__init__("adopter", context, claims, app, new_setup)
        self._lanes_have_ended = lanes_have_ended
        self._backoffs: dict[Lane, Backoff] = {}

    @property
    def is_ending(self) -> bool:
        """Whether to finish what is claimed, and end."""
        return super().is_ending or self._lanes_have_ended()

    def _run(self) -> None:
        while not self.is_ending:
            try:
                if self._may_claim():
                    self._adopt_all()
            except Interrupted:
                return
            except LedgerAdopted:
                raise  # trying again changes nothing
            except MigratorError as exc:  # the ledger does not answer; the lanes say so
                self.trouble = str(exc)
            self._rest()

    def _rest(self) -> None:
        ends_s = time.monotonic() + (_LOOK_EVERY_S if self._once else _ADOPT_EVERY_S)
        while time.monotonic() < ends_s and not self.is_ending:
            self.beat()
            self._stop.draining.wait(self._slice_s)

    def _adopt_all(self) -> None:
        trouble = None
        for lane in self.orphans():
            if self._stop.draining.is_set():
                return
            if (backoff := self._backoffs.get(lane)) and not backoff.is_over:
                trouble = self.trouble
            else:
                trouble = self._adopt(lane) or trouble
        self.trouble = trouble

    def _adopt(self, lane: Lane) -> str | None:
        """Finish *lane*; return why that is not possible now, else None."""
        self.beat()
        held = self._take(lane, is_adopted=True)
        if held is None:
            return None
        try:
            with self._session(held) as session:
                while session.turn(may_claim=False):
                    self.check(held)
        except HandOverDoubtful as exc:
            self._leave(
                lane,
                "it is not known whether a batch of a dead owner's lane was handed over",
                "lane_doubtful",
                exc,
            )
        except (Interrupted, LedgerAdopted):
            raise
        except MigratorError as exc:
            self._failed(lane, exc)
            return f"lane {lane} of a dead owner: {exc}"
        else:
            self._backoffs.pop(lane, None)
        finally:
            self._give_back(held)
        return None

    def _failed(self, lane: Lane, exc: MigratorError) -> None:
        new = Backoff(first_s=_ADOPT_AGAIN_S, most_s=_ADOPT_AGAIN_S)
        backoff = self._backoffs.setdefault(lane, new)
        backoff.failed()
        if self._once and backoff.failing_s > self._context.patience_s:
            self._leave(lane, "the lane of a dead owner keeps failing", "lane_gave_up", exc)
            return
        _log.warning(
            "the lane of a dead owner could not be finished now; it is tried again",
            extra={"action": "adoption_failed", "lane": lane, "error": str(exc)},
        )
