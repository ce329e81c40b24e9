"""From settings to a running service: read from top to bottom, it is what a daemon is made of."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from typing import Final

import structlog  # noqa: F401 - a daemon imports nothing after its start

import migrator.app.parts  # noqa: F401 - the same; see there
from migrator.app import App, tracing
from migrator.app.dispatchers import DispatcherWiring
from migrator.config import Settings
from migrator.config.process import AUTO
from migrator.config.work import EndpointMode, OnCritical
from migrator.dispatcher.loop import DispatcherPlan
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.lease_keeper import LeaseKeeper, current_owner, is_surely_dead
from migrator.ledger.pause_reasons import PauseReason
from migrator.ledger.report import HeldRows
from migrator.ledger.states import Mode
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.preflight.registry import Rechecks
from migrator.service.audit_log import AuditLog
from migrator.service.control import Control, Pauses, QuarantineService, Served
from migrator.service.dispatchers import DispatcherThread, Outage
from migrator.service.hooks import Fire, HookEvents
from migrator.service.lanes import PATIENCE_S, Adopter, LaneContext, LaneOpener, LaneThread
from migrator.service.recheck import Recheck
from migrator.service.runtime_settings import Reload, RuntimeSettings
from migrator.service.schedule import JobCounts
from migrator.service.service import Runs, Service
from migrator.service.status import DaemonStatus, StatusPoller, StatusQueries
from migrator.service.systemd import ServiceManager, Supervision
from migrator.service.tasks import periodic_jobs
from migrator.service.throttle import (
    ClaimGuard,
    SignalThrottle,
    SignalThrottles,
    Throttle,
    critical_load,
    log_pauses,
)
from migrator.service.throttle_signals import believe_as_told, build_throttles
from migrator.service.worker import Stop, WorkerPool, one_by_one
from migrator.telemetry.ports import Tracer
from migrator.web.listener import own_socket
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve

_SWITCH_S: Final = 0.001
"""A lane that talks to the broker must not wait 5 ms, Python's default, whenever the thread that
converts the next batch is busy; measured in benchmarks/handover.py."""
_GC_THRESHOLDS: Final = (20_000, 20, 20)
"""Rows make no cycles; looking for some every 700 values is in vain."""


def run(
    app: App,
    endpoints: Sequence[StoreEndpoint],
    *,
    once: bool,
    watch: Callable[[], None],
    describe: Callable[[], str],
    load: Callable[[], Settings] | None = None,
    fire: Fire = lambda _event, _text, _facts: None,
    checks: Rechecks | None = None,
    held: Callable[[Sequence[HeldRows]], None] = lambda _rows: None,
) -> ExitCode:
    """Migrate *endpoints* until done (*once*) or told to stop by a signal; return the exit code.

    Preflight is the caller's business. Whatever happens here, the ledger has the truth, and
    calling this again goes on.

    Args:
        app: What everything is made of.
        endpoints: Whose timeouts are handed over or dispatched.
        once: End when nothing is left to do now.
        watch: Called a few times a second, by the main thread.
        describe: Says in a line how far everything is, and may take its time.
        load: Reads the settings anew when a signal asks for it.
        fire: Runs hooks.
        checks: Made again at intervals.
        held: Called at the end of *once* with what waits in the store.

    Raises:
        ConfigError: It cannot listen where ``[web]`` says, or cannot send traces. Nothing was
            begun.
    """
    tune_interpreter()
    with ExitStack() as ends:
        tracer = ends.enter_context(tracing(app.settings.telemetry))
        runs = [(endpoint, app.runs.begin(endpoint, app.run_options)) for endpoint in endpoints]
        try:
            daemon = _Daemon(app, runs, ends, once=once, fire=fire, tracer=tracer)
            daemon.prepare()
        except MigratorError:
            for _, each in runs:
                app.runs.end(each, "failed")
            raise
        return daemon.work(watch=watch, describe=describe, load=load, checks=checks, held=held)


def tune_interpreter() -> None:
    """Fit Python to a few threads and many short-lived values (a tenth of the speed)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


class _Daemon:
    """The parts of one process, put together; what they need is ended by the stack."""

    def __init__(
        self, app: App, runs: Runs, ends: ExitStack, *, once: bool, fire: Fire, tracer: Tracer
    ) -> None:
        self._app = app
        self._runs = runs
        self._ends = ends
        self._once = once
        self._tracer = tracer
        endpoints = [endpoint for endpoint, _ in runs]
        self._dispatching = DispatcherWiring(app)
        self._moved = self._dispatching.moved(endpoints)
        """The endpoints whose stored rows are handed over here."""
        names = [endpoint.name for endpoint in self._moved]

        self._stop = Stop()
        self._owner = current_owner()
        self._keeper = LeaseKeeper(app.leases, owner=self._owner, duration=app.plan.lease)
        self._runtime = RuntimeSettings(app.settings.handover)
        self._holding = app.new_holding()
        self._instruments = Instruments()
        self._job_counts = JobCounts()

        # whatever changes is logged, noted in the ledger, and may have a hook run
        self._audit_log = AuditLog(app.runs)
        self._hook_events = HookEvents(
            fire, [endpoint.name for endpoint in endpoints], is_idle=self._is_idle
        )
        self._throttle = Throttle(
            log_pauses(self._audit_log), self._on_throttle, self._hook_events.throttled
        )
        self._pauses = Pauses(self._throttle, self._audit_log, names)

        # the workers
        self._lane_context = LaneContext(
            leases=app.leases,
            keeper=self._keeper,
            stop=self._stop,
            throttle=self._throttle,
            claims=ClaimGuard(
                self._throttle,
                self._stop,
                self._moved,
                read_due_times=app.read_due_times,
                now_s=app.clock.monotonic_s,
            ),
            endpoints=self._moved,
            once=once,
        )
        self._adopter = self._new_adopter() if self._moved else None
        plans = self._dispatching.plans(endpoints)
        self._workers = WorkerPool(
            [*map(self._new_dispatcher, plans), *filter(None, [self._adopter])],
            new_lane=self._new_lane if self._moved else None,
            lanes=self._runtime.now.lanes,
        )
        ends.callback(self._workers.close)

        # what looks at all of it
        self._supervision = Supervision(ServiceManager(), self._workers, self._stop)
        queries = StatusQueries(app, endpoints)
        self._poller = StatusPoller(queries, polled=self._hook_events.polled)
        self._signals = SignalThrottles(self._new_throttles(app.settings))

    def prepare(self) -> None:
        """Look at everything once, and let others look at us."""
        ends = self._ends
        self._audit_log.start()
        ends.callback(self._audit_log.end)
        self._poller.poll()
        self._pauses.restore(self._app.books.latest_event_of_each)
        ends.enter_context(serve(self._status_service(), _web_plan(self._app), self._instruments))
        ends.callback(self._signals.end)
        self._signals.begin()
        self._holding.begin(self._moved)

    def work(
        self,
        *,
        watch: Callable[[], None],
        describe: Callable[[], str],
        load: Callable[[], Settings] | None,
        checks: Rechecks | None,
        held: Callable[[Sequence[HeldRows]], None],
    ) -> ExitCode:
        """Work until the end; return the exit code."""
        app = self._app
        jobs = [
            *periodic_jobs(
                app,
                self._workers,
                self._supervision,
                self._poller,
                self._holding,
                describe=describe,
                once=self._once,
            ),
            self._signals.job,
        ]
        every = app.settings.broker.recheck_interval
        if checks is not None and every is not None:
            jobs += self._recheck(checks).jobs(every)
        service = Service(
            app,
            self._runs,
            moved=self._moved,
            holding=self._holding,
            tell_held=held,
            keeper=self._keeper,
            stop=self._stop,
            once=self._once,
            reload=Reload(
                app.settings,
                load=load or (lambda: app.settings),
                runtime=self._runtime,
                workers=self._workers,
                replace_throttles=lambda given: self._signals.replace(self._new_throttles(given)),
                audit_log=self._audit_log,
            ),
        )
        code = service.run(
            self._workers,
            jobs=jobs,
            counts=self._job_counts,
            supervision=self._supervision,
            watch=watch,
            begun=self._hook_events.started,
        )
        if self._once and code in (ExitCode.DONE, ExitCode.QUARANTINED):
            with suppress(MigratorError):  # it is done, whether or not it can be told
                self._hook_events.finished(app.books.progress())
        return code

    # ── workers ─────────────────────────────────────────────────────────────────────────────

    def _new_lane(self, name: str, ends: ExitStack) -> LaneThread:
        return LaneThread(name, self._lane_context, self._lane_opener(ends))

    def _new_adopter(self) -> Adopter:
        return Adopter(
            self._lane_context,
            self._lane_opener(self._ends),
            lanes_have_ended=lambda: self._workers.lanes_have_ended(),
        )

    def _lane_opener(self, ends: ExitStack) -> LaneOpener:
        def settled(batch: Batch, rows: int, seconds: float) -> None:
            endpoint, mode = str(batch.endpoint), str(batch.mode)
            self._instruments.batch_settled(endpoint, mode, seconds=seconds, rows=rows)

        return LaneOpener(
            self._app,
            [(endpoint, run) for endpoint, run in self._runs if endpoint in self._moved],
            pools=ends,
            throttle=self._throttle,
            claims=self._lane_context.claims,
            holding=self._holding,
            runtime=self._runtime,
            settled=settled,
            tracer=self._tracer,
        )

    def _new_dispatcher(self, plan: DispatcherPlan) -> DispatcherThread:
        """Return a thread for an endpoint whose timeouts we send ourselves."""
        given, wiring, instruments = (
            self._app.settings.dispatch,
            self._dispatching,
            self._instruments,
        )
        name, mode = str(plan.endpoint.name), str(Mode.DISPATCH)
        dispatcher = wiring.new(
            plan,
            next(run for endpoint, run in self._runs if endpoint == plan.endpoint),
            storing=one_by_one(self._ends, "storing"),
            claiming=one_by_one(self._ends, "dispatching"),
            sent=lambda late_s: instruments.sent(name, lateness_s=late_s),
            settled=lambda rows, seconds: instruments.batch_settled(
                name, mode, seconds=seconds, rows=rows
            ),
            tracer=self._tracer,
        )
        return DispatcherThread(
            dispatcher,
            leases=self._app.leases,
            keeper=self._keeper,
            is_surely_dead=is_surely_dead,
            outage=Outage(
                critical_after=given.critical_after,
                exits=given.on_critical is OnCritical.EXIT,
                patience=timedelta(seconds=PATIENCE_S),
            ),
            stop=self._stop,
            once=self._once,
        )

    # ── throttle ────────────────────────────────────────────────────────────────────────────

    def _new_throttles(self, given: Settings) -> Sequence[SignalThrottle]:
        return [
            *build_throttles(
                given.throttle,
                self._app,
                self._moved,
                self._throttle,
                workers=self._workers,
                owner=self._owner,
                critical=critical_load(self._stop, self._audit_log),
            )
        ]

    def _on_throttle(self, _reason: PauseReason, _began: bool) -> None:
        """Have lanes look again, and tell the ledger."""
        self._workers.wake()
        self._keeper.renew_soon()

    def _is_idle(self) -> bool:
        """Return whether nothing is left to move now, and nothing has to wait."""
        names = [endpoint.name for endpoint in self._moved]
        adopts = self._adopter is not None and self._adopter.is_at_work
        return self._workers.is_resting and not adopts and not self._throttle.concerns(names)

    def _recheck(self, checks: Rechecks) -> Recheck:
        app = self._app
        return Recheck(
            self._throttle,
            self._audit_log,
            checks=checks,
            bind=lambda names: app.new_destinations().unreachable(names),
            may_pause=bool(self._moved),
        )

    # ── status and control ──────────────────────────────────────────────────────────────────

    def _status_service(self) -> DaemonStatus:
        served = [*self._served()]
        quarantine = QuarantineService(self._app, self._audit_log, wake=self._workers.wake)
        control = Control(
            throttle=self._throttle,
            runtime=self._runtime,
            workers=self._workers,
            stop=self._stop,
            audit_log=self._audit_log,
            served=served,
            pauses=self._pauses,
            retry=quarantine.retry,
            believe_clock=partial(believe_as_told, self._app.clock),
        )
        return DaemonStatus(
            owner=self._owner,
            served=served,
            throttle=self._throttle,
            runtime=self._runtime,
            workers=self._workers,
            stop=self._stop,
            supervision=self._supervision,
            poller=self._poller,
            control=control,
            quarantine_service=quarantine,
            jobs=self._job_counts,
        )

    def _served(self) -> Iterator[Served]:
        modes = {given.name: given.mode for given in self._app.settings.endpoints}
        for endpoint, _ in self._runs:
            mode = str(modes.get(endpoint.name, EndpointMode.MIGRATE))
            yield Served(name=endpoint.name, mode=mode, moves=endpoint in self._moved)


def _web_plan(app: App) -> WebPlan:
    given = app.settings.web
    token = None if given.token is None else given.token.get_secret_value()
    is_usual = given.socket == AUTO
    file = own_socket(os.environ) if given.socket == AUTO else given.socket
    return WebPlan(socket=file, needs_socket=not is_usual, listen=given.address, token=token)
