"""What happens at intervals: jobs run by a scheduler, of which none is missed silently.

Rules of this file:

* a job returns at once; what takes long, because a broker or a database is asked, is a
  ``BackgroundTask`` with a thread of its own, which the job wakes and nobody waits for;
* one run at a time; runs that were missed are made up for by one;
* what did not happen when it should is counted and logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apscheduler import events
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from migrator.config.values import Cron, build_duration
from migrator.errors import Interrupted
from migrator.web.status import JobReport, JobView

_log = logging.getLogger(__name__)

_TELL_EVERY_S: Final = 60.0
_GRACE: Final = timedelta(seconds=30)
_LAST_WAIT_S: Final = 2.0
"""Whatever is asked and does not answer may hold a task's thread longer; it is left behind then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is done, and how often."""

    name: str
    every: timedelta | Cron
    """Between two, or at these times."""
    do: Callable[[], bool]
    """Does it, or has it done; False when the last one still goes on, which is a miss."""
    grace: timedelta = _GRACE
    """Started later than this, it is left out."""
    report: Callable[[], JobReport | None] = lambda: None
    """Returns what came of it the last time, if there is a report; at once, from any thread."""
    task: BackgroundTask | None = None
    """Ended with the schedule."""


class BackgroundTask:
    """Does one thing on a thread of its own, once each time it is asked to; nobody waits for it."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """Prepare to call *work*; the thread starts when it is asked for the first time."""
        self.name = name
        self._work = work
        self._asked = threading.Event()
        self._ended = threading.Event()
        self._is_busy = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def run_soon(self) -> bool:
        """Have the work done once; False when the last time still goes on: then it is not."""
        with self._lock:
            if self._ended.is_set():
                return True
            if self.is_busy:
                return False
            self._asked.set()
            if self._thread.ident is None:
                self._thread.start()
            return True

    def job(
        self,
        every: timedelta | Cron,
        *,
        may_lag: bool = False,
        grace: timedelta = _GRACE,
        report: Callable[[], JobReport | None] = lambda: None,
    ) -> Job:
        """Return the job that runs this; with *may_lag*, one that takes long is no miss."""
        do = (lambda: self.run_soon() or True) if may_lag else self.run_soon
        return Job(name=self.name, every=every, do=do, grace=grace, report=report, task=self)

    @property
    def is_busy(self) -> bool:
        """Whether it is asked, or at work."""
        return self._is_busy or self._asked.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether no thread of it runs."""
        return not self._thread.is_alive()

    def check(self) -> None:
        """Return unless the work is to be broken off.

        Raises:
            Interrupted: It is.
        """
        if self._ended.is_set():
            raise Interrupted("asked to stop in the middle")

    def end(self) -> bool:
        """Break off what goes on, for good; return whether that happened within moments."""
        with self._lock:
            self._ended.set()
            self._asked.set()
        if self._thread.ident is not None:
            self._thread.join(_LAST_WAIT_S)
        return self.has_ended

    def _run(self) -> None:
        while True:
            self._asked.wait()
            if self._ended.is_set():
                return
            self._is_busy = True
            self._asked.clear()
            try:
                self._work()
            except Exception:  # a bug in a side job must not end it for good
                _log.exception(
                    "a background task failed", extra={"action": "job_failed", "job": self.name}
                )
            finally:
                self._is_busy = False


class JobCounts:
    """How often each job of a process was done and missed; any thread may ask."""

    def __init__(self) -> None:
        """Know of no job yet."""
        self._watches: Mapping[str, _Watch] = {}

    def views(self) -> Sequence[JobView]:
        """Return every job as it is now; empty before the work begins."""
        return [watch.view() for watch in self._watches.values()]

    def count(self, watches: Mapping[str, _Watch]) -> None:
        """Count *watches* from now on."""
        self._watches = watches


@contextmanager
def scheduled(jobs: Sequence[Job], counts: JobCounts | None = None) -> Iterator[None]:
    """Do *jobs* at their times for as long as the context lasts; their tasks end with it."""
    scheduler = BackgroundScheduler(timezone="UTC")
    watches = {job.name: _Watch(job) for job in jobs}
    if counts is not None:
        counts.count(watches)
    for job in jobs:
        scheduler.add_job(
            watches[job.name].run,
            _trigger(job.every),
            id=job.name,
            max_instances=1,
            coalesce=True,
            misfire_grace_time=max(1, round(job.grace.total_seconds())),
        )
    scheduler.add_listener(
        lambda event: watches[event.job_id].hear(event),
        events.EVENT_JOB_SUBMITTED | events.EVENT_JOB_MAX_INSTANCES | events.EVENT_JOB_MISSED,
    )
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)
        for job in jobs:
            if job.task is not None:
                job.task.end()
        for watch in watches.values():
            watch.tell(at_once=True)


def _trigger(every: timedelta | Cron) -> Any:
    if isinstance(every, Cron):
        return every.trigger
    return IntervalTrigger(seconds=every.total_seconds(), timezone="UTC")


class _Watch:
    """Runs one job, and counts what was missed of it; logged once a minute at most."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._last: datetime | None = None
        """Time for which the scheduler last looked at the job."""
        self._runs = 0
        self._missed = 0
        self._missed_before = 0
        """Those that are in the log."""
        self._tell_again_s = float("-inf")

    def run(self) -> None:
        """Do the job; whatever goes wrong with it is logged and ends nothing."""
        self._runs += 1  # by one thread at a time: max_instances
        try:
            is_done = self._job.do()
        except Exception:
            _log.exception(
                "a scheduled job failed", extra={"action": "job_failed", "job": self._job.name}
            )
        else:
            if not is_done:
                self._add(1)

    def hear(self, event: Any) -> None:
        """Count what the scheduler left out: too late, still running, or several made one."""
        if event.code == events.EVENT_JOB_MISSED:
            self._add(1)
            return
        times: Sequence[datetime] = event.scheduled_run_times
        count = len(times) if event.code == events.EVENT_JOB_MAX_INSTANCES else 0
        if self._last is not None:
            count += left_out(self._last, times[0], every=self._job.every)
        self._last = times[-1]
        self._add(count)

    def view(self) -> JobView:
        """Return the job as it is now."""
        job = self._job
        return JobView(
            name=job.name,
            when=job.every.text if isinstance(job.every, Cron) else build_duration(job.every),
            runs=self._runs,
            missed=self._missed,
            last=job.report(),
        )

    def _add(self, count: int) -> None:
        if count:
            with self._lock:
                self._missed += count
            self.tell(at_once=False)

    def tell(self, *, at_once: bool) -> None:
        """Log how many were missed since the last time, if any."""
        with self._lock:
            count = self._missed - self._missed_before
            if not count or (time.monotonic() < self._tell_again_s and not at_once):
                return
            self._tell_again_s = time.monotonic() + _TELL_EVERY_S
            self._missed_before = total = self._missed
        _log.warning(
            "a job did not run when it should have; it goes on with its next time",
            extra={"action": "job_missed", "job": self._job.name, "count": count, "total": total},
        )


def left_out(last: datetime, this: datetime, *, every: timedelta | Cron) -> int:
    """Return how many times of a job that runs *every* so often lie between *last* and *this*."""
    if isinstance(every, Cron):
        return sum(1 for _ in every.between(last, this))
    return max(round((this - last) / every) - 1, 0)
