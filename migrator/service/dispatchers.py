"""One thread per dispatcher: wait for its lease, open a link, work; when something breaks, again.

An endpoint has one active dispatcher. Whoever does not get the lease is a hot standby: it looks
every second, and takes over when the lease ends or its owner is surely dead. By then the broker
has closed a silent owner's connection, because the lease is longer than three heartbeats.
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Final

from migrator.dispatcher.loop import Dispatcher, DispatcherSession
from migrator.errors import LeaseLost, LedgerAdopted, MigratorError
from migrator.ledger.lease_keeper import HeldLease
from migrator.service.worker import LeasedWorker, WorkerContext

_log = logging.getLogger(__name__)

_STANDBY_LOOK_S: Final = 1.0
_MAX_BACKOFF_S: Final = 10.0
_TELL_EVERY_S: Final = 10.0
_QUIET_S: Final = 1.5
"""With ``once``: done after so long without anything to do; two polls fit in."""


class DispatcherThread(LeasedWorker):
    """Is the dispatcher of one endpoint, or waits to be."""

    trouble_word = "degraded"

    def __init__(
        self, dispatcher: Dispatcher, context: WorkerContext, *, critical_s: float, exits: bool
    ) -> None:
        """Prepare a thread; ``start`` lets it run.

        Args:
            dispatcher: What it does.
            context: What it shares with others.
            critical_s: An outage that lasts longer is critical.
            exits: The process ends once an outage is critical.
        """
        endpoint = dispatcher.plan.endpoint.name
        super().__init__(
            f"dispatcher-{endpoint}",
            context,
            crash_action="dispatcher_crashed",
            facts={"endpoint": endpoint},
            longest_backoff_s=_MAX_BACKOFF_S,
        )
        self._dispatcher = dispatcher
        self._endpoint = endpoint
        self._critical_s = critical_s
        self._exits = exits
        self._finishes_only = dispatcher.plan.finishes_only
        self._failing_since_s: float | None = None
        self._tell_again_s = float("-inf")
        self._is_critical = False
        self._leader: str | None = None
        self._session: DispatcherSession | None = None

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker makes it wait, or None."""
        session = self._session
        return None if session is None else session.blocked_reason

    def _acquire(self) -> HeldLease | None:
        """Wait for the endpoint's lease as a standby; None when there is no need to."""
        lane = self._leases.dispatcher_lane(self._dispatcher.plan.endpoint)
        while not self.is_ending:
            self.beat()
            owner = self._leases.owner_of(lane)
            if owner is not None and self._context.is_surely_dead(owner):
                self._leases.evict(lane, owner)
            elif owner is not None:
                self._tell_standby(owner)
                if self._once or self._finishes_only:
                    return None  # it is that process's work, and that process does it
            held = self._keeper.acquire(lane, doing=lambda: "starting")
            if held is not None:
                self._leader = None
                self._say(
                    logging.INFO, "dispatcher_active", "this process is the endpoint's dispatcher"
                )
                return held
            self._stop.draining.wait(_STANDBY_LOOK_S)
        return None

    def _one_session(self, held: HeldLease) -> None:
        session = self._session = self._dispatcher.open(held.lease, partial(self.check, held))
        held.doing = lambda: session.doing
        is_ours = True
        try:
            while not self._is_done(session):
                pass
        except LeaseLost:
            is_ours = False
            raise
        finally:
            self._session = None
            session.close(at_once=not is_ours)

    def _is_done(self, session: DispatcherSession) -> bool:
        """Do one turn; return whether it was the last."""
        self.beat()
        finishing = self.is_ending or self._finishes_only
        is_busy = session.turn(may_take=not finishing)
        if session.problem is not None:
            if isinstance(session.problem, LedgerAdopted):
                raise session.problem
            if not self._tolerates(session.problem):
                return True
        elif session.has_polled:
            self._went_well()
        if finishing:
            return not is_busy
        return self._once and session.has_polled and session.is_idle_for(_QUIET_S)

    def _tell_standby(self, owner: str) -> None:
        if owner == self._leader:
            return
        self._leader = owner
        self._say(
            logging.INFO,
            "dispatcher_standby",
            "another process is the endpoint's dispatcher; this one is a hot standby",
            owner=owner,
        )

    # ── outages ─────────────────────────────────────────────────────────────────────────────

    def _went_well(self) -> None:
        if self._failing_since_s is not None:
            after_s = round(time.monotonic() - self._failing_since_s, 1)
            self._say(
                logging.INFO, "dispatcher_recovered", "the dispatcher works again", after_s=after_s
            )
        self._failing_since_s = None
        self._backoff.succeeded()
        self.trouble = None
        self._is_critical = False
        self._tell_again_s = float("-inf")

    def _say_lost(self, exc: LeaseLost) -> None:
        text = "the dispatcher's lease was lost; it is a standby now"
        self._say(logging.WARNING, "dispatcher_lost", text, error=str(exc))

    def _tolerates(self, exc: MigratorError) -> bool:
        """Say what is wrong, now and then; after too long, do what was chosen. False: give up."""
        now_s = time.monotonic()
        self.trouble = str(exc)
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        failing_s = now_s - self._failing_since_s
        facts = {"error": str(exc), "failing_s": round(failing_s, 1)}
        if now_s >= self._tell_again_s:
            self._tell_again_s = now_s + _TELL_EVERY_S
            self._say(
                logging.WARNING,
                "dispatcher_degraded",
                "the dispatcher is degraded; it goes on trying",
                **facts,
            )
        if self._once and failing_s > self._context.patience_s:
            return self._give_up("the dispatcher keeps failing; giving up", exc)
        if failing_s > self._critical_s:
            if not self._is_critical:
                self._is_critical = True
                self._say(
                    logging.ERROR,
                    "dispatcher_critical",
                    "the dispatcher has not worked for too long; nothing is lost, all is late",
                    **facts,
                )
            if self._exits:
                return self._give_up("ending, as dispatch.on_critical says", exc)
        return True

    def _give_up(self, text: str, exc: MigratorError) -> bool:
        self.failure = exc
        self._say(logging.ERROR, "dispatcher_gave_up", text, error=str(exc))
        self._stop.draining.set()
        return False

    def _say(self, level: int, action: str, text: str, **facts: object) -> None:
        _log.log(level, text, extra={"action": action, "endpoint": self._endpoint, **facts})
