"""The running service: starts workers and schedule, obeys signals, says how it ended."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from migrator.app import App
from migrator.errors import ExitCode, MigratorError
from migrator.handover.holding import Holding
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.report import HeldRows
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import RunId
from migrator.service.schedule import Job, JobCounts, scheduled
from migrator.service.systemd import Supervision
from migrator.service.worker import Stop, WorkerPool, WorkerThread

_log = logging.getLogger(__name__)

_RUN_STATUS: Final = {
    ExitCode.DONE: "done",
    ExitCode.QUARANTINED: "done",
    ExitCode.INTERRUPTED: "stopped",
}


Runs = Sequence[tuple[StoreEndpoint, RunId]]
"""Each endpoint with the run that was begun for it."""


class Service:
    """One process at work on some endpoints."""

    def __init__(
        self,
        app: App,
        runs: Runs,
        *,
        moved: Collection[StoreEndpoint],
        holding: Holding,
        keeper: LeaseKeeper,
        stop: Stop,
        once: bool,
        tell_held: Callable[[Sequence[HeldRows]], None] = lambda _rows: None,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            app: Says what is left at the end, and takes how the runs ended.
            runs: The endpoints this process works on.
            moved: Those whose stored rows are handed over.
            holding: Knows whose destinations cannot be reached.
            keeper: Keeps the leases.
            stop: Shared by all threads.
            once: End when nothing is left to do.
            tell_held: Called at the end of *once* with what waits in the store.
            reload: Called by the main thread upon SIGHUP.
        """
        self._app = app
        self._runs = runs
        self._moved = moved
        self._holding = holding
        self._tell_held = tell_held
        self._keeper = keeper
        self._stop = stop
        self._once = once
        self._reload = reload
        self._wants_reload = threading.Event()
        self._is_signalled = False

    def run(
        self,
        workers: WorkerPool,
        *,
        jobs: Sequence[Job],
        counts: JobCounts,
        supervision: Supervision,
        watch: Callable[[], None],
        begun: Callable[[], None],
    ) -> ExitCode:
        """Work until done (``once``) or told to stop; return the process's exit code.

        Args:
            workers: Prepared, not started.
            jobs: What happens at intervals meanwhile.
            counts: Counts that.
            supervision: Is told how the workers are, and tells the service manager.
            watch: Called a few times a second by the main thread, to show progress.
            begun: Called once, when the work has begun.
        """
        with self._signals(), scheduled(jobs, counts):
            self._keeper.start()
            workers.start()
            supervision.begin()
            begun()
            try:
                while not workers.has_ended(supervision.look_every_s):
                    supervision.look()
                    self._reload_if_wanted(supervision)
                    watch()
            finally:
                self._keeper.stop()
        supervision.end()
        watch()
        code = self._exit_code(list(workers))
        self._end_runs(code)
        return code

    def _reload_if_wanted(self, supervision: Supervision) -> None:
        if self._wants_reload.is_set() and not self._stop.draining.is_set():
            self._wants_reload.clear()
            with supervision.reloading():
                self._reload()

    def _exit_code(self, workers: Sequence[WorkerThread]) -> ExitCode:
        endpoints = [endpoint for endpoint, _ in self._runs]
        if any(worker.crash for worker in workers):
            return ExitCode.BUG
        if self._app.books.doubtful(endpoints):
            return ExitCode.DOUBTFUL
        failures = [worker.failure for worker in workers if worker.failure]
        failures += [self._stop.reason] if self._stop.reason else []
        failures += self._stop.stuck.values() if self._once else []
        if failures:
            return max((failure.exit_code for failure in failures), key=int)
        if self._once and self._stop.draining.is_set():
            return ExitCode.INTERRUPTED
        held = self._held() if self._once else 0
        is_all = not held and not self._app.books.quarantined(endpoints)
        return ExitCode.DONE if is_all else ExitCode.QUARANTINED

    def _held(self) -> int:
        """Return how many rows wait in the store; 1 when nobody can count them now."""
        try:
            found = self._holding.rows(self._app.store, self._moved)
        except MigratorError as exc:
            _log.warning(
                "what waits in the store could not be counted",
                extra={"action": "held_not_counted", "error": str(exc)},
            )
            return 1
        for each in found:
            _log.warning(
                "timeouts wait in the store: their destination cannot be reached",
                extra={
                    "action": "rows_held",
                    "endpoint": each.endpoint,
                    "destination": each.destination,
                    "reason": each.reason,
                    "rows": each.rows,
                },
            )
        self._tell_held(found)
        return sum(each.rows for each in found)

    def _end_runs(self, code: ExitCode) -> None:
        status = _RUN_STATUS.get(code, "failed")
        if status == "done" and not self._once:
            status = "stopped"
        for _, run in self._runs:
            try:
                self._app.runs.end(run, status)
            except MigratorError as exc:
                _log.warning(
                    "the end of the run could not be recorded",
                    extra={"action": "run_end_failed", "run": run, "error": str(exc)},
                )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        previous = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        previous[signal.SIGHUP] = signal.signal(
            signal.SIGHUP, lambda _number, _frame: self._wants_reload.set()
        )
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """First signal: finish the batch in hand. Second: stop between two steps.

        A drain that an operator or a critical limit began is no first signal: a service manager
        that is told to stop the daemon meanwhile must wait for the batch as well.
        """
        if self._is_signalled:
            self._stop.at_once.set()
        self._is_signalled = True
        self._stop.draining.set()
        _log.info(
            "asked to stop",
            extra={"action": "stop_requested", "signal": signal.Signals(number).name},
        )
