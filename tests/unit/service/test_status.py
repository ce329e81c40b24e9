"""Tests of ``migrator.service.status``: it reads in time, and says what it could not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from migrator.delays.depths import LevelDepths, build_level_depths
from migrator.delays.routing import DelaysVersion
from migrator.errors import StoreUnavailable, TargetUnavailable
from migrator.ledger.report import AuditEvent, EndpointProgress, Progress
from migrator.ledger.states import BatchState
from migrator.nservicebus.timeouts import EndpointName
from migrator.service import status as module
from migrator.service.status import StatusPoller, StatusQueries
from migrator.stores.ports import TableCount

SALES = EndpointName("Sales")


class Clock:
    """A monotonic clock that only moves when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Reads(StatusQueries):
    """Ledger, tables and broker."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.handed_over = 0
        self.asked: list[str] = []
        self.ladder_takes_s = 0.0
        self.store: StoreUnavailable | None = None
        self.broker: TargetUnavailable | None = None

    def progress(self) -> Progress:
        self.asked.append("progress")
        if self.store is not None:
            raise self.store
        rows = {str(BatchState.HANDED_OVER): self.handed_over}
        return Progress(
            taken_at=datetime(2026, 3, 1, tzinfo=UTC),
            endpoints=[EndpointProgress(endpoint=SALES, rows=rows)],
            quarantine=(),
            doubtful=(),
            oldest_open_age=None,
            lanes=(),
        )

    def events(self, limit: int) -> Sequence[AuditEvent]:
        return []

    def ladder(self) -> LevelDepths:
        self.asked.append("ladder")
        self.clock.now_s += self.ladder_takes_s
        if self.broker is not None:
            raise self.broker
        return build_level_depths(DelaysVersion.V2, [])

    def counts(self, now: datetime) -> Mapping[EndpointName, TableCount]:
        self.asked.append("counts")
        return {SALES: TableCount(rows=600, is_all=True, due=())}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The poller's."""
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def reads(clock: Clock) -> Reads:
    """What is read."""
    return Reads(clock)


def poller_of(reads: Reads) -> StatusPoller:
    """Return a poller whose own threads read nothing."""
    poller = StatusPoller(reads)
    poller.details_task.end()
    return poller


def test_what_is_not_cheap_is_read_for_those_who_look_only(clock: Clock, reads: Reads) -> None:
    """Before, and long after, it is said that nobody asked; asking itself reads nothing."""
    poller = poller_of(reads)
    poller.poll()
    poller.poll_details()
    assert reads.asked == ["progress"]
    seen = poller.ask()
    assert reads.asked == ["progress"]
    assert seen.ladder is None
    assert set(seen.gaps) == {"ladder", "rows in the tables"}
    poller.poll_details()
    assert reads.asked == ["progress", "ladder", "counts"]
    assert poller.ask().counts[SALES].rows == 600
    assert poller.ask().gaps == {}
    clock.now_s += 1000
    poller.poll_details()
    assert reads.asked == ["progress", "ladder", "counts"]


def test_what_cannot_be_read_is_said_and_what_was_read_stays(clock: Clock, reads: Reads) -> None:
    """With its age; once it can be read again, nothing is said any more."""
    poller = poller_of(reads)
    poller.ask()
    poller.poll()
    poller.poll_details()
    clock.now_s += 30
    reads.store, reads.broker = StoreUnavailable("no line"), TargetUnavailable("no broker")
    poller.poll()
    poller.poll_details()
    seen = poller.ask()
    assert seen.gaps == {"progress": "no line", "ladder": "no broker"}
    assert poller.store_error == "no line"
    assert clock.now_s - seen.at_s == 30
    assert seen.ladder is not None
    assert [each.endpoint for each in seen.progress.endpoints] == [SALES]
    reads.store = None
    clock.now_s += 2
    poller.poll()
    assert poller.store_error is None


def test_what_is_slow_takes_a_small_share_of_the_time(clock: Clock, reads: Reads) -> None:
    """The rest goes on meanwhile."""
    poller = poller_of(reads)
    reads.ladder_takes_s = 2.0
    for _ in range(10):
        poller.ask()
        poller.poll_details()
        clock.now_s += 5
    assert reads.asked.count("ladder") == 2
    assert reads.asked.count("counts") == 10


def test_the_rate_is_that_of_the_last_minute(clock: Clock, reads: Reads) -> None:
    """None as long as it is too soon to tell."""
    poller = poller_of(reads)
    poller.poll()
    assert poller.rate_per_s(SALES) is None
    for _ in range(10):
        clock.now_s += 2
        reads.handed_over += 20
        poller.poll()
    assert poller.rate_per_s(SALES) == 10.0
    for _ in range(40):
        clock.now_s += 2
        poller.poll()
    assert poller.rate_per_s(SALES) == 0.0
