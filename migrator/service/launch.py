"""From settings to a running service: read from top to bottom, it is what a daemon is made of."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Final

import structlog  # noqa: F401 - a daemon imports nothing after its start

from migrator.app import App
from migrator.app.status import new_ledger_reader, new_remaining_reader
from migrator.app.throttle import polled_signals
from migrator.config import Settings
from migrator.config.sources import AUTO
from migrator.config.work import EndpointMode
from migrator.delays.releases import RECEIVING
from migrator.errors import ExitCode, LimitPassed, MigratorError
from migrator.handover.claiming import Claimer, Look
from migrator.handover.lane import LaneSetup
from migrator.handover.pace import ExchangeCost, Pacer
from migrator.handover.runs import OtherRuns
from migrator.ledger.lease_keeper import LeaseKeeper, current_owner
from migrator.ledger.report import HeldRows
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.timeouts import RunId
from migrator.preflight.registry import Rechecks
from migrator.rabbitmq.names import poison_queue
from migrator.service.audit_log import AuditLog
from migrator.service.control import Control, ServedEndpoint
from migrator.service.dispatchers import due_time_reader, new_dispatchers
from migrator.service.hooks import Fire, HookEvents
from migrator.service.lanes import Adopter, LaneThread
from migrator.service.parked_log import PoisonTask
from migrator.service.pauses import end_for_critical_load, log_pauses
from migrator.service.runtime_settings import RuntimeSettings, read_anew
from migrator.service.schedule import Job, scheduled
from migrator.service.sources import (
    FailingSourcesTask,
    Refusals,
    RefusedEndpoints,
    log_left,
)
from migrator.service.status import DaemonStatus
from migrator.service.systemd import ServiceManager, Supervision
from migrator.service.tasks import (
    CapacityTask,
    DelaysHere,
    KeptCapacity,
    ParkedTask,
    ProbeTask,
    PurgeTask,
    Recheck,
    ShareTask,
)
from migrator.service.worker import Stop, WorkerContext, WorkerPool, one_by_one
from migrator.status.finished import CHECK_EVERY, EndpointEnd, FinishWatch
from migrator.status.poller import POLL_DETAILS_EVERY, POLL_EVERY, StatusPoller
from migrator.status.remaining import kept_text
from migrator.throttle.clock import BrokerClock, check_first_time
from migrator.throttle.guard import ClaimGuard, QuarantineLimit
from migrator.throttle.polling import TICK, SignalPolls
from migrator.throttle.reasons import LASTING, LEAVING, PauseReason, Signal, Throttle
from migrator.web.listener import own_socket
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve

for _name in (  # else they are imported when they are asked for
    "migrator.app.broker",
    "migrator.app.handover",
    "migrator.app.stores",
    "migrator.config.loading",
    "migrator.delays.broker",
    "migrator.handover.link",
    "migrator.quarantine.rows",
    "migrator.rabbitmq.management",
    "migrator.recovery.unresolved",
    "tomllib",
):
    import_module(_name)  # a daemon's files may be replaced by an upgrade under it

_log = logging.getLogger(__name__)

_STATUS_EVERY: Final = timedelta(seconds=10)
_SWITCH_S: Final = 0.001
"""A lane that talks to the broker must not wait 5 ms, Python's default, whenever the thread that
converts the next batch is busy; measured in benchmarks/handover.py."""
_GC_THRESHOLDS: Final = (20_000, 20, 20)
"""Rows make no cycles; looking for some every 700 values is in vain."""


_RUN_STATUS: Final = {
    ExitCode.DONE: "done",
    ExitCode.QUARANTINED: "done",
    ExitCode.PARTIAL: "done",
    ExitCode.INTERRUPTED: "stopped",
}

_IS_DONE: Final = (ExitCode.DONE, ExitCode.QUARANTINED)
_CAN_BE_TOLD: Final = (
    *_IS_DONE,
    ExitCode.PARTIAL,
    ExitCode.DOUBTFUL,
    ExitCode.PREFLIGHT_REFUSED,
)
"""With these ``--once`` had answers until its end, and nobody waits for it to stop."""

Runs = Sequence[tuple[StoreEndpoint, RunId]]
"""Each endpoint with the run that was begun for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended; what it found at the end of *once*."""

    code: ExitCode
    held: Sequence[HeldRows] = ()
    """What is parked for destinations that take no messages."""
    left_out: Sequence[PauseReason] = ()
    """Why endpoints were left: their table fails, or a check refuses them."""
    endpoints: Sequence[EndpointEnd] = ()
    """How each endpoint is; empty: it could not be told, or it was not *once*."""


def run(
    app: App,
    endpoints: Sequence[StoreEndpoint],
    *,
    once: bool,
    watch: Callable[[], None],
    describe: Callable[[], str],
    load: Callable[[], Settings],
    fire: Fire,
    checks: Rechecks,
    refused: Refusals,
) -> RunEnd:
    """Migrate *endpoints* until done (*once*) or told to stop by a signal; return how it ended.

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
        refused: Those of *endpoints* that wait until the checks of the start refuse them no more.

    Raises:
        ConfigError: It cannot listen where ``[web]`` says. Nothing was begun.
    """
    tune_interpreter()
    with ExitStack() as ends:
        options = _run_options(app.settings)
        runs = [
            (each, app.runs.begin(each, options | app.handing_over.terms_of(each.name).options()))
            for each in endpoints
        ]
        try:
            daemon = _Daemon(
                app,
                runs,
                ends,
                once=once,
                describe=describe,
                fire=fire,
                checks=checks,
                refused=refused,
            )
            daemon.prepare()
        except MigratorError:
            for _, each in runs:
                app.runs.end(each, "failed")
            raise
        return daemon.work(watch=watch, load=load)


def _run_options(settings: Settings) -> dict[str, object]:
    """Return what a run records about itself besides its terms; no secrets."""
    given = settings.handover
    return {
        "mode": str(given.mode),
        "cutoff_s": int(given.cutoff.total_seconds()),
        "horizon_s": int(given.horizon.total_seconds()) if given.horizon else "",
        "batch_size": given.batch_size,
        "lanes": given.lanes,
        "time_zone": settings.store.time_zone,
    }


def tune_interpreter() -> None:
    """Fit Python to a few threads and many short-lived values (a tenth of the speed)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


class _Daemon:
    """The parts of one process, put together; what they need is ended by the stack."""

    def __init__(
        self,
        app: App,
        runs: Runs,
        ends: ExitStack,
        *,
        once: bool,
        describe: Callable[[], str],
        fire: Fire,
        checks: Rechecks,
        refused: Refusals,
    ) -> None:
        given = app.settings
        self._app = app
        self._runs = runs
        self._ends = ends
        self._once = once
        self._endpoints = [endpoint for endpoint, _ in runs]
        self._moved = [
            each
            for each in self._endpoints
            if given.endpoint(each.name).mode is not EndpointMode.DISPATCH
        ]
        """The endpoints whose stored rows are handed over here."""
        self._stop = Stop()
        self._owner = current_owner()
        self._keeper = LeaseKeeper(app.leases, owner=self._owner, duration=given.handover.lease)
        self._runtime = RuntimeSettings(given.handover)
        self._quarantine_limit = QuarantineLimit(
            given.handover.max_quarantined,
            [e.name for e in self._moved if given.endpoint(e.name).mode is EndpointMode.MIGRATE],
        )
        cost = ExchangeCost()
        self._pacer = Pacer(
            cost=cost,
            receiving=RECEIVING[app.settings.broker.delays],
            is_on=self._runtime.keeps_to_levels,
        )
        self._instruments = Instruments()

        # whatever changes is logged, noted in the ledger, and may have a hook run
        self._audit_log = AuditLog(app.runs)
        names = [endpoint.name for endpoint in self._endpoints]
        self._hook_events = HookEvents(fire, names)
        self._throttle = Throttle(
            log_pauses(self._audit_log), self._on_throttle, self._hook_events.throttled
        )
        self._signals = SignalPolls(
            self._throttle, partial(end_for_critical_load, self._stop, self._audit_log)
        )

        # the workers
        self._holding = app.handing_over.new_holding(given.handover.destination_map)
        self._look = Look(
            app.claims, app.clock, rest_s=given.handover.sweep_interval.total_seconds()
        )
        self._failing = FailingSourcesTask(app.store, self._look.failing, self._throttle)
        self._refused = RefusedEndpoints(
            app,
            self._endpoints,
            refused,
            failing=self._look.failing,
            throttle=self._throttle,
        )
        self._guard = ClaimGuard(
            self._throttle,
            self._stop.draining,
            self._moved,
            read_due_times=due_time_reader(app),
            quarantine_limit=self._quarantine_limit,
            now_s=app.clock.monotonic_s,
        )
        self._workers = self._new_workers()

        # what looks at all of it, and what happens at intervals
        self._supervision = Supervision(ServiceManager(), self._workers, self._stop)
        reader = new_remaining_reader(app)
        self._finish = FinishWatch(
            reader, self._moved, selection=self._runtime.selection, queries=app.queries
        )
        self._poller = StatusPoller(
            app.queries,
            app.broker_facts,
            given.broker.delays,
            reader,
            self._finish,
            self._endpoints,
            selection=self._runtime.selection,
        )
        # a slow answer is no miss: the status tells how old it is
        self._polling = [
            Job("look", POLL_EVERY, self._poll_ledger, may_lag=True),
            Job("scan", POLL_DETAILS_EVERY, self._poller.poll_details, may_lag=True),
        ]
        self._finished_job = Job("finished", CHECK_EVERY, self._check_finished, may_lag=True)
        measures = given.probe.capacity and not once
        self._delays = delays = DelaysHere(
            connection=app.connection,
            version=app.broker.version,
            find_bindings=app.broker.find_bindings,
        )
        self._capacity = CapacityTask(
            delays, KeptCapacity(app.queries, delays), self._audit_log, cost, measures=measures
        )
        self._jobs = self._new_jobs(describe, checks)
        self._control = self._new_control()

    def _new_workers(self) -> WorkerPool:
        """Return the lanes, the dispatchers, and what adopts lanes of the dead."""
        app = self._app
        context = WorkerContext(
            leases=app.leases, keeper=self._keeper, stop=self._stop, once=self._once
        )
        lane_parts = (context, self._guard, app.handing_over.links, self._new_setup)
        adopter = Adopter(*lane_parts) if self._moved else None
        dispatchers = new_dispatchers(
            app,
            self._runs,
            context,
            ends=self._ends,
            instruments=self._instruments,
            failing=self._look.failing,
        )
        pool = WorkerPool(
            [*dispatchers, *filter(None, [adopter])],
            new_lane=(lambda name: LaneThread(name, *lane_parts)) if self._moved else None,
            lanes=app.settings.handover.lanes,
        )
        if adopter is not None:
            adopter.serve(pool)
        return pool

    def prepare(self) -> None:
        """Look at everything once, and let others look at us."""
        ends = self._ends
        self._audit_log.start()
        ends.callback(self._audit_log.end)
        self._poll_ledger()
        status = self._status_service()
        # who runs it once has seen why, and there may be no daemon that could be told to resume
        self._control.restore_pauses(*([Signal.PAUSED] if self._once else LASTING))
        ends.enter_context(serve(status, _web_plan(self._app), self._instruments))
        ends.callback(self._signals.end)
        self._refused.begin()
        self._holding.begin(self._moved, self._app.hand_overs.renamings())
        check_first_time(self._app.clock, BrokerClock(self._app.connection))
        self._use_throttles(self._app.settings)

    def work(self, *, watch: Callable[[], None], load: Callable[[], Settings]) -> RunEnd:
        """Work until done (``once``) or told to stop; return how it ended."""
        supervision, workers, wants_reload = self._supervision, self._workers, threading.Event()
        settings = self._app.settings
        with obeying_signals(self._stop, wants_reload), scheduled(self._jobs):
            self._keeper.start()
            workers.start()
            supervision.begin()
            if self._moved and not self._runtime.keeps_to_levels():
                _log.warning(
                    "hand-over is not limited to what the delay levels let go of: timeouts may be "
                    "late, also those of other senders; `migrator preview` shows how late",
                    extra={"action": "pace_full"},
                )
            if self._moved:
                self._capacity.job.run_soon()
            self._hook_events.started()
            try:
                while not workers.await_end(supervision.look_every_s):
                    supervision.look()
                    if wants_reload.is_set() and not self._stop.draining.is_set():
                        wants_reload.clear()
                        with supervision.reloading():
                            settings = read_anew(
                                settings,
                                load,
                                runtime=self._runtime,
                                workers=workers,
                                use_throttles=self._use_throttles,
                                audit_log=self._audit_log,
                            )
                    watch()
            finally:
                self._keeper.stop()
        supervision.end()
        watch()
        return self._end()

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def _end(self) -> RunEnd:
        """Return how it ended, and tell the ledger and whoever has a hook."""
        self._failing.look()  # what failed last is told, too
        code = self._failure_code()
        held: Sequence[HeldRows] | None = ()
        if code is None:
            held = self._held_rows() if self._once else ()
            in_quarantine = self._app.queries.quarantined(self._endpoints)
            is_all = held is not None and not any(each.rows for each in held) and not in_quarantine
            is_all = is_all and not self._left_locked()
            code = ExitCode.DONE if is_all else ExitCode.QUARANTINED
        self._end_runs(code)
        ends: Sequence[EndpointEnd] = ()
        if self._once and code in _CAN_BE_TOLD:
            with suppress(MigratorError):  # it has ended, whether or not it can be told
                progress, ends = self._finish.at_end(self._endpoints, self._stop.left_locked)
                if code in _IS_DONE:
                    self._hook_events.polled(progress)
                    self._all_finished(ends)
        left_out = [each for each in self._throttle.reasons() if each.signal in LEAVING]
        return RunEnd(code=code, held=held or (), left_out=left_out, endpoints=ends)

    def _poll_ledger(self) -> None:
        if (progress := self._poller.poll_if_due()) is not None:
            self._hook_events.polled(progress)

    def _check_finished(self) -> None:
        if ends := self._finish.check():
            self._all_finished(ends)

    def _all_finished(self, ends: Sequence[EndpointEnd]) -> None:
        kept = kept_text(self._app.settings.ledger.purge_after)
        if kept and any(each.counts.handed_over for each in ends):
            _log.info(
                "the ledger keeps the content of what was moved",
                extra={"action": "content_kept", "text": kept},
            )
        self._hook_events.finished(ends)

    def _failure_code(self) -> ExitCode | None:
        """Return why it ended before all was done that can be; None: it did not."""
        workers = list(self._workers)
        if any(worker.crash for worker in workers):
            return ExitCode.BUG
        if self._app.queries.doubtful(self._endpoints):
            return ExitCode.DOUBTFUL
        failures = [worker.failure for worker in workers if worker.failure]
        failures += [self._stop.reason] if self._stop.reason else []
        if self._once:
            failures += self._stop.stuck.values()
            failures += self._batches_elsewhere()
            failures += self._limits_passed()
        codes = {failure.exit_code for failure in failures}
        if self._once and (left := self._left_out()):
            log_left(self._look.failing)
            is_all = len(left) == len(self._endpoints)
            codes.add(ExitCode.UNREACHABLE if is_all else ExitCode.PARTIAL)
        if codes:
            return max(codes)
        is_interrupted = self._once and self._stop.draining.is_set()
        return ExitCode.INTERRUPTED if is_interrupted else None

    def _batches_elsewhere(self) -> Iterator[MigratorError]:
        """Yield, and log, which batches are left to a daemon on another broker."""
        for batch, why in self._stop.elsewhere.items():
            _log.error(
                "a batch is left to a daemon that is connected to another broker",
                extra={"action": "batch_left", "batch": batch, "error": str(why)},
            )
            yield why

    def _left_out(self) -> Collection[str]:
        """Return the endpoints that fail, or that a check refuses."""
        return {each.endpoint.name for each in self._look.failing.all()} | {*self._refused.names()}

    def _limits_passed(self) -> Iterator[LimitPassed]:
        """Yield, and log, why an endpoint was left before all of it was moved."""
        for reason in self._throttle.reasons():
            if reason.signal is Signal.QUARANTINE:
                _log.error(
                    "an endpoint was left: too many of its rows went to quarantine; `migrator "
                    "quarantine list` shows why, and the next run continues with it",
                    extra={"action": "quarantine_limit_passed", **reason.facts},
                )
                yield LimitPassed(reason.text)

    def _left_locked(self) -> bool:
        """Log what was left because others have it locked; return whether there is any."""
        for endpoint, rows in self._stop.left_locked.items():
            _log.warning(
                "rows were left: other transactions have them locked",
                extra={"action": "rows_locked", "endpoint": endpoint, "rows": rows},
            )
        return bool(self._stop.left_locked)

    def _held_rows(self) -> Sequence[HeldRows] | None:
        """Return, and log, what is parked; None: it cannot be counted now."""
        sources = {each.source for each in self._moved}
        try:
            found = [
                HeldRows(
                    endpoint=each.endpoint,
                    destination=each.destination,
                    reason=each.reason,
                    detail=each.detail,
                    rows=each.rows,
                )
                for each in self._app.queries.held()
                if each.source in sources and each.rows
            ]
        except MigratorError as exc:
            _log.warning(
                "parked rows could not be counted",
                extra={"action": "held_not_counted", "error": str(exc)},
            )
            return None
        for each in found:
            _log.warning(
                "timeouts are parked in the ledger: their destination takes no messages",
                extra={"action": "rows_held", **asdict(each)},
            )
        return found

    def _end_runs(self, code: ExitCode) -> None:
        status = _RUN_STATUS.get(code, "failed")
        if status == "done" and not self._once:
            status = "stopped"
        left_out = self._left_out()
        for endpoint, run in self._runs:
            try:
                self._app.runs.end(run, "failed" if endpoint.name in left_out else status)
            except MigratorError as exc:
                _log.warning(
                    "the end of the run could not be recorded",
                    extra={"action": "run_end_failed", "run": run, "error": str(exc)},
                )

    # ── workers ─────────────────────────────────────────────────────────────────────────────

    def _new_setup(self, ends: ExitStack) -> LaneSetup:
        """Return what one thread of a lane hands over with; *ends* ends its pools."""
        app, given = self._app, self._app.settings.handover

        def handed_over(batch: Batch, rows: int, seconds: float) -> None:
            self._instruments.batch_settled(str(batch.endpoint), str(batch.mode), rows, seconds)

        return LaneSetup(
            batches=app.batches,
            clock=app.clock,
            claimer=Claimer(
                claims=app.claims,
                clock=app.clock,
                selection=self._runtime.selection,
                endpoints=[(e, run) for e, run in self._runs if e in self._moved],
                mode=given.mode,
                max_bytes=given.batch_bytes,
                look=self._look,
                pacer=self._pacer,
                guard=self._guard,
                holding=self._holding,
                fault=app.fault,
            ),
            preparer=app.handing_over.new_preparer(self._holding),
            direct=app.handing_over.new_direct(self._holding),
            claiming=one_by_one(ends, "claiming"),
            preparing=one_by_one(ends, "preparing"),
            pace=self._runtime.pace,
            pacer=self._pacer,
            quarantine_limit=self._quarantine_limit,
            receipt_deadline_s=given.receipt_deadline.total_seconds(),
            others=OtherRuns(
                own=frozenset(run for _, run in self._runs),
                place=app.broker_place,
                runs=app.runs,
                terms_now=app.handing_over.terms_of,
                new=app.handing_over.new_hand_over,
            ),
            fault=app.fault,
            handed_over=handed_over,
            paced=self._instruments.paced,
        )

    # ── what happens at intervals ───────────────────────────────────────────────────────────

    def _new_jobs(self, describe: Callable[[], str], checks: Rechecks) -> list[Job]:
        app = self._app
        given = app.settings
        jobs = [
            ParkedTask(self._holding, self._workers).job,
            PoisonTask(app.broker_facts, poison_queue(app.ledger_id)).job,
            ShareTask(app.leases, self._pacer, self._workers, self._owner).job,
            *self._polling,
            *([self._finished_job] if self._moved and not self._once else []),
            Job("throttle", TICK, self._signals.tick),
            self._refused.job,
            *([self._failing.job, self._capacity.job] if self._moved else []),
        ]
        if self._supervision.wants_status:
            jobs.append(Job("status", _STATUS_EVERY, partial(self._report_status, describe)))
        if given.probe.every is not None and not self._once:
            probes = ProbeTask(
                self._delays,
                given.probe.probed_levels,
                self._audit_log,
                self._pacer,
                every=given.probe.every,
                warn_after=given.probe.warn_after,
            )
            jobs.append(probes.job)
        if given.ledger.purge_after is not None and not self._once:
            purge = PurgeTask(
                app.ledger_facts,
                app.settled_rows,
                app.clock,
                self._audit_log,
                after=given.ledger.purge_after,
                every=given.ledger.purge_every,
            )
            jobs.append(purge.job)
        if (every := given.broker.recheck_interval) is not None:
            recheck = Recheck(
                throttle=self._throttle,
                audit_log=self._audit_log,
                every=every,
                checks=checks,
                bind=app.handing_over.unreachable_now,
                may_pause=bool(self._moved),
            )
            jobs += recheck.jobs
        return jobs

    def _report_status(self, describe: Callable[[], str]) -> None:
        self._supervision.status(describe())

    # ── throttle ────────────────────────────────────────────────────────────────────────────

    def _use_throttles(self, given: Settings) -> None:
        self._signals.replace(
            [
                *polled_signals(
                    given.throttle,
                    self._app,
                    self._moved,
                    heard_alarm=self._workers.blocked_reason,
                    owner=self._owner,
                )
            ],
            every_s=given.throttle.every.total_seconds(),
            stale_after_s=given.throttle.stale_after.total_seconds(),
        )

    def _on_throttle(self, reason: PauseReason, began: bool) -> None:
        """Have lanes look again, and tell the ledger."""
        self._control.note_reason(reason, began=began)
        self._workers.wake()
        self._keeper.renew_soon()

    # ── status and control ──────────────────────────────────────────────────────────────────

    def _new_control(self) -> Control:
        served = [
            ServedEndpoint(
                name=endpoint.name,
                mode=str(self._app.settings.endpoint(endpoint.name).mode),
                moves=endpoint in self._moved,
            )
            for endpoint in self._endpoints
        ]
        return Control(
            app=self._app,
            served={each.name: each for each in served},
            throttle=self._throttle,
            runtime=self._runtime,
            workers=self._workers,
            stop=self._stop,
            audit_log=self._audit_log,
        )

    def _status_service(self) -> DaemonStatus:
        return DaemonStatus(
            owner=self._owner,
            ledger_place=self._app.ledger_place,
            queries=self._app.queries,
            reader=new_ledger_reader(self._app),
            control=self._control,
            supervision=self._supervision,
            poller=self._poller,
            polling=self._polling,
            finish=self._finish,
            jobs=self._jobs,
            title=self._app.settings.web.title,
            system=_system(self._app),
        )


@contextmanager
def obeying_signals(stop: Stop, wants_reload: threading.Event) -> Iterator[None]:
    """Finish the batch in hand upon the first SIGTERM or SIGINT; stop at once upon the next.

    A drain that an operator or a critical limit began is no first signal: a service manager that
    is told to stop the daemon meanwhile must wait for the batch as well. SIGHUP wants a reload.
    """
    is_signalled = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if is_signalled.is_set():
            stop.at_once.set()
        is_signalled.set()
        stop.draining.set()
        name = signal.Signals(number).name
        _log.info("asked to stop", extra={"action": "stop_requested", "signal": name})

    previous = {
        number: signal.signal(number, handler)
        for number, handler in (
            (signal.SIGTERM, on_signal),
            (signal.SIGINT, on_signal),
            (signal.SIGHUP, lambda _number, _frame: wants_reload.set()),
        )
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _system(app: App) -> Mapping[str, str]:
    """Return which system it is, for people; no secrets."""
    database, broker = app.engine.url, app.connection.address
    place = f" at {database.host}" if database.host else ""
    return {
        "database": f"{database.database or database.get_backend_name()}{place}",
        "broker": f"{broker.host_port}, virtual host {broker.vhost}",
        "ledger": app.ledger_id,
    }


def _web_plan(app: App) -> WebPlan:
    given = app.settings.web
    token = None if given.token is None else given.token.get_secret_value()
    is_usual = given.socket == AUTO
    file = own_socket(os.environ) if given.socket == AUTO else given.socket
    return WebPlan(
        socket=file,
        needs_socket=not is_usual,
        listen=given.address,
        token=token,
        open_to_local=given.open_to_local,
    )
