"""Tests of ``PurgeTask``: it does what the command does, and ends nobody's work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.config.values import parse_cron
from migrator.errors import LedgerCloned, LedgerError, MigratorError
from migrator.service.schedule import Job, JobCounts, left_out, scheduled
from migrator.service.tasks import PurgeTask

Lines = Callable[[str], list[logging.LogRecord]]
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
