"""Tests of ``migrator.service.tasks``: probes and purges tell what came of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.delays.capacity import MeasuredBroker, MeasuredCapacity, read_capacity
from migrator.delays.probe import ProbeRun, ProbeTrip
from migrator.delays.releases import EXCHANGE_COST_S
from migrator.delays.routing import DelaysVersion
from migrator.errors import Interrupted, LedgerCloned, MigratorError, TargetUnavailable
from migrator.handover.pacing import ExchangeCost, Pacer
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.service import tasks
from migrator.service.tasks import CapacityTask, DelaysHere, ProbeTask, PurgeTask
from tests.unit.service.conftest import Events, Lines

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
HERE = DelaysHere(
    connection=ConnectionSettings(nodes=parse_addresses("amqp://broker-1")),
    version=DelaysVersion.V2,
    find_bindings=None,
)


def flight(*late_s: float | None) -> ProbeRun:
    """Return a flight through levels 0 and up; lost probes leave a queue."""
    probes = tuple(ProbeTrip(level=n, late_s=each) for n, each in enumerate(late_s))
    return ProbeRun(
        version=DelaysVersion.V2, probes=probes, left_queue="left" if None in late_s else ""
    )


class Flights:
    """Probes that end as the test says, and the task that sends them."""

    def __init__(self) -> None:
        self.result: ProbeRun | Exception = flight(0.0)
        self.flown = 0
        self.is_back = False
        self.events = Events()
        audit_log: Any = self.events
        self.pacer = Pacer()
        self.task = ProbeTask(
            HERE,
            [0, 1],
            audit_log,
            self.pacer,
            every=timedelta(hours=1),
            warn_after=timedelta(seconds=2),
        )

    def send_probes(self, *_: object, **__: object) -> ProbeRun:
        self.flown += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def are_back(self, _connection: object, _flight: ProbeRun) -> bool:
        return self.is_back

    def measure(self, result: ProbeRun | Exception) -> list[dict[str, Any]]:
        """Measure once; return all that the ledger has."""
        self.result = result
        self.task._measure()
        return self.events.of("probe")


@pytest.fixture
def flights(monkeypatch: pytest.MonkeyPatch) -> Flights:
    """Probes and their task."""
    made = Flights()
    monkeypatch.setattr(tasks, "probe", made)
    return made


@pytest.mark.parametrize(
    ("late_s", "late", "text"),
    [
        ((0.004, 1.9), [], "levels 0, 1 in time, 1.900 s late at most"),
        ((0.0, 2.5, -1.0, None), [1, 2, 3], "levels late, early or lost: 1, 2, 3"),
    ],
)
def test_probes_are_told_and_recorded(
    flights: Flights,
    lines: Lines,
    late_s: tuple[float | None, ...],
    late: list[int],
    text: str,
) -> None:
    """With how late each was; levels over the limit are warned of by number."""
    (found,) = flights.measure(flight(*late_s))
    outcome = "late" if late else "measured"
    (line,) = lines(f"probe_{outcome}")
    assert line.levelno == (logging.WARNING if late else logging.INFO)
    assert (found["outcome"], found["late_levels"], found["delays"]) == (outcome, late, "v2")
    assert [probe["late_s"] for probe in found["probes"]] == list(late_s)
    last = flights.task.job.last
    assert last is not None
    assert (last.text, last.is_fine, last.detail) == (text, not late, found)


def test_no_probe_follows_those_that_are_still_out(flights: Flights) -> None:
    """They would pile up in a level that stands still; once they are back it goes on."""
    late = [flights.measure(flight(0.0, None))[-1]["late_levels"] for _ in range(3)]
    assert (flights.flown, late) == (1, [[1], [1], [1]])
    flights.is_back = True
    for _ in range(2):
        assert flights.measure(flight(0.0, 0.0))[-1]["outcome"] == "measured"
    assert flights.flown == 3


@pytest.mark.parametrize(
    "failure", [TargetUnavailable("broker-1: gone"), ZeroDivisionError("bug"), Interrupted("now")]
)
def test_a_failure_is_told_and_the_next_time_it_tries_again(
    flights: Flights, lines: Lines, failure: Exception
) -> None:
    """Whether the broker is away or the bug is ours; of an end in the middle nothing is said."""
    told = [] if isinstance(failure, Interrupted) else [str(failure)]
    assert [each["error"] for each in flights.measure(failure)] == told
    assert [vars(line)["error"] for line in lines("probe_failed")] == told
    assert flights.measure(flight(0.0))[-1]["outcome"] == "measured"


def test_levels_are_filled_more_slowly_while_probes_are_late(flights: Flights) -> None:
    """Half as fast each time, and faster again once they are in time; a lost probe is late."""
    seen = []
    for result in (flight(0.2), flight(0.0, 1.5), flight(3.0), flight(0.1), flight(0.1, 0.9)):
        flights.measure(result)
        seen.append(flights.pacer.slowness)
    assert seen == [1.0, 2.0, 4.0, 2.0, 1.0]
    flights.measure(flight(0.0, None))
    assert flights.pacer.slowness == 2.0


# ── the capacity ────────────────────────────────────────────────────────────────────────────────


def capacity(cost_s: float) -> MeasuredCapacity:
    """Return a measured one."""
    broker = MeasuredBroker(
        delays=DelaysVersion.V2, broker_version="3.10.8", cluster="rabbit@one", vhost="/"
    )
    return MeasuredCapacity(exchange_cost_s=cost_s, measured_at=NOW, broker=broker)


class Levels:
    """A broker whose levels let go as the test says, what the ledger has of it, and the task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, measures: bool = True) -> None:
        self.kept: MeasuredCapacity | MigratorError | None = None
        self.found: MeasuredCapacity | Exception = capacity(0.0002)
        self.bursts = 0
        self.events = Events()
        self.cost = ExchangeCost()
        audit_log: Any = self.events
        kept: Any = self
        self.task = CapacityTask(HERE, kept, audit_log, self.cost, measures=measures)
        monkeypatch.setattr(tasks, "measure_capacity", self.measure)

    def read(self) -> MeasuredCapacity | None:
        if isinstance(self.kept, MigratorError):
            raise self.kept
        return self.kept

    def measure(self, *_: object, **__: object) -> MeasuredCapacity:
        self.bursts += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def cost_after_a_look(self) -> float:
        self.task._look()
        return self.cost.seconds


def test_a_broker_that_nobody_measured_is_measured_once(
    monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The ledger gets it; what it has later, of whoever measured, counts from the next look on."""
    levels = Levels(monkeypatch)
    assert levels.cost.seconds == EXCHANGE_COST_S
    assert [levels.cost_after_a_look() for _ in range(2)] == [0.0002, 0.0002]
    (noted,) = levels.events.of("capacity_measured")
    assert read_capacity(noted) == levels.found
    levels.kept = capacity(0.0003)
    assert levels.cost_after_a_look() == 0.0003
    assert levels.bursts == 1
    told = [vars(line)["exchange_cost_s"] for line in lines("capacity_known")]
    assert told == [0.0002, 0.0003]


def test_a_capacity_that_is_kept_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it by a process that may not."""
    levels = Levels(monkeypatch)
    levels.kept = capacity(0.0003)
    assert (levels.cost_after_a_look(), levels.bursts) == (0.0003, 0)
    levels = Levels(monkeypatch, measures=False)
    assert (levels.cost_after_a_look(), levels.bursts) == (EXCHANGE_COST_S, 0)


@pytest.mark.parametrize("failure", [TargetUnavailable("broker-1: gone"), ZeroDivisionError("bug")])
def test_without_a_capacity_the_usual_counts(
    monkeypatch: pytest.MonkeyPatch, lines: Lines, failure: Exception
) -> None:
    """Said with the reason, once; nothing is measured again, nor written down."""
    levels = Levels(monkeypatch)
    levels.found = failure
    assert [levels.cost_after_a_look() for _ in range(2)] == [EXCHANGE_COST_S] * 2
    assert (levels.bursts, levels.events.of("capacity_measured")) == (1, [])
    first, *_ = lines("capacity_unknown")
    assert vars(first)["reason"] == str(failure)
    levels.kept = LedgerCloned("not ours")
    assert levels.cost_after_a_look() == EXCHANGE_COST_S
    assert vars(lines("capacity_unknown")[-1])["reason"] == "not ours"


# ── the purge ───────────────────────────────────────────────────────────────────────────────────


class Ledger:
    """A ledger with so many rows to purge, and the purge of those settled 30 days ago."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.refusal: MigratorError | None = None
        self.asked: list[datetime] = []
        self.events = Events()
        audit_log: Any = self.events
        ledger: Any = self
        self.task = PurgeTask(
            ledger,
            ledger,
            ledger,
            audit_log,
            after=timedelta(days=30),
            every=timedelta(hours=1),
        )

    def now(self) -> datetime:
        return NOW

    def verify(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def purge(self, *, before: datetime, at_most: int, goes_on: Callable[[], bool]) -> int:
        self.asked.append(before)
        done = 0
        while self.rows and done < at_most and (not done or goes_on()):
            self.rows -= 1
            done += 1
        return done


def test_so_many_at_a_time_are_purged_and_told(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger has it when there were any; the database's clock counts."""
    monkeypatch.setattr(tasks, "_MOST_PURGED", 2)
    ledger = Ledger(3)
    for rows, is_all in ((2, False), (1, True), (0, True)):
        ledger.task._purge()
        last = ledger.task.job.last
        assert last is not None
        assert (last.detail["rows"], last.detail["is_all"]) == (rows, is_all)
    assert ledger.asked == [NOW - timedelta(days=30)] * 3
    assert [note["rows"] for note in ledger.events.of("ledger_purged")] == [2, 1]
    assert len(lines("ledger_purged")) == 3


def test_a_ledger_that_is_refused_is_not_touched(lines: Lines) -> None:
    """It is told, and nothing else ends."""
    ledger = Ledger(1)
    ledger.refusal = LedgerCloned("a copy")
    ledger.task._purge()
    assert (ledger.rows, len(lines("ledger_purge_failed"))) == (1, 1)
    assert ledger.task.job.last is not None
    assert not ledger.task.job.last.is_fine


def test_a_purge_ends_between_two_transactions() -> None:
    """Whoever stops the daemon does not wait for a million rows."""
    ledger = Ledger(9)
    ledger.task.job.end()
    ledger.task._purge()
    assert ledger.rows == 8
