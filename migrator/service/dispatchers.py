"""One thread per dispatcher: wait for its lease, open a link, work; when something breaks, again.

An endpoint has one active dispatcher. Whoever does not get the lease is a hot standby: it looks
every second, and takes over when the lease ends or its owner is surely dead. By then the broker
has closed a silent owner's connection, because the lease is longer than three heartbeats.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from migrator.app import App
from migrator.config.work import EndpointMode, NearDue, OnCritical
from migrator.dispatcher.due import Poller
from migrator.dispatcher.failures import Recoverability
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.dispatcher.link import RabbitRoutes
from migrator.dispatcher.loop import Dispatcher, DispatcherPlan
from migrator.dispatcher.receive import DelayedMessageHandler, Forwarding, Storing
from migrator.errors import LeaseLost, LedgerAdopted, MigratorError
from migrator.handover.sources import FailingSources
from migrator.ledger.held_destinations import HeldDestinations
from migrator.ledger.lease_keeper import HeldLease
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName, RunId
from migrator.rabbitmq.names import retry_queue
from migrator.service.worker import Worker, WorkerContext, one_by_one, run_leased
from migrator.stores.due_times import DueTimeReading, read_due_times
from migrator.stores.sql.intake import SqlIntake
from migrator.web.metrics import Instruments

_log = logging.getLogger(__name__)

_STANDBY_LOOK_S: Final = 1.0
_TELL_EVERY_S: Final = 10.0
_QUIET_S: Final = 1.5
"""With ``once``: done after so long without anything to do; two polls fit in."""


# ── what a dispatcher is made of ────────────────────────────────────────────────────────────────


def new_dispatchers(
    app: App,
    runs: Sequence[tuple[StoreEndpoint, RunId]],
    context: WorkerContext,
    *,
    ends: ExitStack,
    instruments: Instruments,
    failing: FailingSources,
) -> Iterator[DispatcherThread]:
    """Yield a thread for each endpoint whose stored or new timeouts we send ourselves.

    An endpoint that is no longer dispatched may have rows that a kill left in flight; what was
    parked by the other kind of work is taken over. *ends* ends the threads that a dispatcher works
    with; *instruments* count what is sent; *failing* knows which endpoints a check refuses.
    """
    given = app.settings
    routes = RabbitRoutes(
        app.connection,
        topology=given.broker.topology,
        find_bindings=app.management.bindings_from if app.management else None,
    )
    open_batches = app.queries.open_batches()
    left_open = {each.source for each in open_batches if each.mode is Mode.DISPATCH}
    for endpoint, run in runs:
        is_consumed = given.endpoint(endpoint.name).mode is not EndpointMode.MIGRATE
        is_wanted = is_consumed or given.handover.near_due is NearDue.DISPATCH
        if not is_wanted:
            app.parking.take_over([endpoint.source], given.handover.mode)
        elif given.endpoint(endpoint.name).mode is EndpointMode.DISPATCH:
            app.parking.take_over([endpoint.source], Mode.DISPATCH)
        if not is_wanted and endpoint.source not in left_open:
            continue
        name, mode = str(endpoint.name), str(Mode.DISPATCH)
        dispatcher = Dispatcher(
            plan=_plan(app, endpoint, is_consumed=is_consumed, finishes_only=not is_wanted),
            poller=_poller(app, endpoint, run, routes),
            handler=_handler(app, endpoint, routes) if is_consumed else None,
            connection=app.connection,
            clock=app.clock,
            fault=app.fault,
            storing=one_by_one(ends, "storing"),
            claiming=one_by_one(ends, "dispatching"),
            sent=partial(instruments.sent, name),
            settled=partial(instruments.batch_settled, name, mode),
        )
        yield DispatcherThread(
            dispatcher,
            context,
            failing=failing,
            critical_s=given.dispatch.critical_after.total_seconds(),
            exits=given.dispatch.on_critical is OnCritical.EXIT,
        )


def _plan(
    app: App, endpoint: StoreEndpoint, *, is_consumed: bool, finishes_only: bool
) -> DispatcherPlan:
    given, own = app.settings.dispatch, app.settings.endpoint(endpoint.name)
    queue = QueueName(own.input_queue)
    consumed = timeouts_queue(queue) if is_consumed else None
    delays_s = [int(delay.total_seconds()) for delay in given.retry_delays]
    machine = socket.gethostname()
    return DispatcherPlan(
        endpoint=endpoint,
        timeouts_queue=consumed,
        control_queue=dispatcher_queue(queue) if consumed else None,
        recoverability=Recoverability(
            retry_queues=[retry_queue(consumed, each) for each in delays_s] if consumed else (),
            error_queue=own.error_queue or given.error_queue,
            endpoint=str(endpoint.name),
            machine=machine,
            host_id=uuid.uuid5(uuid.NAMESPACE_DNS, machine).hex,
        ),
        retry_delays_s=delays_s,
        prefetch=given.prefetch,
        version=app.settings.broker.delays,
        limits=app.window_limits,
        finishes_only=finishes_only,
    )


def due_time_reader(app: App) -> Callable[[StoreEndpoint], DueTimeReading]:
    """Return what tells whether due times of an endpoint are read in the right zone."""
    return partial(read_due_times, app.store, clock=app.clock, rules=app.due_times)


def _poller(app: App, endpoint: StoreEndpoint, run: RunId, routes: RabbitRoutes) -> Poller:
    """Return what claims and settles stored rows of *endpoint* in *run*."""
    given = app.settings.dispatch
    return Poller(
        endpoint=endpoint,
        run=run,
        claims=app.sql_side(wanted_for="dispatching").claims,
        batches=app.batches,
        dispatched=DispatchedBatches(app.engine, app.tables),
        held=HeldDestinations(
            app.held_destinations, app.parking, endpoint, is_dispatched=True, fault=app.fault
        ),
        routes=routes,
        clock=app.clock,
        every=given.poll_interval,
        look_ahead=given.look_ahead,
        max_rows=given.batch_size,
        max_bytes=app.settings.handover.batch_bytes,
        remember=given.remember,
        conversion=app.rules_of(endpoint.name),
        fault=app.fault,
        read_due_times=due_time_reader(app),
    )


def _handler(app: App, endpoint: StoreEndpoint, routes: RabbitRoutes) -> DelayedMessageHandler:
    """Return what stores or forwards what comes in."""
    store = app.sql_side(wanted_for="storing timeouts").store
    intake = SqlIntake(app.engine, app.tables, store.legacy_table)
    rules = app.rules_of(endpoint.name)
    if app.settings.endpoint(endpoint.name).mode is EndpointMode.FORWARD:
        return Forwarding(
            intake=intake,
            endpoint=endpoint,
            destinations=app.destinations,
            clock=app.clock,
            rules=rules,
            fault=app.fault,
        )
    return Storing(
        intake=intake,
        endpoint=endpoint,
        routes=routes,
        clock=app.clock,
        rules=rules,
        fault=app.fault,
    )


# ── its thread ──────────────────────────────────────────────────────────────────────────────────


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

    def _acquire(self) -> HeldLease | None:
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
            held = self._keeper.acquire(lane, doing=lambda: "starting")
            if held is not None:
                self._leader = None
                self._say(
                    logging.INFO, "dispatcher_active", "this process is the endpoint's dispatcher"
                )
                return held
            self._stop.draining.wait(_STANDBY_LOOK_S)
        return None

    def _work(self, held: HeldLease) -> None:
        """Work over one link until all is done, or told to stop."""
        session = self.link = self._dispatcher.open(held.lease, partial(self.check, held))
        held.doing = lambda: session.doing
        is_ours = True
        try:
            while True:
                self.beat()
                if self.wake.is_set():
                    self.wake.clear()
                    session.look_soon()
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
