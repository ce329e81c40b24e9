"""One thread per lane: take a lane, open a link, work; when something breaks, begin again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

from migrator.errors import (
    HandOverDoubtful,
    Interrupted,
    LeaseLost,
    LedgerAdopted,
    MigratorError,
)
from migrator.handover.lane import LaneSession
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper
from migrator.ledger.ports import Leases
from migrator.ledger.work import StoreEndpoint
from migrator.service.gate import Gate
from migrator.service.vacancies import Vacancies
from migrator.service.worker import Stop, WorkerThread

_log = logging.getLogger(__name__)

_IDLE_SLICE_S: Final = 0.2
_FIRST_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 5.0
_LONGEST_REST_S: Final = 2.0
_LOOK_EVERY_S: Final = 2.0
"""How often a lane looks for batches that an operator put into it."""


class OpenedLane(Protocol):
    """A session with its link; closing it closes both."""

    session: LaneSession

    def doing(self) -> str:
        """Return in a few words what is going on, a throttle with its reason included."""
        ...

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes us wait, or None; asked by other threads."""
        ...

    def close(self) -> None:
        """End the session and its link; never raises."""
        ...


class OpenLane(Protocol):
    """How wiring opens a session for a lane that is held."""

    def __call__(self, held: HeldLease) -> OpenedLane:
        """Connect and return the session."""
        ...


def recover(held: HeldLease, session: LaneSession, stop: Stop) -> None:
    """Finish what the lane's last owner left open, and note what waits for a person."""
    session.recover()
    if session.stuck is not None:
        stop.stuck[held.lease.lane] = session.stuck


class LaneThread(WorkerThread):
    """Works on one lane after the other until there is nothing left, or until told to stop."""

    def __init__(
        self,
        name: str,
        *,
        leases: Leases,
        keeper: LeaseKeeper,
        open_lane: OpenLane,
        is_surely_dead: Callable[[str], bool],
        stop: Stop,
        once: bool,
        patience_s: float,
        endpoints: Collection[StoreEndpoint],
        gate: Gate | None = None,
    ) -> None:
        """Prepare a thread; ``start`` lets it run.

        Args:
            name: For logs.
            leases: To find lanes and their dead owners.
            keeper: Holds the leases that are taken.
            open_lane: Opens link and session.
            is_surely_dead: Whether an owner's process is provably gone.
            stop: Shared by all threads.
            once: End when there is nothing to do.
            patience_s: With *once*: give up after failing for so long without progress.
            endpoints: Whose rows are to be done when *once* is done.
            gate: What holds claims back; None: nothing ever does.
        """
        super().__init__(name, stop=stop, crash_action="lane_crashed", facts={})
        self._keeper = keeper
        self._open_lane = open_lane
        self._once = once
        self._patience_s = patience_s
        self._sources = [endpoint.source for endpoint in endpoints]
        self._names = [endpoint.name for endpoint in endpoints]
        self._gate = Gate() if gate is None else gate
        self._retired = threading.Event()
        self._vacancies = Vacancies(
            leases,
            keeper,
            is_surely_dead=is_surely_dead,
            stop=stop,
            beat=self.beat,
            is_retired=self._retired.is_set,
        )
        self._opened: OpenedLane | None = None
        self._failures = 0
        self._failing_since_s = 0.0
        self._look_at_s = 0.0
        self.is_resting = False
        """Its last turn found nothing to do, whether or not something is held back."""

    def retire(self) -> None:
        """Have this thread alone finish what its lane has claimed, and end."""
        self._retired.set()
        self.wake.set()

    @property
    def is_retired(self) -> bool:
        """Whether it is told to end while others go on."""
        return self._retired.is_set()

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait, or None."""
        opened = self._opened
        return None if opened is None else opened.blocked_reason

    @property
    def _is_ending(self) -> bool:
        return self._stop.draining.is_set() or self._retired.is_set()

    def _run(self) -> None:
        while not self._is_ending:
            self.beat()
            try:
                with self._a_lane() as held:
                    if self._work(held) and self._once:
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

    def _work(self, held: HeldLease) -> bool:
        """Work on one lane over as many links as it takes; True when nothing is left.

        The lane is kept while a link is down: whoever took it over would have to publish again
        what a direct batch had confirmed already.
        """
        while not self._is_ending:
            try:
                return self._one_session(held)
            except (HandOverDoubtful, LeaseLost, LedgerAdopted, Interrupted):
                raise
            except MigratorError as exc:
                held.doing = partial(str, f"trouble: {exc}")
                if not self._may_go_on(exc):
                    return True
                held.check()
        return False

    def _one_session(self, held: HeldLease) -> bool:
        opened = self._opened = self._open(held)
        try:
            recover(held, opened.session, self._stop)
            return self._turns(held, opened.session)
        finally:
            self._opened = None
            self.is_resting = False
            opened.close()

    def _turns(self, held: HeldLease, session: LaneSession) -> bool:
        """Take turn after turn; True: this lane may end."""
        while not self._stop.at_once.is_set():
            self.beat()
            held.check()
            is_ending, changes = self._is_ending, self._gate.changes
            may_begin = not is_ending and self._gate.hold_for(None) is None
            did_something = session.turn(may_claim=may_begin)
            if may_begin and self._is_time_to_look(did_something=did_something):
                did_something = session.pick_up() or did_something
            self.is_resting = not did_something
            self._went_well()
            if did_something:
                continue
            if is_ending or (self._once and self._is_all_done(changes)):
                return True
            self._rest(held, session)
        return False

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
        """Return whether, with ``once`` and nothing to do in this lane, nothing is left at all.

        That is: nobody else has work of ours, and nothing was held back since *changes* was read.
        """
        if self._others_work():
            return False
        return not self._gate.concerns(self._names) and self._gate.changes == changes

    def _others_work(self) -> bool:
        """Return whether lanes of other owners, dead ones included, have batches of ours."""
        others = self._vacancies.of_others(self._sources)
        if others:
            _log.info(
                "waiting for batches in lanes of other owners",
                extra={"action": "waiting_for_others", "lanes": sorted(others)},
            )
        return bool(others)

    def _rest(self, held: HeldLease, session: LaneSession) -> None:
        """Idle until the schedule says so, or by our own clock when the schedule's was changed."""
        ends_s = time.monotonic() + _LONGEST_REST_S
        while not (self.wake.is_set() or self._is_ending):
            self.beat()
            held.check()
            session.idle(_IDLE_SLICE_S)
            if time.monotonic() > ends_s:
                break
        self.wake.clear()

    @contextmanager
    def _a_lane(self) -> Iterator[HeldLease]:
        held = self._vacancies.take_any()
        try:
            yield held
        except HandOverDoubtful:
            self._stop.doubtful.add(held.lease.lane)  # kept, so that nobody stumbles over it next
            raise
        except BaseException:
            self._keeper.surrender(held)
            raise
        else:
            self._keeper.surrender(held)

    def _open(self, held: HeldLease) -> OpenedLane:
        held.beat = self.beat
        opened = self._open_lane(held)
        held.doing = opened.doing
        return opened

    # ── trouble ─────────────────────────────────────────────────────────────────────────────

    def _went_well(self) -> None:
        self._failures = 0
        self.trouble = None

    def _may_go_on(self, exc: MigratorError) -> bool:
        """Wait a little after a failure; with ``once``, give up when patience is over."""
        self.beat()
        self.trouble = str(exc)
        now_s = time.monotonic()
        if not self._failures:
            self._failing_since_s = now_s
        self._failures += 1
        if self._once and now_s - self._failing_since_s > self._patience_s:
            self._give_up("it keeps failing; giving up", "lane_gave_up", exc)
            return False
        backoff_s = min(_FIRST_BACKOFF_S * 2.0 ** min(self._failures - 1, 10), _MAX_BACKOFF_S)
        backoff_s *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        _log.warning(
            "trouble; the lane begins again",
            extra={"action": "lane_trouble", "error": str(exc), "retry_in_s": round(backoff_s, 2)},
        )
        self._stop.draining.wait(backoff_s)
        return True

    def _give_up(self, text: str, action: str, exc: MigratorError) -> None:
        self.failure = exc
        _log.error(text, extra={"action": action, "error": str(exc)})
