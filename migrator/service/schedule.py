"""What happens at intervals: jobs run by APScheduler, of which none is missed silently.

Rules of this file:

* each run has a thread of its own, because what asks a broker or a database may take long, or
  never return; the end of the process waits for none;
* the scheduler allows one run of a job at a time, and makes up for missed ones by one;
* what did not happen when it should is counted and logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from apscheduler import events
from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from migrator.background import BackgroundTask
from migrator.status.snapshot import JobReport, JobView
from migrator.text import build_duration

_log = logging.getLogger(__name__)

_TELL_EVERY_S: Final = 60.0
_GRACE: Final = timedelta(seconds=30)


class Job(BackgroundTask):
    """A task with its times; how often it was done and missed, any thread may ask.

    Args:
        name: Public: docs/status-page.md has them all.
        every: Between two.
        work: See ``BackgroundTask``.
        may_lag: Whether one that takes longer than that is no miss.
        grace: Started later than this, it is left out.
    """

    def __init__(
        self,
        name: str,
        every: timedelta,
        work: Callable[[], object],
        *,
        may_lag: bool = False,
        grace: timedelta = _GRACE,
    ) -> None:
        super().__init__(name, work)
        self.every = every
        self.grace = grace
        self.last: JobReport | None = None
        """What came of it the last time; None: not done yet, or nothing to tell."""
        self._lock = threading.Lock()
        """Held to change what was missed."""
        self._may_lag = may_lag
        self._entry: Any = None
        """As the scheduler knows it; None: it is not scheduled."""
        self._last_at: datetime | None = None
        """Time for which the scheduler last looked at the job."""
        self._runs = 0
        self._missed = 0
        self._missed_before = 0
        """Those that are in the log."""
        self._tell_again_s = float("-inf")

    def report(
        self, outcome: str, text: str, detail: Mapping[str, object], *, is_fine: bool
    ) -> None:
        """Remember what came of it."""
        self.last = JobReport(
            at=datetime.now(UTC), outcome=outcome, is_fine=is_fine, text=text, detail=detail
        )

    def view(self) -> JobView:
        """Return the job as it is now."""
        return JobView(
            job=self.name,
            when=build_duration(self.every),
            runs=self._runs,
            missed=self._missed,
            last=self.last,
        )

    def schedule(self, scheduler: BackgroundScheduler) -> None:
        """Have *scheduler* run it at its times."""
        self._entry = scheduler.add_job(
            self.run,
            IntervalTrigger(seconds=self.every.total_seconds(), timezone="UTC"),
            id=self.name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=max(1, round(self.grace.total_seconds())),
        )

    def run(self) -> None:
        """Do it; the scheduler calls."""
        self._runs += 1
        super().run()

    def run_soon(self) -> bool:
        """Have the scheduler run it now; False where there is none."""
        if self._entry is None:
            return False
        with suppress(JobLookupError):  # the scheduler has ended
            self._entry.modify(next_run_time=datetime.now(UTC))
        return True

    def hear(self, event: Any) -> None:
        """Count what the scheduler left out: too late, still running, or several made one."""
        if event.code == events.EVENT_JOB_MISSED:
            self._miss(1)
            return
        times: Sequence[datetime] = event.scheduled_run_times
        is_left_out = event.code == events.EVENT_JOB_MAX_INSTANCES
        count = len(times) if is_left_out and not self._may_lag else 0
        if self._last_at is not None:
            count += max(round((times[0] - self._last_at) / self.every) - 1, 0)
        self._last_at = times[-1]
        self._miss(count)

    def tell(self, *, at_once: bool) -> None:
        """Log how many were missed since the last time, if any; once a minute at most."""
        with self._lock:
            count = self._missed - self._missed_before
            if not count or (time.monotonic() < self._tell_again_s and not at_once):
                return
            self._tell_again_s = time.monotonic() + _TELL_EVERY_S
            self._missed_before = total = self._missed
        _log.warning(
            "a job did not run when it should have; it runs at its next time",
            extra={"action": "job_missed", "job": self.name, "count": count, "total": total},
        )

    def _miss(self, count: int) -> None:
        with self._lock:
            self._missed += count
        self.tell(at_once=False)


class _Threads(BaseExecutor):  # type: ignore[misc]  # APScheduler ships no types
    """Runs what is due on a daemon thread; the end of the process waits for APScheduler's own."""

    def _do_submit_job(self, job: Any, run_times: Sequence[datetime]) -> None:
        threading.Thread(target=self._run, args=(job, run_times), name=job.id, daemon=True).start()

    def _run(self, job: Any, run_times: Sequence[datetime]) -> None:
        told = run_job(job, job._jobstore_alias, run_times, self._logger.name)
        self._run_job_success(job.id, told)


@contextmanager
def scheduled(jobs: Sequence[Job]) -> Iterator[None]:
    """Do *jobs* at their times for as long as the context lasts; what goes on ends with it."""
    scheduler = BackgroundScheduler(executors={"default": _Threads()}, timezone="UTC")
    by_name = {job.name: job for job in jobs}
    for job in jobs:
        job.schedule(scheduler)
    scheduler.add_listener(
        lambda event: by_name[event.job_id].hear(event),
        events.EVENT_JOB_SUBMITTED | events.EVENT_JOB_MAX_INSTANCES | events.EVENT_JOB_MISSED,
    )
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
        for job in jobs:
            job.end()
            job.tell(at_once=True)
