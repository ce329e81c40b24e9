"""The workers that hand over: one thread per lane, and one that finishes what dead owners left.

Each takes a lane, opens a link, recovers, works; when something breaks it begins again. An adopted
lane may wait for minutes for a receipt, so no lane's thread adopts: its own rows would come late.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
from migrator.handover.direct import DirectHandOver
from migrator.handover.holding import Holding
from migrator.handover.lane import HandedOver, LaneSession, LaneSetup
from migrator.handover.ports import Link
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper, is_surely_dead
from migrator.ledger.leases import SqlLeases
from migrator.ledger.work import Backoff, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, Lane, RunId
from migrator.service.lane_allocator import LaneAllocator
from migrator.service.runtime_settings import RuntimeSettings
from migrator.service.throttle import ClaimGuard, Throttle
from migrator.service.worker import Stop, WorkerThread, one_by_one
from migrator.telemetry.ports import Tracer

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 90.0
"""``--once`` gives up after failing for so long without progress; a daemon never does."""
_SLICE_S: Final = 0.2
"""Between two looks at whether to stop, while there is nothing to do."""
_FIRST_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 5.0
_LONGEST_REST_S: Final = 2.0
_LOOK_EVERY_S: Final = 2.0
"""How often a lane looks for batches that an operator put into it, and for lanes to adopt."""
_ADOPT_AGAIN_S: Final = 10.0
"""After a failure, a dead owner's lane is left alone for so long."""


class OpenLane:
    """A session and its link."""

    def __init__(
        self,
        session: LaneSession,
        link: Link,
        *,
        throttle: Throttle,
        names: Sequence[EndpointName],
        node: str | None,
    ) -> None:
        """Keep both; *node* is where the link leads to, if there are several."""
        self.session = session
        self._link = link
        self._throttle = throttle
        self._names = names
        self._at = f" (at {node})" if node else ""

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait, or None; asked by other threads."""
        return self._link.blocked_reason

    def doing(self) -> str:
        """Return what the session does, or why it waits, and at which of several nodes."""
        if blocked := self._link.blocked_reason:
            return f"throttled: {blocked}{self._at}"
        doing = self.session.doing
        reason = self._throttle.reason_for_all(self._names) if doing == "idle" else None
        return (f"held: {reason.text}" if reason else doing) + self._at

    def close(self) -> None:
        """Close the link first: whatever the background still does, nothing more is sent."""
        self._link.close()
        self.session.close()


Check = Callable[[], None]
"""Raises when everything is to stop at once, or when the lane is no longer ours."""
OpenTheLane = Callable[[HeldLease, Check, Callable[[], bool]], OpenLane]
"""Given the lease, a check, and what tells whether rows may be claimed now."""


class LaneOpener:
    """Opens sessions for one worker; what it keeps outlives each of them."""

    def __init__(
        self,
        app: App,
        runs: Sequence[tuple[StoreEndpoint, RunId]],
        *,
        pools: ExitStack,
        throttle: Throttle,
        claims: ClaimGuard,
        holding: Holding,
        runtime: RuntimeSettings,
        settled: HandedOver,
        tracer: Tracer,
    ) -> None:
        """Hand over rows of the endpoints in *runs*; *pools* ends its threads."""
        self._app = app
        self._throttle = throttle
        self._names = [endpoint.name for endpoint, _ in runs]
        self._setup = LaneSetup(
            batches=app.batches,
            clock=app.clock,
            claimer=app.new_claimer(
                runs,
                selection=runtime.selection,
                is_held=lambda endpoint: not claims.may_claim(endpoint),
                holding=holding,
            ),
            preparer=app.new_preparer(holding),
            direct=DirectHandOver(
                batches=app.batches,
                holding=holding,
                clock=app.clock,
                fault=app.fault,
            ),
            claiming=one_by_one(pools, "claiming"),
            preparing=one_by_one(pools, "preparing"),
            pace=runtime.pace,
            handed_over=settled,
            tracer=tracer,
        )

    def __call__(self, held: HeldLease, check: Check, may_claim: Callable[[], bool]) -> OpenLane:
        """Connect for the lane of *held*."""
        app, lease = self._app, held.lease
        link = app.open_link(lease, check)
        self._setup.preparer.limit_frames(link.frame_max_bytes)
        session = LaneSession(
            self._setup,
            lease=lease,
            link=link,
            open_staged=partial(app.open_staged, link, lease),
            guard=check,
            may_claim=may_claim,
        )
        node = app.node_of(lease.lane)
        return OpenLane(session, link, throttle=self._throttle, names=self._names, node=node)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneContext:
    """What the workers of one process share."""

    leases: SqlLeases
    keeper: LeaseKeeper
    stop: Stop
    throttle: Throttle
    claims: ClaimGuard
    endpoints: Sequence[StoreEndpoint]
    """Whose rows are handed over."""
    once: bool
    """End when there is nothing to do."""
    patience_s: float = PATIENCE_S
    """With *once*: give up after failing for so long without progress."""
    is_surely_dead: Callable[[str], bool] = is_surely_dead
    """Whether an owner's process is provably gone."""


class LeasedWorker(WorkerThread):
    """A thread that works in a lane as long as it holds the lane's lease."""

    def __init__(self, name: str, context: LaneContext, open_lane: OpenTheLane) -> None:
        """Prepare the thread; ``start`` lets it run."""
        super().__init__(name, stop=context.stop, crash_action="lane_crashed", facts={})
        self._context = context
        self._keeper = context.keeper
        self._open_lane = open_lane
        self._opened: OpenLane | None = None
        self._allocator = LaneAllocator(
            context.leases,
            context.keeper,
            is_surely_dead=context.is_surely_dead,
            stop=context.stop,
            beat=self.beat,
            is_ending=lambda: self.is_ending,
        )

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait, or None."""
        opened = self._opened
        return None if opened is None else opened.blocked_reason

    def _may_claim(self) -> bool:
        return not self.is_ending and self._context.claims.may_claim()

    @contextmanager
    def _session(self, held: HeldLease) -> Iterator[LaneSession]:
        """Connect, and finish what the lane's last owner left open."""
        check = partial(self.check, held)
        opened = self._opened = self._open_lane(held, check, self._may_claim)
        held.doing = opened.doing
        try:
            opened.session.recover()
            if opened.session.stuck is not None:  # it waits for a person; the rest goes on
                self._stop.stuck[held.lease.lane] = opened.session.stuck
            yield opened.session
        finally:
            self._opened = None
            opened.close()

    def _surrender(self, held: HeldLease) -> None:
        """Give the lane back; a doubtful one is kept, or it would be somebody else's trouble."""
        if held.lease.lane not in self._stop.doubtful:
            self._keeper.surrender(held)

    def _give_up(self, text: str, action: str, exc: MigratorError, **facts: object) -> None:
        self.failure = exc
        _log.error(text, extra={"action": action, **facts, "error": str(exc)})


class LaneThread(LeasedWorker):
    """Works on one lane after the other until there is nothing left, or until told to stop."""

    def __init__(self, name: str, context: LaneContext, open_lane: OpenTheLane) -> None:
        """Prepare the thread; ``start`` lets it run."""
        super().__init__(name, context, open_lane)
        self._names = [endpoint.name for endpoint in context.endpoints]
        self._backoff = Backoff(first_s=_FIRST_BACKOFF_S, most_s=_MAX_BACKOFF_S)
        self._look_at_s = 0.0

    def _run(self) -> None:
        while not self.is_ending:
            self.beat()
            try:
                with self._a_lane() as held:
                    if self._work(held) and self._context.once:
                        return
            except HandOverDoubtful as exc:
                self._give_up("a hand-over is doubtful; this lane stops", "lane_doubtful", exc)
                return
            except LeaseLost as exc:
                _log.warning("a lane was lost", extra={"action": "lane_lost", "error": str(exc)})
                self._stop.draining.wait(_FIRST_BACKOFF_S)
            except Interrupted:
                return
            except LedgerAdopted:
                raise  # trying again changes nothing
            except MigratorError as exc:
                if not self._may_go_on(exc):
                    return

    @contextmanager
    def _a_lane(self) -> Iterator[HeldLease]:
        held = self._allocator.take_any()
        try:
            yield held
        except HandOverDoubtful:
            self._stop.doubtful.add(held.lease.lane)
            raise
        finally:
            self._surrender(held)

    def _work(self, held: HeldLease) -> bool:
        """Work on one lane over as many links as it takes; True when nothing is left.

        The lane is kept while a link is down: whoever took it over would have to publish again
        what a direct batch had confirmed already.
        """
        while not self.is_ending:
            try:
                with self._session(held) as session:
                    self._hand_over(held, session)
            except (HandOverDoubtful, LeaseLost, LedgerAdopted, Interrupted):
                raise
            except MigratorError as exc:
                held.doing = partial(str, f"trouble: {exc}")
                if not self._may_go_on(exc):
                    return True
                held.check()
            else:
                return True
            finally:
                self.is_resting = False
        return False

    def _hand_over(self, held: HeldLease, session: LaneSession) -> None:
        """Take turn after turn until this lane may end."""
        while True:
            self.check(held)
            # both are read before the turn: what comes meanwhile counts at the next one
            is_ending, changes = self.is_ending, self._context.throttle.changes
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
            if is_ending or (self._context.once and self._is_all_done(changes)):
                return
            self._rest(held, session)

    def _is_time_to_look(self, *, did_something: bool) -> bool:
        """Return whether to look for batches that an operator put into the lane.

        That is every few seconds, whether there is other work or not, and before *once* may end.
        """
        now_s = time.monotonic()
        if now_s < self._look_at_s and not (self._context.once and not did_something):
            return False
        self._look_at_s = now_s + _LOOK_EVERY_S
        return True

    def _is_all_done(self, changes: int) -> bool:
        """Return whether, with *once* and nothing to do in this lane, nothing is left at all.

        That is: nobody else has work of ours, and nothing had to wait since *changes* was read.
        """
        context = self._context
        others = self._allocator.of_others([endpoint.source for endpoint in context.endpoints])
        if others:
            _log.info(
                "waiting for batches in lanes of other owners",
                extra={"action": "waiting_for_others", "lanes": sorted(others)},
            )
            return False
        return not context.throttle.concerns(self._names) and context.throttle.changes == changes

    def _rest(self, held: HeldLease, session: LaneSession) -> None:
        """Idle until the schedule says so, or by our own clock when the schedule's was changed."""
        ends_s = time.monotonic() + _LONGEST_REST_S
        while not (self.wake.is_set() or self.is_ending):
            self.beat()
            held.check()
            session.idle(_SLICE_S)
            if time.monotonic() > ends_s:
                break
        self.wake.clear()

    def _may_go_on(self, exc: MigratorError) -> bool:
        """Wait a little after a failure; with *once*, give up when patience is over."""
        self.beat()
        self.trouble = str(exc)
        backoff_s = self._backoff.failed()
        if self._context.once and self._backoff.failing_s > self._context.patience_s:
            self._give_up("it keeps failing; giving up", "lane_gave_up", exc)
            return False
        _log.warning(
            "trouble; the lane begins again",
            extra={"action": "lane_trouble", "error": str(exc), "retry_in_s": round(backoff_s, 2)},
        )
        self._stop.draining.wait(backoff_s)
        return True


class Adopter(LeasedWorker):
    """Looks for lanes of dead owners every few seconds, and finishes them one after the other."""

    def __init__(
        self,
        context: LaneContext,
        open_lane: OpenTheLane,
        *,
        lanes_have_ended: Callable[[], bool],
    ) -> None:
        """Prepare the thread; it ends when *lanes_have_ended*, too."""
        super().__init__("adopter", context, open_lane)
        self._lanes_have_ended = lanes_have_ended
        self._backoffs: dict[Lane, Backoff] = {}
        self.is_at_work = False
        """It finishes a lane now."""

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
        ends_s = time.monotonic() + _LOOK_EVERY_S
        while time.monotonic() < ends_s and not self.is_ending:
            self.beat()
            self._stop.draining.wait(_SLICE_S)

    def _adopt_all(self) -> None:
        trouble = None
        for lane in self._allocator.orphans():
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
        held = self._allocator.adopt(lane)
        if held is None:
            return None
        self.is_at_work = True
        try:
            with self._session(held) as session:
                while session.turn(may_claim=False):
                    self.check(held)
        except HandOverDoubtful as exc:
            self._leave(lane, "an adopted lane is doubtful", "lane_doubtful", exc)
        except (Interrupted, LedgerAdopted):
            raise
        except MigratorError as exc:
            self._failed(lane, exc)
            return f"lane {lane} of a dead owner: {exc}"
        else:
            self._backoffs.pop(lane, None)
        finally:
            self.is_at_work = False
            self._surrender(held)
        return None

    def _failed(self, lane: Lane, exc: MigratorError) -> None:
        new = Backoff(first_s=_ADOPT_AGAIN_S, most_s=_ADOPT_AGAIN_S)
        backoff = self._backoffs.setdefault(lane, new)
        backoff.failed()
        if self._context.once and backoff.failing_s > self._context.patience_s:
            self._leave(lane, "an adopted lane keeps failing", "lane_gave_up", exc)
            return
        _log.warning(
            "an adopted lane could not be finished now",
            extra={"action": "adoption_failed", "lane": lane, "error": str(exc)},
        )

    def _leave(self, lane: Lane, text: str, action: str, exc: MigratorError) -> None:
        self._stop.doubtful.add(lane)
        self._give_up(text, action, exc, lane=lane)
