"""Tests of ``migrator.status.poller``: it reads in time, and says what it could not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, insert

from migrator.delays.depths import LevelDepths, build_level_depths
from migrator.delays.routing import PROBED, DelaysVersion
from migrator.errors import LedgerError, StoreUnavailable, TargetUnavailable
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.report import AuditEvent, EndpointProgress, Progress
from migrator.ledger.states import BatchState
from migrator.ledger.tables import build_tables, names_for
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.status import poller as module
from migrator.status.poller import StatusPoller
from migrator.status.remaining import Remaining
from migrator.stores.endpoints import Selection
from migrator.throttle.reasons import PAUSE
from tests.support.panel import some_remaining

SALES = EndpointName("Sales")
TAKEN_AT = datetime(2026, 3, 1, tzinfo=UTC)
"""40 s into a minute of the world's clock."""


class World:
    """A clock that only moves when told to; ledger, tables and broker; and who reads them."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.handed_over = 0
        self.asked: list[str] = []
        self.levels_take_s = 0.0
        self.store_error: StoreUnavailable | None = None
        self.broker_error: TargetUnavailable | None = None
        self.noted: list[Progress] = []
        self.settled: list[tuple[datetime, int]] = []
        self.settled_error: LedgerError | None = None
        self.note = self.noted.append
        world: Any = self
        self.poller = StatusPoller(
            queries=world,
            broker=world,
            version=DelaysVersion.V2,
            reader=world,
            finish=world,
            endpoints=[StoreEndpoint(name=SALES, source="s")],
            selection=lambda: Selection(cutoff=timedelta(0), horizon=None),
        )

    def monotonic(self) -> float:
        return self.now_s

    def progress(self) -> Progress:
        self.asked.append("progress")
        if self.store_error is not None:
            raise self.store_error
        rows = {str(BatchState.HANDED_OVER): self.handed_over}
        return Progress(
            taken_at=TAKEN_AT,
            endpoints=[EndpointProgress(endpoint=SALES, rows=rows)],
            quarantine=(),
            doubtful=(),
            oldest_open_age=None,
            lanes=(),
        )

    def latest_events(self, *, limit: int, without: Sequence[str]) -> Sequence[AuditEvent]:
        return []

    def settled_lately(self, since: datetime, *, at_most: int) -> list[tuple[datetime, int]]:
        if self.settled_error is not None:
            raise self.settled_error
        return [each for each in self.settled if each[0] >= since][:at_most]

    def level_depths(self, version: DelaysVersion) -> LevelDepths:
        self.asked.append("levels")
        self.now_s += self.levels_take_s
        if self.broker_error is not None:
            raise self.broker_error
        return build_level_depths(version, [])

    def read(self, _endpoint: StoreEndpoint, _selection: Selection) -> Remaining:
        self.asked.append("counts")
        return some_remaining(600)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One that was not looked at yet."""
    made = World()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(made.poller, "_seen", replace(made.poller._seen, at_s=made.now_s))
    return made


def test_what_is_not_cheap_is_read_for_those_who_look_only(world: World) -> None:
    """Before, and long after, it is said that nobody asked; asking itself reads nothing."""
    poller = world.poller
    poller.poll()
    poller.poll_details()
    seen = poller.ask()
    assert (world.asked, len(world.noted)) == (["progress"], 1)
    assert (seen.levels, set(seen.gaps)) == (None, {"levels", "rows in the tables"})
    poller.poll_details()
    assert world.asked == ["progress", "levels", "counts"]
    assert (poller.ask().counts[SALES].in_store, poller.ask().gaps) == (600, {})
    world.now_s += 1000
    poller.poll_details()
    assert world.asked == ["progress", "levels", "counts"]


def test_what_cannot_be_read_is_said_and_what_was_read_stays(world: World) -> None:
    """With its age; once it can be read again, nothing is said any more."""
    poller = world.poller
    poller.ask()
    poller.poll()
    poller.poll_details()
    world.now_s += 30
    world.store_error, world.broker_error = StoreUnavailable("no line"), TargetUnavailable("no MQ")
    poller.poll()
    poller.poll_details()
    seen = poller.ask()
    assert seen.gaps == {"progress": "no line", "levels": "no MQ"}
    assert (poller.store_error, world.now_s - seen.at_s) == ("no line", 30)
    assert seen.levels is not None
    assert [each.endpoint for each in seen.progress.endpoints] == [SALES]
    world.store_error = None
    world.now_s += 2
    poller.poll()
    assert poller.store_error is None


def test_what_is_slow_takes_a_small_share_of_the_time(world: World) -> None:
    """The rest goes on meanwhile."""
    world.levels_take_s = 2.0
    for _ in range(10):
        world.poller.ask()
        world.poller.poll_details()
        world.now_s += 5
    assert (world.asked.count("levels"), world.asked.count("counts")) == (2, 10)


def test_at_rest_one_of_fifteen_polls_reads(world: World) -> None:
    """While rows come and go, or somebody asks, or the ledger does not answer, each of them."""

    def reads(looks: int, *, moved: int = 0) -> int:
        before = world.asked.count("progress")
        for _ in range(looks):
            world.now_s += 2
            world.handed_over += moved
            world.poller.poll_if_due()
        return world.asked.count("progress") - before

    assert reads(2) == 2
    assert reads(30) == 2
    assert reads(24, moved=5) >= 9  # the first that is seen comes after a rest
    assert reads(9) <= 4
    world.poller.ask()
    assert reads(5) == 5
    world.now_s += 1000
    world.poller.poll_if_due()
    world.store_error = StoreUnavailable("no line")
    assert reads(9) >= 7


def test_the_rate_is_that_of_the_last_minute(world: World) -> None:
    """None as long as it is too soon to tell."""
    poller = world.poller
    poller.poll()
    assert poller.rate_per_s(SALES) is None
    for _ in range(10):
        world.now_s += 2
        world.handed_over += 20
        poller.poll()
    assert poller.rate_per_s(SALES) == 10.0
    for _ in range(40):
        world.now_s += 2
        poller.poll()
    assert poller.rate_per_s(SALES) == 0.0


def test_the_last_hour_begins_before_the_daemon_did(world: World) -> None:
    """By the ledger; from then on by what is seen, and a minute of both is whole."""
    world.handed_over = 100_000
    ago = ((59 * 60 + 50, 6), (61 * 60, 600), (39, 300), (41, 120), (42, 60), (-1, 9000))
    world.settled = [(TAKEN_AT - timedelta(seconds=s), rows) for s, rows in ago]
    world.poller.poll()
    assert world.poller.throughput() == [0.1, *[0.0] * 58, 3.0]
    world.now_s += 20
    world.handed_over += 600
    world.poller.poll()
    assert world.poller.throughput() == [*[0.0] * 58, 3.0, 15.0]


def test_what_the_ledger_does_not_tell_of_the_last_hour_is_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more batches than are looked at, or no answer."""
    monkeypatch.setattr(module, "_LATEST_BATCHES", 3)
    world.settled = [(TAKEN_AT - timedelta(minutes=n), 60) for n in range(1, 6)]
    world.poller.poll()
    assert world.poller.throughput() == [None] * 58 + [1.0, 1.0]
    again = World()
    again.settled_error = LedgerError("no answer")
    again.poller.poll()
    assert (again.poller.throughput(), again.poller.store_error) == ([None] * 60, None)


def test_neither_probes_nor_kept_pauses_are_among_the_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them the ledger has: a pause comes with its command, probes have a job."""
    engine = create_engine("sqlite://")
    tables = build_tables(names_for(engine))
    tables.metadata.create_all(engine)
    kinds = ["hold_began", PAUSE, "command", *[PROBED] * 60]
    noted = [{"at": TAKEN_AT, "kind": kind, "actor": "jo", "detail": "{}"} for kind in kinds]
    with engine.begin() as connection:
        connection.execute(insert(tables.event), noted)
    monkeypatch.setattr(world, "latest_events", LedgerQueries(engine, tables).latest_events)
    world.poller.poll()
    engine.dispose()
    assert [each.kind for each in world.poller.ask().events] == ["command", "hold_began"]
