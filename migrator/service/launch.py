"""From an assembled application to a running service."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial

import migrator.app.parts
import migrator.service.logs.lines  # noqa: F401 - the same
from migrator.app import App, tracing
from migrator.app.dispatchers import DispatcherWiring
from migrator.config import Settings
from migrator.config.process import AUTO
from migrator.config.work import EndpointMode, OnCritical
from migrator.dispatcher.loop import DispatcherPlan
from migrator.errors import ExitCode, MigratorError
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.owner import current_owner, is_surely_dead
from migrator.ledger.report import HeldRows
from migrator.ledger.states import Mode
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.service.adopting import Adopter
from migrator.service.aside import AppRows, Aside
from migrator.service.control import Control, Served
from migrator.service.crew import Crew
from migrator.service.dispatchers import DispatcherThread, Outage
from migrator.service.due_times import DueTimeGuard
from migrator.service.gate import Gate
from migrator.service.interpreter import tune
from migrator.service.jobs import Job, Tally
from migrator.service.knobs import Knobs
from migrator.service.lanes import LaneThread
from migrator.service.lookout import Lookout
from migrator.service.notify import ServiceManager
from migrator.service.occasions import Fire, Occasions, WatchedReads
from migrator.service.openers import LaneOpener, OneByOne, Runs
from migrator.service.outstanding import Outstanding
from migrator.service.panel import DaemonPanel, PanelParts
from migrator.service.pauses import Pauses
from migrator.service.reads import AppReads
from migrator.service.recheck import Checks, Recheck
from migrator.service.reload import Reload
from migrator.service.schedule import schedule
from migrator.service.service import Service
from migrator.service.supervision import Supervision
from migrator.service.telling import both, panicking, telling
from migrator.service.throttles.all_of import Throttles
from migrator.service.throttles.base import Throttle
from migrator.service.throttles.build import Watched, build_throttles
from migrator.service.throttles.clock import believe_as_told
from migrator.service.trail import Trail
from migrator.service.worker import Stop
from migrator.telemetry.ports import Tracer
from migrator.web.listener import own_socket
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve

PATIENCE_S = 90.0
"""``--once`` gives up after failing for so long without progress; a daemon never does."""


def run(
    app: App,
    endpoints: Sequence[StoreEndpoint],
    *,
    once: bool,
    watch: Callable[[], None],
    describe: Callable[[], str],
    load: Callable[[], Settings] | None = None,
    fire: Fire = lambda _event, _text, _facts: None,
    checks: Checks | None = None,
    held: Callable[[Sequence[HeldRows]], None] = lambda _rows: None,
) -> ExitCode:
    """Migrate *endpoints* until done (*once*) or told to stop by a signal; return the exit code.

    *watch* is called a few times a second, by the main thread; *describe* says in a line how far
    everything is, and may take its time; *load* reads the settings anew when a signal asks for it;
    *fire* tells hooks; *checks* are made again at intervals; *held* is told at the end of *once*
    what waits in the store.
    Preflight is the caller's business. Whatever happens here, the ledger has the truth, and
    calling this again goes on.

    Raises:
        ConfigError: It cannot listen where ``[web]`` says, or cannot send traces. Nothing was
            begun.
    """
    tune()
    with ExitStack() as ends:
        tracer = ends.enter_context(tracing(app.settings.telemetry))
        runs = [(endpoint, app.runs.begin(endpoint, app.run_options)) for endpoint in endpoints]
        daemon = _Daemon(app, runs, ends, once=once, fire=fire, held=held, tracer=tracer)
        try:
            daemon.prepare()
        except MigratorError:
            for _, each in runs:
                app.runs.end(each, "failed")
            raise
        return daemon.work(watch=watch, describe=describe, load=load, checks=checks)


class _Daemon:
    """The parts of one process, put together; what they need is ended by the stack."""

    def __init__(
        self,
        app: App,
        runs: Runs,
        ends: ExitStack,
        *,
        once: bool,
        fire: Fire,
        held: Callable[[Sequence[HeldRows]], None],
        tracer: Tracer,
    ) -> None:
        self._app = app
        self._tracer = tracer
        self._runs = runs
        self._ends = ends
        self._once = once
        self._wiring = DispatcherWiring(app)
        self._moved = self._wiring.moved([endpoint for endpoint, _ in runs])
        self._holding = app.new_holding()
        self._outstanding = Outstanding(app, self._holding, self._moved, tell=held)
        self._stop = Stop()
        self._owner = current_owner()
        self._keeper = LeaseKeeper(app.leases, owner=self._owner, duration=app.plan.lease)
        self._knobs = Knobs(app.settings.handover)
        self._instruments = Instruments()
        self._trail = Trail(app.runs)
        self._tally = Tally()
        names = [endpoint.name for endpoint, _ in runs]
        self._occasions = Occasions(fire, names, is_idle=self._is_idle)
        self._gate = Gate(both(telling(self._trail, self._on_change), self._occasions.held))
        moved = [endpoint.name for endpoint in self._moved]
        self._due_times = DueTimeGuard(
            {endpoint.name: endpoint for endpoint, _ in runs},
            look=app.read_due_times,
            gate=self._gate,
            now_s=app.clock.monotonic_s,
        )
        self._pauses = Pauses(self._gate, self._trail, moved)
        self._adopter = self._new_adopter() if self._moved else None
        self._crew = Crew(
            [*self._dispatchers(), *filter(None, [self._adopter])],
            new_lane=self._new_lane if self._moved else None,
            lanes=self._knobs.now.lanes,
        )
        ends.callback(self._crew.close)
        self._supervision = Supervision(ServiceManager(), self._crew, self._stop)
        reads = AppReads(app, [endpoint for endpoint, _ in runs])
        self._lookout = Lookout(WatchedReads(reads, self._occasions.looked))
        self._throttles = Throttles(self._build(app.settings))

    def prepare(self) -> None:
        """Look at everything once, and let others look at us."""
        ends = self._ends
        self._trail.start()
        ends.callback(self._trail.end)
        self._lookout.look()
        self._pauses.restore(self._app.books.latest_event_of_each)
        ends.enter_context(serve(self._panel(), _web_plan(self._app), self._instruments))
        ends.callback(self._throttles.end)
        self._throttles.begin()
        self._holding.begin(self._moved)

    def work(
        self,
        *,
        watch: Callable[[], None],
        describe: Callable[[], str],
        load: Callable[[], Settings] | None,
        checks: Checks | None,
    ) -> ExitCode:
        """Work until the end; return the exit code."""
        app = self._app
        reload = Reload(
            app.settings,
            load=load or (lambda: app.settings),
            knobs=self._knobs,
            crew=self._crew,
            replace_throttles=lambda given: self._throttles.replace(self._build(given)),
            trail=self._trail,
        )
        service = Service(
            runs=app.runs,
            outstanding=self._outstanding,
            keeper=self._keeper,
            stop=self._stop,
            once=self._once,
            reload=reload,
        )
        jobs = schedule(
            app,
            self._crew,
            self._supervision,
            self._lookout,
            self._holding,
            describe=describe,
            ends=self._ends,
            once=self._once,
        )
        code = service.run(
            self._runs,
            self._crew,
            jobs=[*jobs, self._throttles.job, *self._rechecks(checks)],
            tally=self._tally,
            supervision=self._supervision,
            watch=watch,
            begun=self._occasions.began,
        )
        if self._once and code in (ExitCode.DONE, ExitCode.QUARANTINED):
            with suppress(MigratorError):  # it is done, whether or not it can be told
                self._occasions.finished(app.books.progress())
        return code

    def _rechecks(self, checks: Checks | None) -> Sequence[Job]:
        """Return the jobs that make *checks* again; none where nobody wants them."""
        app = self._app
        every = app.settings.broker.recheck_interval
        if checks is None or every is None:
            return []
        recheck = Recheck(
            self._gate,
            self._trail,
            checks=checks,
            bind=lambda names: app.new_destinations().unreachable(names),
            may_hold=bool(self._moved),
        )
        self._ends.callback(recheck.errand.end)
        recheck.errand.start()
        return recheck.jobs(every)

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _panel(self) -> DaemonPanel:
        served = self._served()
        aside = Aside(AppRows(self._app), note=self._trail.note, wake=self._crew.wake)
        return DaemonPanel(
            PanelParts(
                owner=self._owner,
                served=served,
                gate=self._gate,
                knobs=self._knobs,
                workers=self._crew,
                stop=self._stop,
                supervision=self._supervision,
                lookout=self._lookout,
                control=Control(
                    gate=self._gate,
                    knobs=self._knobs,
                    crew=self._crew,
                    stop=self._stop,
                    trail=self._trail,
                    served=served,
                    pauses=self._pauses,
                    retry=aside.retry,
                    believe_clock=partial(believe_as_told, self._app.clock),
                ),
                aside=aside,
                tally=self._tally,
            )
        )

    def _served(self) -> Sequence[Served]:
        modes = {given.name: given.mode for given in self._app.settings.endpoints}
        return [
            Served(
                name=endpoint.name,
                mode=str(modes.get(endpoint.name, EndpointMode.MIGRATE)),
                moves=endpoint in self._moved,
            )
            for endpoint, _ in self._runs
        ]

    def _build(self, given: Settings) -> Sequence[Throttle]:
        watched = Watched(
            app=self._app,
            endpoints=self._moved,
            gate=self._gate,
            workers=self._crew,
            owner=self._owner,
            panic=panicking(self._stop, self._trail),
        )
        return build_throttles(given.throttle, watched)

    def _is_idle(self) -> bool:
        """Return whether nothing is left to move now, and nothing holds it back."""
        names = [endpoint.name for endpoint in self._moved]
        adopts = self._adopter is not None and self._adopter.is_at_work
        return self._crew.is_resting and not adopts and not self._gate.concerns(names)

    def _on_change(self) -> None:
        """Something is held, or no longer: lanes look again, and the ledger is told."""
        self._crew.wake()
        self._keeper.renew_soon()

    def _new_lane(self, name: str, ends: ExitStack) -> LaneThread:
        return LaneThread(
            name,
            leases=self._app.leases,
            keeper=self._keeper,
            open_lane=self._lane_opener(ends),
            is_surely_dead=is_surely_dead,
            stop=self._stop,
            once=self._once,
            patience_s=PATIENCE_S,
            endpoints=self._moved,
            gate=self._gate,
        )

    def _new_adopter(self) -> Adopter:
        return Adopter(
            leases=self._app.leases,
            keeper=self._keeper,
            open_lane=self._lane_opener(self._ends),
            is_surely_dead=is_surely_dead,
            stop=self._stop,
            once=self._once,
            patience_s=PATIENCE_S,
            gate=self._gate,
            lanes_have_ended=lambda: self._crew.lanes_have_ended(),
        )

    def _lane_opener(self, ends: ExitStack) -> LaneOpener:
        return LaneOpener(
            self._app,
            [(endpoint, run) for endpoint, run in self._runs if endpoint in self._moved],
            pools=ends,
            stop=self._stop,
            gate=self._gate,
            holding=self._holding,
            knobs=self._knobs,
            settled=self._count,
            tracer=self._tracer,
            due_times=self._due_times,
        )

    def _count(self, batch: Batch, rows: int, seconds: float) -> None:
        endpoint, mode = str(batch.endpoint), str(batch.mode)
        self._instruments.batch_settled(endpoint, mode, seconds=seconds, rows=rows)

    def _dispatchers(self) -> Sequence[DispatcherThread]:
        """Return one thread for each endpoint whose timeouts we send ourselves."""
        plans = self._wiring.plans([endpoint for endpoint, _ in self._runs])
        return [self._dispatcher(plan) for plan in plans]

    def _dispatcher(self, plan: DispatcherPlan) -> DispatcherThread:
        given, wiring, instruments = self._app.settings.dispatch, self._wiring, self._instruments
        name, mode = str(plan.endpoint.name), str(Mode.DISPATCH)
        dispatcher = wiring.new(
            plan,
            next(run for endpoint, run in self._runs if endpoint == plan.endpoint),
            storing=OneByOne(self._ends, "storing"),
            claiming=OneByOne(self._ends, "dispatching"),
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


def _web_plan(app: App) -> WebPlan:
    given = app.settings.web
    token = None if given.token is None else given.token.get_secret_value()
    is_usual = given.socket == AUTO
    file = own_socket(os.environ) if given.socket == AUTO else given.socket
    return WebPlan(socket=file, needs_socket=not is_usual, listen=given.address, token=token)
