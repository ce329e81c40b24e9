"""One thread per lane: take a lane, open a link, work; when something breaks, begin again."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from migrator.daemon.leases import HeldLease, LeaseKeeper
from migrator.domain.timeouts import Lane
from migrator.engine.lane import LaneSession, Tally
from migrator.errors import HandOverDoubtful, LeaseLost, MigratorError
from migrator.ports import Leases

_log = logging.getLogger(__name__)

_IDLE_SLICE_S: Final = 0.2
_FIRST_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 15.0


@dataclass(slots=True)
class Stop:
    """How the whole process is asked to end."""

    draining: threading.Event = field(default_factory=threading.Event)
    """Finish what is claimed, claim nothing new."""
    at_once: threading.Event = field(default_factory=threading.Event)
    """Stop between two steps; recovery does the rest."""


class OpenedLane(Protocol):
    """A session with its link; closing it closes both."""

    session: LaneSession

    def doing(self) -> str:
        """Return in a few words what is going on, a throttle with its reason included."""
        ...

    def close(self) -> None:
        """End the session and its link; never raises."""
        ...


class OpenLane(Protocol):
    """How wiring opens a session for a lane that is held."""

    def __call__(self, held: HeldLease, tally: Tally) -> OpenedLane:
        """Connect and return the session."""
        ...


class LaneThread:
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
        """
        self.tally = Tally()
        self.failure: MigratorError | None = None
        """Why the thread ended early; None when it ended well."""
        self.wake = threading.Event()
        """Set by the schedule: look for new rows now."""
        self.trouble: str | None = None
        """What keeps it from working right now, for status."""
        self._leases = leases
        self._keeper = keeper
        self._open_lane = open_lane
        self._is_surely_dead = is_surely_dead
        self._stop = stop
        self._once = once
        self._patience_s = patience_s
        self._failures = 0
        self._failing_since_s = 0.0
        self._thread = threading.Thread(target=self._guard, name=name, daemon=True)
        self.crash: BaseException | None = None

    def start(self) -> None:
        """Let the thread run."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ── the thread ──────────────────────────────────────────────────────────────────────────

    def _guard(self) -> None:
        try:
            self._run()
        except BaseException as exc:
            self.crash = exc
            _log.critical("a lane crashed", extra={"action": "lane_crashed"}, exc_info=True)
            self._stop.draining.set()

    def _run(self) -> None:
        while not self._stop.draining.is_set():
            try:
                if self._work_one_lane() and self._once:
                    return
            except HandOverDoubtful as exc:
                self._give_up("a hand-over is doubtful; this lane stops", "lane_doubtful", exc)
                return
            except LeaseLost as exc:
                _log.warning("a lane was lost", extra={"action": "lane_lost", "error": str(exc)})
            except MigratorError as exc:
                if not self._may_go_on(exc):
                    return

    def _work_one_lane(self) -> bool:
        """Work until stopped or, with ``once``, until nothing is left; True when it is."""
        with self._a_lane() as held:
            opened = self._open(held)
            try:
                opened.session.recover()
                return self._turns(held, opened.session)
            finally:
                opened.close()

    def _turns(self, held: HeldLease, session: LaneSession) -> bool:
        while not self._stop.at_once.is_set():
            held.check()
            draining = self._stop.draining.is_set()
            did_something = session.turn(may_claim=not draining)
            self._went_well()
            if did_something:
                continue
            if draining or (self._nothing_left(session) and self._once):
                return True
            self._rest(held, session)
        return False

    def _nothing_left(self, session: LaneSession) -> bool:
        """Return True once neither this lane nor an orphaned one has work."""
        return not session.pick_up() and not self._adopt_orphans()

    def _rest(self, held: HeldLease, session: LaneSession) -> None:
        while not self.wake.is_set() and not self._stop.draining.is_set():
            held.check()
            session.idle(_IDLE_SLICE_S)
        self.wake.clear()

    @contextmanager
    def _a_lane(self) -> Iterator[HeldLease]:
        held = self._take(self._orphans()) or self._take_first_free()
        try:
            yield held
        finally:
            self._keeper.surrender(held)

    def _take_first_free(self) -> HeldLease:
        lane = 0
        while True:
            held = self._take([Lane(lane)])
            if held is not None:
                return held
            lane += 1

    def _take(self, lanes: list[Lane]) -> HeldLease | None:
        for lane in lanes:
            held = self._keeper.acquire(lane, doing=lambda: "working")
            if held is not None:
                return held
        return None

    def _orphans(self) -> list[Lane]:
        for lane, owner in self._leases.holders():
            if self._is_surely_dead(owner):
                self._leases.evict(lane, owner)
        return list(self._leases.orphaned_lanes())

    def _adopt_orphans(self) -> bool:
        """Finish what dead owners left in their lanes; return whether there was any."""
        adopted = False
        for lane in self._orphans():
            held = self._take([lane])
            if held is None:
                continue
            try:
                self._finish(held)
                adopted = True
            finally:
                self._keeper.surrender(held)
        return adopted

    def _finish(self, held: HeldLease) -> None:
        opened = self._open(held)
        try:
            opened.session.recover()
            while opened.session.turn(may_claim=False) and not self._stop.at_once.is_set():
                held.check()
        finally:
            opened.close()

    def _open(self, held: HeldLease) -> OpenedLane:
        opened = self._open_lane(held, self.tally)
        held.doing = opened.doing
        return opened

    # ── trouble ─────────────────────────────────────────────────────────────────────────────

    def _went_well(self) -> None:
        self._failures = 0
        self.trouble = None

    def _may_go_on(self, exc: MigratorError) -> bool:
        """Wait a little after a failure; with ``once``, give up when patience is over."""
        now_s = time.monotonic()
        if not self._failures:
            self._failing_since_s = now_s
        self._failures += 1
        self.trouble = str(exc)
        if self._once and now_s - self._failing_since_s > self._patience_s:
            self._give_up("it keeps failing; giving up", "lane_gave_up", exc)
            return False
        backoff_s = min(_FIRST_BACKOFF_S * 2.0 ** (self._failures - 1), _MAX_BACKOFF_S)
        backoff_s *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        _log.warning(
            "trouble; the lane begins again",
            extra={"action": "lane_trouble", "error": str(exc), "retry_in_s": round(backoff_s, 2)},
        )
        self._stop.draining.wait(backoff_s)
        return True

    def _give_up(self, text: str, action: str, exc: MigratorError) -> None:
        self.failure = exc
        self.trouble = str(exc)
        _log.error(text, extra={"action": action, "error": str(exc)})
