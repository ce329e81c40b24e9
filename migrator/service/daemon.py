"""The run loop of a daemon, from its first look at the servers to how it ended."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import FrameType
from typing import Final

from migrator.config import Settings
from migrator.errors import ExitCode, LimitPassed, MigratorError
from migrator.handover.holding import Holding
from migrator.handover.sources import FailingSources
from migrator.ledger.batches import SqlRuns
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.queries import LedgerQueries, SqlHandOvers
from migrator.ledger.report import HeldRows
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import RunId
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.service.audit_log import AuditLog
from migrator.service.control import Control
from migrator.service.hooks import HookEvents
from migrator.service.runtime_settings import Polls, RuntimeSettings, read_anew
from migrator.service.schedule import Job, scheduled
from migrator.service.sources import FailingSourcesTask, RefusedEndpoints, log_left
from migrator.service.status import DaemonStatus
from migrator.service.systemd import Supervision
from migrator.service.tasks import CapacityTask
from migrator.service.worker import Stop, WorkerPool
from migrator.status.finished import EndpointEnd, FinishWatch
from migrator.status.poller import StatusPoller
from migrator.status.remaining import kept_text
from migrator.throttle.clock import BrokerClock, check_first_time
from migrator.throttle.reasons import LASTING, LEAVING, PauseReason, Signal, Throttle
from migrator.web.metrics import Instruments
from migrator.web.server import WebPlan, serve

_log = logging.getLogger(__name__)

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


def tune_interpreter() -> None:
    """Fit Python to a few threads and many short-lived values (a tenth of the speed)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def poll_ledger(poller: StatusPoller, hook_events: HookEvents) -> None:
    """Read the ledger if it is time, and tell hooks what it has."""
    if (progress := poller.poll_if_due()) is not None:
        hook_events.polled(progress)


class FinishReport:
    """Tells the log and the hooks which endpoints are finished."""

    def __init__(
        self, finish: FinishWatch, hook_events: HookEvents, purge_after: timedelta | None
    ) -> None:
        self._finish = finish
        self._hook_events = hook_events
        self._purge_after = purge_after

    def check(self) -> None:
        """Tell of endpoints that are finished since the last time."""
        if ends := self._finish.check():
            self.tell(ends)

    def tell(self, ends: Sequence[EndpointEnd]) -> None:
        """Tell of *ends*."""
        kept = kept_text(self._purge_after)
        if kept and any(each.counts.handed_over for each in ends):
            _log.info(
                "the ledger keeps the content of what was moved",
                extra={"action": "content_kept", "text": kept},
            )
        self._hook_events.finished(ends)


@dataclass(kw_only=True, eq=False)
class Daemon:
    """The parts of one process at work; ``app.run`` makes them."""

    settings: Settings
    runs: Runs
    moved: Sequence[StoreEndpoint]
    """The endpoints whose stored rows are handed over here."""
    once: bool
    ledger_runs: SqlRuns
    queries: LedgerQueries
    hand_overs: SqlHandOvers
    clock: DatabaseClock
    broker: ConnectionSettings
    stop: Stop
    keeper: LeaseKeeper
    runtime: RuntimeSettings
    audit_log: AuditLog
    hook_events: HookEvents
    throttle: Throttle
    polls: Polls
    holding: Holding
    failing_sources: FailingSources
    failing: FailingSourcesTask
    refused: RefusedEndpoints
    workers: WorkerPool
    supervision: Supervision
    finish: FinishWatch
    finish_report: FinishReport
    poller: StatusPoller
    capacity: CapacityTask
    jobs: Sequence[Job]
    control: Control
    status: DaemonStatus
    web: WebPlan
    instruments: Instruments

    def __post_init__(self) -> None:
        self._endpoints = [endpoint for endpoint, _ in self.runs]

    def prepare(self, ends: ExitStack) -> None:
        """Check everything once, and answer others from now on; *ends* ends that."""
        self.audit_log.start()
        ends.callback(self.audit_log.end)
        poll_ledger(self.poller, self.hook_events)
        # who runs it once has seen why, and there may be no daemon that could be told to resume
        self.control.restore_pauses(*([Signal.PAUSED] if self.once else LASTING))
        ends.enter_context(serve(self.status, self.web, self.instruments))
        ends.callback(self.polls.end)
        self.refused.begin()
        self.holding.begin(self.moved, self.hand_overs.renamings())
        check_first_time(self.clock, BrokerClock(self.broker))
        self.polls.use(self.settings.throttle)

    def work(self, *, watch: Callable[[], None], load: Callable[[], Settings]) -> RunEnd:
        """Work until done (``once``) or told to stop; return how it ended."""
        supervision, workers, wants_reload = self.supervision, self.workers, threading.Event()
        settings = self.settings
        with obeying_signals(self.stop, wants_reload), scheduled(self.jobs):
            self.keeper.start()
            workers.start()
            supervision.begin()
            if self.moved and not self.runtime.keeps_to_levels():
                _log.warning(
                    "hand-over is not limited to what the delay levels let go of: timeouts may be "
                    "late, also those of other senders; `migrator preview` shows how late",
                    extra={"action": "pace_full"},
                )
            if self.moved:
                self.capacity.job.run_soon()
            self.hook_events.started()
            try:
                while not workers.await_end(supervision.look_every_s):
                    supervision.look()
                    if wants_reload.is_set() and not self.stop.draining.is_set():
                        wants_reload.clear()
                        with supervision.reloading():
                            settings = read_anew(
                                settings,
                                load,
                                runtime=self.runtime,
                                workers=workers,
                                polls=self.polls,
                                audit_log=self.audit_log,
                            )
                    watch()
            finally:
                self.keeper.stop()
        supervision.end()
        watch()
        return self._end()

    # ── the end ─────────────────────────────────────────────────────────────────────────────

    def _end(self) -> RunEnd:
        """Return how it ended, and tell the ledger and whoever has a hook."""
        self.failing.look()  # what failed last is told, too
        code = self._failure_code()
        held: Sequence[HeldRows] | None = ()
        if code is None:
            held = self._held_rows() if self.once else ()
            in_quarantine = self.queries.quarantined(self._endpoints)
            is_all = held is not None and not any(each.rows for each in held) and not in_quarantine
            is_all = is_all and not self._left_locked()
            code = ExitCode.DONE if is_all else ExitCode.QUARANTINED
        self._end_runs(code)
        ends: Sequence[EndpointEnd] = ()
        if self.once and code in _CAN_BE_TOLD:
            with suppress(MigratorError):  # it has ended, whether or not it can be told
                progress, ends = self.finish.at_end(self._endpoints, self.stop.left_locked)
                if code in _IS_DONE:
                    self.hook_events.polled(progress)
                    self.finish_report.tell(ends)
        left_out = [each for each in self.throttle.reasons() if each.signal in LEAVING]
        return RunEnd(code=code, held=held or (), left_out=left_out, endpoints=ends)

    def _failure_code(self) -> ExitCode | None:
        """Return why it ended before all was done that can be; None: it did not."""
        workers = list(self.workers)
        if any(worker.crash for worker in workers):
            return ExitCode.BUG
        if self.queries.doubtful(self._endpoints):
            return ExitCode.DOUBTFUL
        failures = [worker.failure for worker in workers if worker.failure]
        failures += [self.stop.reason] if self.stop.reason else []
        if self.once:
            failures += self.stop.stuck.values()
            failures += self._batches_elsewhere()
            failures += self._limits_passed()
        codes = {failure.exit_code for failure in failures}
        if self.once and (left := self._left_out()):
            log_left(self.failing_sources)
            is_all = len(left) == len(self._endpoints)
            codes.add(ExitCode.UNREACHABLE if is_all else ExitCode.PARTIAL)
        if codes:
            return max(codes)
        is_interrupted = self.once and self.stop.draining.is_set()
        return ExitCode.INTERRUPTED if is_interrupted else None

    def _batches_elsewhere(self) -> Iterator[MigratorError]:
        """Yield, and log, which batches are left to a daemon on another broker."""
        for batch, why in self.stop.elsewhere.items():
            _log.error(
                "a batch is left to a daemon that is connected to another broker",
                extra={"action": "batch_left", "batch": batch, "error": str(why)},
            )
            yield why

    def _left_out(self) -> Collection[str]:
        """Return the endpoints that fail, or that a check refuses."""
        return {each.endpoint.name for each in self.failing_sources.all()} | {*self.refused.names()}

    def _limits_passed(self) -> Iterator[LimitPassed]:
        """Yield, and log, why an endpoint was left before all of it was moved."""
        for reason in self.throttle.reasons():
            if reason.signal is Signal.QUARANTINE:
                _log.error(
                    "an endpoint was left: too many of its rows went to quarantine; `migrator "
                    "quarantine list` shows why, and the next run continues with it",
                    extra={"action": "quarantine_limit_passed", **reason.facts},
                )
                yield LimitPassed(reason.text)

    def _left_locked(self) -> bool:
        """Log what was left because others have it locked; return whether there is any."""
        for endpoint, rows in self.stop.left_locked.items():
            _log.warning(
                "rows were left: other transactions have them locked",
                extra={"action": "rows_locked", "endpoint": endpoint, "rows": rows},
            )
        return bool(self.stop.left_locked)

    def _held_rows(self) -> Sequence[HeldRows] | None:
        """Return, and log, what is parked; None: it cannot be counted now."""
        sources = {each.source for each in self.moved}
        try:
            found = [
                HeldRows(
                    endpoint=each.endpoint,
                    destination=each.destination,
                    reason=each.reason,
                    detail=each.detail,
                    rows=each.rows,
                )
                for each in self.queries.held()
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
        if status == "done" and not self.once:
            status = "stopped"
        left_out = self._left_out()
        for endpoint, run in self.runs:
            try:
                self.ledger_runs.end(run, "failed" if endpoint.name in left_out else status)
            except MigratorError as exc:
                _log.warning(
                    "the end of the run could not be recorded",
                    extra={"action": "run_end_failed", "run": run, "error": str(exc)},
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
