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

from migrator.dispatcher.loop import Dispatcher
from migrator.errors import LeaseLost, LedgerAdopted, MigratorError
from migrator.handover.sources import FailingSources
from migrator.ledger.lease_keeper import OwnedLease
from migrator.service.worker import Worker, WorkerContext, run_leased

_log = logging.getLogger(__name__)

_STANDBY_LOOK_S: Final = 1.0
_TELL_EVERY_S: Final = 10.0
_QUIET_S: Final = 1.5
"""With ``once``: done after so long without anything to do; two polls fit in."""


class DispatcherThread(Worker):
    """Is the dispatcher of one endpoint, or waits to be.

    Args:
        dispatcher: What it does.
        context: What it shares with others.
        failing: Knows whether a check refuses the endpoint; it waits until none does.
        critical_s: An outage that lasts longer is critical.
        exits: The process ends once an outage is critical.
    """

    crash_action = "dispatcher_crashed"
    longest_backoff_s = 10.0

    def __init__(
        self,
        dispatcher: Dispatcher,
        context: WorkerContext,
        *,
        failing: FailingSources,
        critical_s: float,
        exits: bool,
    ) -> None:
        endpoint = dispatcher.plan.endpoint.name
        super().__init__(f"dispatcher-{endpoint}", context)
        self.log_facts = {"endpoint": endpoint}
        self._dispatcher = dispatcher
        self._endpoint = endpoint
        self._failing = failing
        self._critical_s = critical_s
        self._exits = exits
        self._finishes_only = dispatcher.plan.finishes_only
        self._failing_since_s: float | None = None
        self._tell_again_s = float("-inf")
        self._is_critical = False
        self._leader: str | None = None

    def _run(self) -> None:
        run_leased(
            self,
            self._acquire,
            self._work,
            tolerates=self._tolerates,
            log_lost=self._log_lost,
        )

    def _acquire(self) -> OwnedLease | None:
        """Wait for the endpoint's lease as a standby; None when there is no need to."""
        endpoint = self._dispatcher.plan.endpoint
        lane = self._leases.dispatcher_lane(endpoint)
        while not self.is_ending:
            self.beat()
            if self._failing.is_refused(endpoint.source):
                if self._once:
                    return None
                self._stop.draining.wait(_STANDBY_LOOK_S)
                continue
            owner = self._leases.owner_of(lane)
            if owner is not None and self._context.is_surely_dead(owner):
                self._leases.evict(lane, owner)
            elif owner is not None:
                self._tell_standby(owner)
                if self._once or self._finishes_only:
                    return None  # it is that process's work, and that process does it
            held = self._keeper.acquire(lane, doing=partial(str, "starting"))
            if held is not None:
                self._leader = None
                self._say(
                    logging.INFO, "dispatcher_active", "this process is the endpoint's dispatcher"
                )
                return held
            self._stop.draining.wait(_STANDBY_LOOK_S)
        return None

    def _work(self, held: OwnedLease) -> None:
        """Work over one link until all is done, or told to stop."""
        session = self.link = self._dispatcher.open(held.lease, partial(self.check, held))
        held.doing = lambda: session.activity
        is_ours = True
        try:
            while True:
                self.beat()
                if self.wake.is_set():
                    self.wake.clear()
                    session.poll_soon()
                finishing = self.is_ending or self._finishes_only
                is_busy = session.turn(may_take=not finishing)
                if isinstance(session.problem, LedgerAdopted):
                    raise session.problem
                if session.problem is not None and not self._tolerates(session.problem):
                    return
                if session.problem is None and session.has_polled:
                    self._went_well()
                if finishing and not is_busy:
                    return
                is_quiet = session.has_polled and session.is_idle_for(_QUIET_S)
                if self._once and is_quiet and not finishing:
                    return
        except LeaseLost:
            is_ours = False
            raise
        finally:
            self.link = None
            session.close(at_once=not is_ours)

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
        self.backoff.succeeded()
        self.trouble = None
        self._is_critical = False
        self._tell_again_s = float("-inf")

    def _log_lost(self, exc: LeaseLost) -> None:
        text = "the dispatcher's lease was lost; this process is now a standby"
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
                "the dispatcher is degraded; it keeps trying",
                **facts,
            )
        if self._once and failing_s > self._context.patience_s:
            self._give_up("the dispatcher keeps failing; giving up", exc)
            return False  # the others go on to their end
        if failing_s > self._critical_s:
            if not self._is_critical:
                self._is_critical = True
                self._say(
                    logging.ERROR,
                    "dispatcher_critical",
                    "the dispatcher has not worked for too long; nothing is lost, but its "
                    "timeouts are late",
                    **facts,
                )
            if self._exits:
                self._give_up("ending the process, as dispatch.on_critical says", exc)
                self._stop.draining.set()
                return False
        return True

    def _give_up(self, text: str, exc: MigratorError) -> None:
        self.failure = exc
        self._say(logging.ERROR, "dispatcher_gave_up", text, error=str(exc))

    def _say(self, level: int, action: str, text: str, **facts: object) -> None:
        _log.log(level, text, extra={"action": action, "endpoint": self._endpoint, **facts})
