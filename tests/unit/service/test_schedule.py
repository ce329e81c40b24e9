"""Tests of ``migrator.service.schedule``, with the real scheduler at short intervals."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler import events

from migrator.background import BackgroundTask
from migrator.service.schedule import Job, scheduled
from tests.unit.service.conftest import Lines, WaitFor

SHORT = timedelta(milliseconds=20)
DAY = datetime(2026, 3, 1, 3, tzinfo=UTC)


def total(lines: Lines) -> int:
    """Return how many misses were told in all; each line has those since the one before it."""
    told = [vars(line) for line in lines("job_missed")]
    assert sum(line["count"] for line in told) == max((line["total"] for line in told), default=0)
    return sum(line["count"] for line in told)


def test_each_job_runs_at_its_own_times(lines: Lines, wait_for: WaitFor) -> None:
    """Until the context ends, and never at once; one that fails is told and tried again."""
    before = set(threading.enumerate())
    done: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    jobs = [
        Job("often", SHORT, lambda: done.append("often")),
        Job("never", timedelta(hours=1), lambda: done.append("never")),
        Job("bad", SHORT, fail),
        Job("soon", timedelta(hours=1), lambda: done.append("soon")),
    ]
    assert not jobs[-1].run_soon()
    with scheduled(jobs):
        assert jobs[-1].run_soon()
        wait_for(
            lambda: done.count("often") >= 3 and "soon" in done and len(lines("job_failed")) >= 2
        )
    assert jobs[-1].run_soon()
    wait_for(lambda: set(threading.enumerate()) <= before)
    count = len(done)
    time.sleep(0.1)
    assert (len(done), {*done}) == (count, {"often", "soon"})
    line = lines("job_failed")[0]
    assert (line.levelno, vars(line)["job"], bool(line.exc_info)) == (logging.ERROR, "bad", True)


def test_a_task_runs_once_at_a_time(wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could not be started, or was told to exit, can be asked for again."""
    entered, leave = list[None](), threading.Event()

    def work() -> None:
        entered.append(None)
        leave.wait(60)
        raise SystemExit

    task = BackgroundTask("task", work)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda _thread: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            task.run_soon()
    assert task.run_soon()
    assert not task.run_soon()
    leave.set()
    wait_for(lambda: not task.is_busy)
    assert task.run_soon()
    assert task.end()
    assert task.run_soon()
    assert len(entered) == 2


def test_a_job_that_still_runs_is_not_started_again(lines: Lines, wait_for: WaitFor) -> None:
    """What it misses is counted, unless it may lag; first told at once, the rest at the end."""
    entered: list[float] = []
    leave = threading.Event()

    def slow() -> None:
        entered.append(time.monotonic())
        leave.wait(60)

    job, lagging = Job("slow", SHORT, slow), Job("lagging", SHORT, slow, may_lag=True)
    with scheduled([job, lagging]):
        wait_for(lambda: len(lines("job_missed")) == 1)
        told = total(lines)
        wait_for(lambda: job.view().missed >= told + 2)
        assert (len(entered), len(lines("job_missed"))) == (2, 1)
        leave.set()
        wait_for(lambda: len(entered) >= 4)
    line, view = lines("job_missed")[-1], job.view()
    assert (line.levelno, vars(line)["job"]) == (logging.WARNING, "slow")
    assert (view.job, view.when, view.missed) == ("slow", "20ms", total(lines))
    assert lagging.view().missed == 0


def test_what_the_scheduler_leaves_out_is_counted() -> None:
    """One that comes too late, and those that one run makes up for."""
    job = Job("purge", timedelta(days=1), lambda: None)

    def hear(code: int, day: int) -> None:
        event: Any = type("Event", (), {"code": code})
        event.scheduled_run_times = [DAY + timedelta(days=day)]
        job.hear(event)

    hear(events.EVENT_JOB_SUBMITTED, 0)
    assert job.view().missed == 0
    hear(events.EVENT_JOB_SUBMITTED, 3)
    assert job.view().missed == 2
    hear(events.EVENT_JOB_MISSED, 4)
    hear(events.EVENT_JOB_MAX_INSTANCES, 4)
    assert (job.view().missed, job.view().when) == (4, "1d")
