"""Tests of ``migrator.service.schedule``, with the real scheduler at short intervals."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from migrator.service.schedule import Job, JobCounts, left_out, scheduled

SHORT = timedelta(milliseconds=20)
Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]
Started = Callable[[], set[threading.Thread]]


def total(lines: Lines) -> int:
    """Return how many misses were told in all; each line has those since the one before it."""
    told = [vars(line) for line in lines("job_missed")]
    assert sum(line["count"] for line in told) == max((line["total"] for line in told), default=0)
    return sum(line["count"] for line in told)


@pytest.fixture
def started() -> Callable[[], set[threading.Thread]]:
    """Return the threads that were started since the test began; those of others may end."""
    before = set(threading.enumerate())
    return lambda: set(threading.enumerate()) - before


def test_each_job_runs_at_its_own_times(lines: Lines, wait_for: WaitFor, started: Started) -> None:
    """Until the context ends, and never at once."""
    done: dict[str, int] = {"often": 0, "never": 0}

    def do(name: str) -> bool:
        done[name] += 1
        return True

    jobs = [
        Job(name="often", every=SHORT, do=lambda: do("often")),
        Job(name="never", every=timedelta(hours=1), do=lambda: do("never")),
    ]
    with scheduled(jobs):
        wait_for(lambda: done["often"] >= 3)
        threads = started()
    wait_for(lambda: threads.isdisjoint(threading.enumerate()))
    before = dict(done)
    time.sleep(0.1)
    assert done == before
    assert done["never"] == 0
    assert not lines("job_failed")


def test_no_jobs_are_fine(lines: Lines, wait_for: WaitFor, started: Started) -> None:
    """There is just nothing to do, nothing to tell, and nothing goes on afterwards."""
    with scheduled([], tally := JobCounts()):
        threads = started()
        assert threads
        assert list(tally.views()) == []
    wait_for(lambda: threads.isdisjoint(threading.enumerate()))
    assert not lines("job_missed")
    assert not lines("job_failed")


def test_a_job_that_fails_is_told_and_tried_again(lines: Lines, wait_for: WaitFor) -> None:
    """Nothing else ends with it."""
    others: list[bool] = []

    def fail() -> bool:
        raise ZeroDivisionError

    def work() -> bool:
        others.append(True)
        return True

    with scheduled([Job(name="bad", every=SHORT, do=fail), Job(name="ok", every=SHORT, do=work)]):
        wait_for(lambda: len(lines("job_failed")) >= 2 and len(others) >= 2)
    line = lines("job_failed")[0]
    assert (line.levelno, vars(line)["job"]) == (logging.ERROR, "bad")
    assert line.exc_info


def test_a_job_that_still_runs_is_not_started_again(lines: Lines, wait_for: WaitFor) -> None:
    """What it misses is counted; the first is told at once, the rest at the end."""
    entered: list[float] = []
    leave = threading.Event()

    def slow() -> bool:
        entered.append(time.monotonic())
        return leave.wait(60)

    tally = JobCounts()
    with scheduled([Job(name="slow", every=SHORT, do=slow)], tally):
        wait_for(lambda: len(lines("job_missed")) == 1)
        told = total(lines)
        wait_for(lambda: all(view.missed >= told + 2 for view in tally.views()))
        assert len(entered) == 1
        assert len(lines("job_missed")) == 1
        leave.set()
    assert len(lines("job_missed")) == 2
    line = lines("job_missed")[-1]
    assert (line.levelno, vars(line)["job"]) == (logging.WARNING, "slow")
    assert total(lines) >= 3
    (view,) = tally.views()
    assert (view.name, view.when, view.missed) == ("slow", "20ms", total(lines))
    assert view.runs >= 1


def test_a_job_that_says_it_could_not_is_a_miss(lines: Lines, wait_for: WaitFor) -> None:
    """As when the thread that does the work is still at the last one."""
    asked: list[bool] = []

    def refuse() -> bool:
        asked.append(True)
        return False

    with scheduled([Job(name="busy", every=SHORT, do=refuse)]):
        wait_for(lambda: len(asked) >= 3)
    # one may just be about to be counted, and a busy scheduler leaves some out besides
    assert total(lines) >= len(asked) - 1


def test_a_job_that_comes_too_late_is_left_out_and_told(lines: Lines, wait_for: WaitFor) -> None:
    """Ten others hold all threads of the scheduler for longer than it has grace."""
    leave = threading.Event()
    done: list[float] = []

    def hold() -> bool:
        return leave.wait(60)

    def late() -> bool:
        done.append(time.monotonic())
        return True

    holders = [Job(name=f"holder-{n}", every=SHORT, do=hold) for n in range(10)]
    every, grace = timedelta(milliseconds=100), timedelta(seconds=1)
    tally = JobCounts()

    def missed() -> int:
        return next(view.missed for view in tally.views() if view.name == "late")

    with scheduled([*holders, Job(name="late", every=every, do=late, grace=grace)], tally):
        wait_for(lambda: missed() >= 12)  # those after the first, which waits for a thread
        assert not done
        leave.set()
        wait_for(lambda: bool(done))
    told = [vars(line) for line in lines("job_missed") if vars(line)["job"] == "late"]
    assert sum(line["count"] for line in told) >= 12


@pytest.mark.parametrize(
    ("passed_s", "count"),
    [(10, 0), (9.9, 0), (20, 1), (3600, 359), (0, 0), (-50, 0)],
    ids=["in time", "nearly", "one", "an hour asleep", "the same", "clock put back"],
)
def test_times_between_two_are_counted(passed_s: float, count: int) -> None:
    """Of a job that runs every ten seconds."""
    last = datetime(2026, 1, 1, tzinfo=UTC)
    this = last + timedelta(seconds=passed_s)
    assert left_out(last, this, every=timedelta(seconds=10)) == count
