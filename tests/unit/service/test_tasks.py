"""Tests of ``migrator.service.tasks``: probes and purges tell what came of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.config.values import parse_cron
from migrator.delays.probe import Probe, ProbeRun
from migrator.delays.routing import DelaysVersion
from migrator.errors import LedgerCloned, LedgerError, MigratorError, TargetUnavailable
from migrator.service import tasks
from migrator.service.schedule import Job, JobCounts, left_out, scheduled
from migrator.service.tasks import ProbeTask, PurgeTask

Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]


def flight(*late_s: float | None) -> ProbeRun:
    """Return a flight through levels 0 and up; lost probes leave a queue."""
    probes = tuple(Probe(level=n, late_s=each) for n, each in enumerate(late_s))
    return ProbeRun(
        version=DelaysVersion.V2, probes=probes, left_queue="left" if None in late_s else ""
    )


class Flights:
    """Flights that end as the test says."""

    def __init__(self, result: ProbeRun | Exception) -> None:
        self.result = result
        self.flown = 0
        self.looked = 0
        self.back = False
        self.hold: Callable[[Callable[[], None]], None] = lambda _guard: None

    def send_probes(self, *_: object, guard: Callable[[], None], **__: object) -> ProbeRun:
        self.flown += 1
        self.hold(guard)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def are_back(self, _connection: object, flight: ProbeRun) -> bool:
        self.looked += 1
        assert flight.left_queue
        return self.back


class Events:
    """An audit log in memory."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self.failure: Exception | None = None

    def record(self, kind: str, *, detail: Mapping[str, object], batch: object) -> None:
        assert (kind, batch) == ("canary", None)
        if self.failure is not None:
            raise self.failure
        self.found.append(dict(detail))


class Bench:
    """One task and everything it asks."""

    def __init__(self, result: ProbeRun | Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flights = Flights(result)
        monkeypatch.setattr(tasks, "probe", self.flights)
        self.trail = Events()
        connection: Any = None
        self.canary = ProbeTask(
            connection,
            DelaysVersion.V2,
            [0, 1],
            find_bindings=None,
            runs=self.trail,  # type: ignore[arg-type]  # only what is asked
            warn_after=timedelta(seconds=2),
        )
        self.thread = self.canary.task


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ProbeRun | Exception], Bench]]:
    """Makes tasks, and ends them."""
    made: list[Bench] = []

    def make(result: ProbeRun | Exception) -> Bench:
        made.append(Bench(result, monkeypatch))
        return made[-1]

    yield make
    for each in made:
        assert each.thread.end()


def test_probes_in_time_are_told_and_recorded(bench: Any, lines: Lines, wait_for: WaitFor) -> None:
    """With how late each was."""
    ours = bench(flight(0.004, 1.9))
    assert ours.thread.run_soon()
    wait_for(lambda: bool(ours.trail.found))
    (line,) = lines("canary_measured")
    assert line.levelno == logging.INFO
    (found,) = ours.trail.found
    assert (found["outcome"], found["late_levels"], found["delays"]) == ("measured", [], "v2")
    assert vars(line)["probes"] == found["probes"]
    assert [probe["late_s"] for probe in found["probes"]] == [0.004, 1.9]
    last = ours.canary.report
    assert (last.outcome, last.is_fine, last.detail) == ("measured", True, found)
    assert last.text == found["text"] == "levels 0, 1 in time, 1.900 s late at most"


def test_late_levels_are_warned_of_by_number(bench: Any, lines: Lines, wait_for: WaitFor) -> None:
    """Over the limit, early and lost alike."""
    ours = bench(flight(0.0, 2.5, -1.0, None))
    ours.thread.run_soon()
    wait_for(lambda: bool(ours.trail.found))
    (line,) = lines("canary_late")
    assert (line.levelno, vars(line)["levels"]) == (logging.WARNING, [1, 2, 3])
    assert ours.trail.found[0]["outcome"] == "late"
    assert ours.trail.found[0]["late_levels"] == [1, 2, 3]
    assert (ours.canary.report.outcome, ours.canary.report.is_fine) == ("late", False)
    assert ours.canary.report.text == "levels late, early or lost: 1, 2, 3"


def test_no_probe_follows_those_that_are_still_out(bench: Any, wait_for: WaitFor) -> None:
    """They would pile up in a level that stands still; once they are back it goes on."""
    ours = bench(flight(0.0, None))
    for count in (1, 2, 3):
        wait_for(ours.thread.run_soon)
        wait_for(lambda count=count: len(ours.trail.found) == count)  # type: ignore[misc]  # mypy cannot type a lambda's default
    assert (ours.flights.flown, ours.flights.looked) == (1, 2)
    assert [each["late_levels"] for each in ours.trail.found] == [[1], [1], [1]]
    ours.flights.back = True
    ours.flights.result = flight(0.0, 0.0)
    wait_for(ours.thread.run_soon)
    wait_for(lambda: len(ours.trail.found) == 4)
    assert (ours.flights.flown, ours.trail.found[-1]["outcome"]) == (2, "measured")
    wait_for(ours.thread.run_soon)
    wait_for(lambda: len(ours.trail.found) == 5)
    assert (ours.flights.flown, ours.flights.looked) == (3, 3)


@pytest.mark.parametrize("failure", [TargetUnavailable("broker-1: gone"), ZeroDivisionError("bug")])
def test_a_failure_is_told_and_the_next_time_it_tries_again(
    bench: Any, lines: Lines, wait_for: WaitFor, failure: Exception
) -> None:
    """Whether the broker is away or the bug is ours."""
    ours = bench(failure)
    ours.thread.run_soon()
    wait_for(lambda: bool(ours.trail.found))
    (line,) = lines("canary_failed")
    assert (line.levelno, vars(line)["error"]) == (logging.WARNING, str(failure))
    assert bool(line.exc_info) is isinstance(failure, ZeroDivisionError)
    error = str(failure)
    assert ours.trail.found == [{"outcome": "failed", "error": error, "text": error}]
    assert (ours.canary.report.outcome, ours.canary.report.is_fine) == ("failed", False)
    ours.flights.result = flight(0.0)
    wait_for(ours.thread.run_soon)
    wait_for(lambda: len(ours.trail.found) == 2)


def test_a_ledger_that_is_away_does_not_hide_what_was_measured(
    bench: Any, lines: Lines, wait_for: WaitFor
) -> None:
    """The log has it."""
    ours = bench(flight(5.0))
    ours.trail.failure = LedgerError("the database cannot be reached")
    ours.thread.run_soon()
    wait_for(lambda: bool(lines("canary_failed")))
    assert len(lines("canary_late")) == 1


def test_it_goes_at_once_in_the_middle_of_a_flight(bench: Any, lines: Lines) -> None:
    """And says nothing of a flight that nobody waited for."""
    ours = bench(flight(0.0))
    begun = threading.Event()

    def hold(guard: Callable[[], None]) -> None:
        begun.set()
        while True:
            guard()
            time.sleep(0.01)

    ours.flights.hold = hold
    ours.thread.run_soon()
    assert begun.wait(30)
    assert ours.thread.end()
    assert ours.trail.found == []
    assert not lines("canary_failed")


def test_what_it_is_asked_meanwhile_counts_as_missed(
    bench: Any, lines: Lines, wait_for: WaitFor
) -> None:
    """On the real schedule: one flight at a time, and the times in between are told."""
    ours = bench(flight(0.0))
    leave = threading.Event()
    ours.flights.hold = lambda _guard: leave.wait(60)
    with scheduled([ours.thread.job(timedelta(milliseconds=20))]):
        wait_for(lambda: bool(lines("job_missed")) and ours.flights.flown > 0)
        assert ours.flights.flown == 1
        leave.set()
        wait_for(lambda: ours.flights.flown >= 3)
    assert vars(lines("job_missed")[0])["job"] == "canary"


# ── the purge ──────────────────────────────────────────────────────────────────────────────────


NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


class Ledger:
    """A ledger with so many rows to purge."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusal: MigratorError | None = None
        self.trouble: MigratorError | None = None
        self.asked: list[datetime] = []
        self.notes: list[Mapping[str, object]] = []

    def verify(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def purge(self, *, before: datetime, at_most: int | None, goes_on: Callable[[], bool]) -> int:
        self.asked.append(before)
        assert at_most is not None
        done = 0
        while self.rows and done < at_most and (not done or goes_on()):
            self.rows -= 1
            done += 1
        return done

    def record(self, kind: str, *, detail: Mapping[str, object], batch: object) -> None:
        assert (kind, batch) == ("ledger_purged", None)
        if self.trouble is not None:
            raise self.trouble
        self.notes.append(detail)


def purge(ledger: Ledger) -> PurgeTask:
    """Return a purge of rows settled 30 days ago, two at a time."""
    runs: Any = ledger
    return PurgeTask(
        verify=ledger.verify,
        now=lambda: NOW,
        purge=ledger.purge,
        runs=runs,
        after=timedelta(days=30),
        most_rows=2,
    )


def test_so_many_at_a_time_are_purged_and_told(lines: Lines) -> None:
    """The ledger has it when there were any; the database's clock counts."""
    ledger = Ledger(3)
    ours = purge(ledger)
    for rows, is_all in ((2, False), (1, True), (0, True)):
        ours._run()
        assert ours.report is not None
        assert (ours.report.outcome, ours.report.is_fine) == ("done", True)
        assert (ours.report.detail["rows"], ours.report.detail["is_all"]) == (rows, is_all)
    assert ledger.asked == [NOW - timedelta(days=30)] * 3
    assert [note["rows"] for note in ledger.notes] == [2, 1]
    assert len(lines("ledger_purged")) == 3


@pytest.mark.parametrize("when", ["refused", "recording"])
def test_trouble_is_told_and_nothing_else_ends(lines: Lines, when: str) -> None:
    """A ledger that is refused is not touched."""
    ledger = Ledger(1)
    if when == "refused":
        ledger.refusal = LedgerCloned("a copy")
    else:
        ledger.trouble = LedgerError("away")
    ours = purge(ledger)
    ours._run()
    assert len(lines("ledger_purge_failed")) == 1
    assert ledger.rows == (1 if when == "refused" else 0)
    assert ours.report is not None
    assert ours.report.is_fine is (when == "recording")


def test_it_ends_between_two_transactions() -> None:
    """Whoever stops the daemon does not wait for a million rows."""
    ledger = Ledger(9)
    ours = purge(ledger)
    ours._most_rows = 9
    ours.task._ended.set()
    ours._run()
    assert ledger.rows == 8


def test_a_cron_job_has_its_times_and_its_misses_are_counted() -> None:
    """What lies between two of them was left out."""
    cron = parse_cron("0 3 * * *")
    first, fourth = datetime(2026, 3, 1, 3, tzinfo=UTC), datetime(2026, 3, 4, 3, tzinfo=UTC)
    assert left_out(first, fourth, every=cron) == 2
    assert left_out(first, first, every=cron) == 0
    tally = JobCounts()
    with scheduled([Job(name="purge", every=cron, do=lambda: True)], tally):
        (view,) = tally.views()
    assert (view.when, view.runs, view.missed) == ("0 3 * * *", 0, 0)
