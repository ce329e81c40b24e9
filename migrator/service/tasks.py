"""What a running daemon does at intervals, beside its workers: wake, probe, purge, tell."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from migrator.app import App
from migrator.delays import probe
from migrator.delays.probe import ProbeRun, probe_document, probes_text
from migrator.delays.routing import PROBED, DelaysVersion, probe_delay_s
from migrator.delays.topology import FindBindings
from migrator.errors import Interrupted, MigratorError
from migrator.handover.holding import Holding
from migrator.ledger.runs import SqlRuns
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.service.schedule import BackgroundTask, Job
from migrator.service.status import POLL_DETAILS_EVERY, POLL_EVERY, StatusPoller
from migrator.service.systemd import Supervision
from migrator.service.worker import WorkerPool
from migrator.web.status import JobReport

_log = logging.getLogger(__name__)

_STATUS_EVERY: Final = timedelta(seconds=10)
_LOOK_AT_HELD_EVERY: Final = timedelta(seconds=3)
"""Asks the broker only about those whose time has come."""

_PROBE_PATIENCE_S: Final = 10.0
"""So much later than what is warned of, a probe counts as lost."""

PURGE: Final = "ledger-purge"
PURGED: Final = "ledger_purged"
_PURGE_GRACE: Final = timedelta(days=1)
"""A machine that slept at the time of the purge makes up for it."""
_MOST_PURGED: Final = 1_000_000
"""Rows at a time; the rest waits for the next one."""
_REST_S: Final = 0.05
"""Between two transactions, which are of thousands of rows."""


def periodic_jobs(
    app: App,
    workers: WorkerPool,
    supervision: Supervision,
    poller: StatusPoller,
    holding: Holding,
    *,
    describe: Callable[[], str],
    once: bool,
) -> Iterator[Job]:
    """Yield what a service has done at intervals, as the settings want it."""

    def wake() -> bool:
        workers.wake()
        return True

    def look_at_held() -> None:
        if holding.look():
            workers.wake()

    yield Job(name="sweep", every=app.plan.sweep_every, do=wake)
    # a slow answer is no miss: the status tells how old it is
    yield poller.poll_task.job(POLL_EVERY, may_lag=True)
    yield poller.details_task.job(POLL_DETAILS_EVERY, may_lag=True)
    held = BackgroundTask("held-destinations", look_at_held)
    yield held.job(_LOOK_AT_HELD_EVERY, may_lag=True)
    if supervision.wants_status:
        status = BackgroundTask("status", lambda: supervision.status(describe()))
        yield status.job(_STATUS_EVERY)
    if once:
        return
    if (every := app.settings.canary.every) is not None:
        probing = _probe_task(app)
        yield probing.task.job(every, report=lambda: probing.report)
    if (after := app.settings.ledger.purge_after) is not None:
        purging = PurgeTask(
            verify=app.ledger_facts.verify,
            now=app.clock.now,
            purge=app.upkeep.purge,
            runs=app.runs,
            after=after,
        )
        rhythm = app.settings.ledger.purge_rhythm
        yield purging.task.job(rhythm, grace=_PURGE_GRACE, report=lambda: purging.report)


def _probe_task(app: App) -> ProbeTask:
    given = app.settings.canary
    return ProbeTask(
        app.connection,
        app.plan.delays,
        given.probed_levels,
        find_bindings=app.management.bindings_from if app.management else None,
        runs=app.runs,
        warn_after=given.warn_after,
    )


class ProbeTask:
    """Sends probes through the delay levels, and tells how late they came back.

    * it shares nothing with lanes and dispatchers, and its failures end nobody else's work;
    * while earlier probes are still out, none is sent: in a level that stands still they would
      only add to what has to come out again, and each would need a queue that still exists;
    * told to end in the middle, it goes at once; its queue then waits for the probes, and removes
      itself (see ``delays.probe``).
    """

    def __init__(
        self,
        connection: ConnectionSettings,
        version: DelaysVersion,
        levels: Sequence[int],
        *,
        find_bindings: FindBindings | None,
        runs: SqlRuns,
        warn_after: timedelta,
    ) -> None:
        """Prepare to probe *levels*, ascending; a probe later than *warn_after* is warned of."""
        self._connection = connection
        self._version = version
        self._levels = levels
        self._find_bindings = find_bindings
        self._runs = runs
        self._warn_after_s = warn_after.total_seconds()
        self.report: JobReport | None = None
        """None: no probe has come back yet."""
        self._left: ProbeRun | None = None
        """The flight whose probes are still out."""
        self.task = BackgroundTask(PROBED, self._measure)

    def _measure(self) -> None:
        try:
            flight = self._flight()
        except Interrupted:
            return
        except Exception as exc:  # a bug of ours must not end the work of others
            _log.warning(
                "the canary could not measure; it tries again at its next time",
                extra={"action": "canary_failed", "error": str(exc)},
                exc_info=not isinstance(exc, MigratorError),
            )
            self._record({"outcome": "failed", "error": str(exc)}, text=str(exc), is_fine=False)
        else:
            self._tell(flight)

    def _flight(self) -> ProbeRun:
        if self._left is not None and not probe.are_back(self._connection, self._left):
            return self._left
        flight = probe.send_probes(
            self._connection,
            self._version,
            self._levels,
            patience_s=probe_delay_s(self._levels[-1]) + self._warn_after_s + _PROBE_PATIENCE_S,
            find_bindings=self._find_bindings,
            guard=self.task.check,
        )
        self._left = flight if flight.left_queue else None
        return flight

    def _tell(self, flight: ProbeRun) -> None:
        late = list(flight.late_levels(after_s=self._warn_after_s))
        facts: dict[str, object] = {
            "delays": str(flight.version),
            "probes": [probe_document(each) for each in flight.probes],
        }
        if late:
            _log.warning(
                "probes through the delay levels are late, early or lost",
                extra={"action": "canary_late", "levels": late, **facts},
            )
        else:
            _log.info("probes came back in time", extra={"action": "canary_measured", **facts})
        detail = {"outcome": "late" if late else "measured", "late_levels": late, **facts}
        self._record(detail, text=probes_text(flight, late), is_fine=not late)

    def _record(self, found: Mapping[str, object], *, text: str, is_fine: bool) -> None:
        detail = {**found, "text": text}
        self.report = _report(str(found["outcome"]), text, detail, is_fine=is_fine)
        try:
            self._runs.record(PROBED, detail=detail, batch=None)
        except Exception as exc:  # the log has it; the ledger's own trouble is told by the lanes
            _log.warning(
                "what the canary found could not be recorded",
                extra={"action": "canary_failed", "error": str(exc)},
            )


class PurgeTask:
    """Does what ``migrator ledger purge`` does, and refuses what that refuses.

    It deletes in short transactions, so that lanes wait for moments at most, and so many rows at a
    time. Several processes may do it at once: each row is deleted by one of them.
    """

    def __init__(
        self,
        *,
        verify: Callable[[], object],
        now: Callable[[], datetime],
        purge: Callable[..., int],
        runs: SqlRuns,
        after: timedelta,
        most_rows: int = _MOST_PURGED,
    ) -> None:
        """Prepare.

        Args:
            verify: Raises when the ledger is not one to be worked on.
            now: The database's time.
            purge: See ``ledger.operator_actions``.
            runs: Take what was purged, for the audit log.
            after: Rows settled and due so long ago are deleted.
            most_rows: At a time.
        """
        self._verify = verify
        self._now = now
        self._purge = purge
        self._runs = runs
        self._after = after
        self._most_rows = most_rows
        self._rest = threading.Event()
        self.report: JobReport | None = None
        """None: not done yet."""
        self.task = BackgroundTask(PURGE, self._run)

    def _run(self) -> None:
        try:
            self._verify()
            before = self._now() - self._after
            rows = self._purge(before=before, at_most=self._most_rows, goes_on=self._goes_on)
        except MigratorError as exc:
            _log.warning(
                "settled rows could not be purged; it is tried again at its next time",
                extra={"action": "ledger_purge_failed", "error": str(exc)},
            )
            self.report = _report("failed", str(exc), {"error": str(exc)}, is_fine=False)
            return
        more = rows >= self._most_rows
        detail = {"before": before.isoformat(), "run": None, "rows": rows, "is_all": not more}
        text = f"{rows} rows settled and due before {before:%Y-%m-%d %H:%M} UTC deleted"
        text = f"{text}; there are more" if more else text
        self.report = _report("done", text, detail, is_fine=True)
        _log.info("settled rows were purged", extra={"action": PURGED, **detail})
        if rows:
            self._record(detail)

    def _goes_on(self) -> bool:
        """Rest, and return whether nobody asked to stop."""
        try:
            self.task.check()
        except Interrupted:
            return False
        self._rest.wait(_REST_S)
        return True

    def _record(self, detail: Mapping[str, object]) -> None:
        try:
            self._runs.record(PURGED, detail=detail, batch=None)
        except MigratorError as exc:  # they are gone; the log has it
            _log.warning(
                "a purge could not be recorded",
                extra={"action": "ledger_purge_failed", "error": str(exc)},
            )


def _report(outcome: str, text: str, detail: Mapping[str, object], *, is_fine: bool) -> JobReport:
    return JobReport(
        at=datetime.now(UTC), outcome=outcome, is_fine=is_fine, text=text, detail=detail
    )
