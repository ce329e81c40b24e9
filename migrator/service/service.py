"""The running service: starts workers and schedule, obeys signals, says how it ended."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol

from migrator.errors import ExitCode, MigratorError
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.ports import Runs
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import RunId
from migrator.service.crew import Crew
from migrator.service.jobs import Job, Tally, scheduled
from migrator.service.supervision import Supervision
from migrator.service.worker import Stop

_log = logging.getLogger(__name__)

_RUN_STATUS: Final = {
    ExitCode.DONE: "done",
    ExitCode.QUARANTINED: "done",
    ExitCode.INTERRUPTED: "stopped",
}


class Outstanding(Protocol):
    """What the ledger says about the rows a run was responsible for."""

    def quarantined(self, endpoints: Sequence[StoreEndpoint]) -> int:
        """Return how many rows of *endpoints* are in quarantine."""
        ...

    def doubtful(self, endpoints: Sequence[StoreEndpoint]) -> int:
        """Return how many batches of *endpoints* are doubtful."""
        ...

    def held(self) -> int:
        """Return how many rows wait in the store for destinations that cannot be reached."""
        ...


class Service:
    """One process at work on some endpoints."""

    def __init__(
        self,
        *,
        runs: Runs,
        outstanding: Outstanding,
        keeper: LeaseKeeper,
        stop: Stop,
        once: bool,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; nothing is started yet. *reload* is called by the main thread upon SIGHUP."""
        self._runs = runs
        self._outstanding = outstanding
        self._keeper = keeper
        self._stop = stop
        self._once = once
        self._reload = reload
        self._wants_reload = threading.Event()
        self._is_signalled = False

    def run(
        self,
        endpoints: Sequence[tuple[StoreEndpoint, RunId]],
        crew: Crew,
        *,
        jobs: Sequence[Job],
        tally: Tally,
        supervision: Supervision,
        watch: Callable[[], None] = lambda: None,
        begun: Callable[[], None] = lambda: None,
    ) -> ExitCode:
        """Work until done (``once``) or told to stop; return the process's exit code.

        Args:
            endpoints: Each with the run that was begun for it.
            crew: Prepared, not started.
            jobs: What happens at intervals meanwhile.
            tally: Counts that.
            supervision: Is told how the workers are, and tells the service manager.
            watch: Called a few times a second by the main thread, to show progress.
            begun: Called once, when the work has begun.
        """
        with self._signals(), scheduled(jobs, tally):
            self._keeper.start()
            crew.start()
            supervision.begin()
            begun()
            try:
                while not crew.has_ended(supervision.look_every_s):
                    supervision.look()
                    self._reload_if_wanted(supervision)
                    watch()
            finally:
                self._keeper.stop()
        supervision.end()
        watch()
        code = self._exit_code([endpoint for endpoint, _ in endpoints], crew)
        self._end_runs(endpoints, code)
        return code

    def _reload_if_wanted(self, supervision: Supervision) -> None:
        if self._wants_reload.is_set() and not self._stop.draining.is_set():
            self._wants_reload.clear()
            with supervision.reloading():
                self._reload()

    def _exit_code(self, endpoints: Sequence[StoreEndpoint], crew: Crew) -> ExitCode:
        workers = list(crew)
        if any(worker.crash for worker in workers):
            return ExitCode.BUG
        if self._outstanding.doubtful(endpoints):
            return ExitCode.DOUBTFUL
        failures = [worker.failure for worker in workers if worker.failure]
        failures += [self._stop.reason] if self._stop.reason else []
        failures += self._stop.stuck.values() if self._once else []
        if failures:
            return max((failure.exit_code for failure in failures), key=int)
        if self._once and self._stop.draining.is_set():
            return ExitCode.INTERRUPTED
        held = self._outstanding.held() if self._once else 0
        is_all = not held and not self._outstanding.quarantined(endpoints)
        return ExitCode.DONE if is_all else ExitCode.QUARANTINED

    def _end_runs(self, endpoints: Sequence[tuple[StoreEndpoint, RunId]], code: ExitCode) -> None:
        status = _RUN_STATUS.get(code, "failed")
        if status == "done" and not self._once:
            status = "stopped"
        for _, run in endpoints:
            try:
                self._runs.end(run, status)
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

        A drain that an operator or a panic limit began is no first signal: a service manager that
        is told to stop the daemon meanwhile must wait for the batch as well.
        """
        if self._is_signalled:
            self._stop.at_once.set()
        self._is_signalled = True
        self._stop.draining.set()
        _log.info(
            "asked to stop",
            extra={"action": "stop_requested", "signal": signal.Signals(number).name},
        )
