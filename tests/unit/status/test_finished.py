"""Tests of ``migrator.status.remaining`` and ``migrator.status.finished``: when nothing is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.errors import StoreUnavailable
from migrator.ledger.report import EndpointProgress, Progress
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.status import finished as module
from migrator.status.finished import EndpointEnd, FinishWatch, end_document
from migrator.status.remaining import (
    Remaining,
    RemainingReader,
    SentBy,
    build_remaining,
    finished_text,
    is_finished,
    needs_attention,
    percentage,
)
from migrator.stores.endpoints import Selection
from migrator.stores.ports import TableCount
from tests.support.panel import NOW, SALES, some_remaining
from tests.unit.service.conftest import Lines

ENDPOINT = StoreEndpoint(name=SALES, source="s")


def ledger(**rows: int) -> EndpointProgress:
    """Return the rows of an endpoint by state."""
    return EndpointProgress(endpoint=SALES, rows=rows)


LEFT = replace(some_remaining(0, left=863, overdue=863), sent_by=SentBy.NOBODY)
MOVED = ledger(handed_over=57_833)


@pytest.mark.parametrize(
    ("progress", "remaining", "expected"),
    [
        (MOVED, LEFT, True),
        (None, some_remaining(0), True),
        (ledger(handed_over=5, quarantined=3, released=2, recalled=1), some_remaining(0), True),
        (MOVED, None, False),
        (MOVED, some_remaining(1), False),
        (ledger(handed_over=5, claimed=1), some_remaining(0), False),
        (ledger(handed_over=5, publishing=1), some_remaining(0), False),
        (ledger(handed_over=5, doubtful=1), some_remaining(0), False),
    ],
)
def test_finished_is_when_nothing_can_be_claimed_or_is_under_way(
    progress: EndpointProgress | None, remaining: Remaining | None, expected: bool
) -> None:
    """A doubtful batch is under way; what was not counted is not known to be nothing."""
    assert is_finished(progress, remaining) is expected


@pytest.mark.parametrize(
    ("remaining", "text", "attention"),
    [
        (some_remaining(0), "", False),
        (
            LEFT,
            " 863 are left to the timeout manager (cutoff 1m): all overdue, and nothing consumes "
            "`Sales.TimeoutsDispatcher`: run with `--cutoff 0s`",
            True,
        ),
        (
            replace(LEFT, overdue=0, left=1),
            " 1 is left to the timeout manager (cutoff 1m): none overdue, and nothing consumes "
            "`Sales.TimeoutsDispatcher`: run with `--cutoff 0s`",
            False,
        ),
        (
            replace(LEFT, sent_by=SentBy.TIMEOUT_MANAGER),
            " 863 are left to the timeout manager (cutoff 1m), which is running.",
            False,
        ),
        (
            replace(LEFT, sent_by=SentBy.MIGRATOR),
            " 863 are due too soon to be moved (cutoff 1m): migrator sends them.",
            False,
        ),
        (
            replace(LEFT, sent_by=SentBy.NOT_KNOWN, overdue=3),
            " 863 are left to the timeout manager (cutoff 1m): 3 overdue; whether it is running is "
            "not known.",
            False,
        ),
        (
            replace(some_remaining(0), later=12),
            " 12 stay in the store: due after the horizon, or without a due time.",
            False,
        ),
    ],
)
def test_what_is_left_is_told_with_who_sends_it(
    remaining: Remaining, text: str, attention: bool
) -> None:
    """Somebody has to look while rows are overdue that nobody sends, or some are in quarantine."""
    assert finished_text(MOVED, remaining) == f"Done: 57 833 moved.{text}"
    assert needs_attention(MOVED, remaining) is attention
    aside = ledger(handed_over=5, quarantined=2)
    assert finished_text(aside, remaining) == f"Done: 5 moved, 2 in quarantine.{text}"
    assert needs_attention(aside, remaining)


@pytest.mark.parametrize(
    ("progress", "remaining", "expected"),
    [
        (None, None, None),
        (None, some_remaining(0, left=5), 100.0),
        (MOVED, LEFT, 100.0),
        (ledger(handed_over=1), some_remaining(2), 33.3),
        (ledger(handed_over=10**6), some_remaining(1), 99.9),
        (ledger(handed_over=9, quarantined=1), some_remaining(0), 90.0),
    ],
)
def test_all_is_moved_when_it_is_a_hundred_percent(
    progress: EndpointProgress | None, remaining: Remaining | None, expected: float | None
) -> None:
    """And only then; rows that are left to others do not count."""
    assert percentage(progress, remaining) == expected


@pytest.mark.parametrize(
    ("cutoff", "expected"),
    [
        (timedelta(minutes=1), (2, 5, 3, 1)),
        (timedelta(0), (7, 0, 0, 1)),
    ],
)
def test_each_row_of_a_table_is_counted_once(
    cutoff: timedelta, expected: tuple[int, int, int, int]
) -> None:
    """To be moved, left, or later; with a cutoff of 0s none is left."""
    counted = TableCount(
        rows=8, is_all=True, due=[("overdue", 3), ("up to 1h", 4), ("later", 1)], until=(3, 5, 7)
    )
    found = build_remaining(counted, Selection(cutoff=cutoff, horizon=None), NOW)
    assert (found.to_move, found.left, found.overdue, found.later) == expected
    assert found.to_move + found.left + found.later == found.in_store


@pytest.mark.parametrize("has_any", [True, False])
def test_of_a_table_too_large_a_claim_decides(has_any: bool) -> None:
    """An estimate never says that nothing is left, nor that something is."""
    counted = TableCount(rows=10**6, is_all=False, due=[("later", 200)], until=(0, 0, 0))
    selection = Selection(cutoff=timedelta(minutes=1), horizon=timedelta(days=1))
    found = build_remaining(counted, selection, NOW, has_any_to_move=has_any)
    assert is_finished(MOVED, found) is not has_any


class World:
    """A clock, a ledger and a table, and who watches them."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.rows: dict[str, int] = {}
        self.left = some_remaining(0)
        self.counts = 0
        self.error: StoreUnavailable | None = None
        self.told: list[Sequence[EndpointEnd]] = []
        world: Any = self
        self.watch = FinishWatch(
            world,
            [ENDPOINT],
            selection=lambda: Selection(cutoff=timedelta(minutes=1), horizon=None),
            queries=world,
        )

    def monotonic(self) -> float:
        return self.now_s

    def read(self, _endpoint: StoreEndpoint, _selection: Selection) -> Remaining:
        self.counts += 1
        if self.error:
            raise self.error
        return self.left

    def progress(self) -> Progress:
        endpoints = [ledger(**self.rows)] if self.rows else []
        return Progress(
            taken_at=NOW,
            endpoints=endpoints,
            quarantine=(),
            doubtful=(),
            oldest_open_age=None,
            lanes=(),
        )

    def check(self) -> None:
        if ends := self.watch.check():
            self.told.append(ends)

    def goes_on(self, seconds: float, **rows: int) -> bool:
        """Have the ledger be so for so long; return whether the endpoint is finished."""
        self.rows = rows
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 1
            self.watch.note(self.progress())
            self.check()
        return self.watch.is_finished(SALES, as_of=NOW)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """One in which nothing was looked at yet."""
    made = World()
    monkeypatch.setattr(module, "time", made)
    return made


def test_an_endpoint_is_finished_once_it_is_quiet_and_until_rows_come(
    world: World, lines: Lines
) -> None:
    """It is told once, with what is left; again after more rows came and went."""
    world.left = LEFT
    assert not world.goes_on(20, handed_over=10, claimed=10)
    assert not world.goes_on(module.QUIET_S - 2, handed_over=20)
    assert world.goes_on(200, handed_over=20)
    assert 2 <= world.counts <= 10
    (line,) = lines("endpoint_finished")
    assert vars(line)["text"] == finished_text(ledger(handed_over=20), LEFT)
    assert (line.levelname, vars(line)["overdue"]) == ("WARNING", 863)
    (end,) = world.told[0]
    assert json.loads(json.dumps(end_document(end)))["sent_by"] == "nobody"
    assert not world.goes_on(1, handed_over=20, claimed=5)
    assert len(lines("endpoint_not_finished")) == 1
    world.left = some_remaining(0)
    assert world.goes_on(20, handed_over=25)
    assert [line.levelname for line in lines("endpoint_finished")] == ["WARNING", "INFO"]
    assert len(world.told) == 2


def test_hooks_are_told_of_what_moved_between_two_polls(world: World) -> None:
    """The watch reads the ledger itself, and may see it first."""
    world.watch.note(world.progress())
    world.rows = {"handed_over": 30}
    world.check()
    assert [end.counts.handed_over for end in world.told[0]] == [30]


def test_it_is_not_finished_beside_numbers_from_before(world: World) -> None:
    """They would say that nothing was moved."""
    assert world.goes_on(60, handed_over=50)
    assert not world.watch.is_finished(SALES, as_of=NOW - timedelta(seconds=1))


def test_what_only_looks_quiet_is_not_finished(world: World) -> None:
    """Rows keep coming, or are in flight, or are in the table, or it cannot be counted."""
    for number in range(40):
        assert not world.goes_on(module.QUIET_S - 1, handed_over=number)
    assert not world.goes_on(60, handed_over=40, staging=1)
    world.left = some_remaining(5)
    assert not world.goes_on(60, handed_over=50)
    world.left, world.error = some_remaining(0), StoreUnavailable("no line")
    assert not world.goes_on(60, handed_over=50)
    world.error = None
    assert world.goes_on(60, handed_over=50)
    world.left = some_remaining(3)  # they wait: a pause, a destination
    assert not world.goes_on(60, handed_over=50)


def test_all_that_was_ever_moved_may_come_between_two_looks(world: World) -> None:
    """An endpoint that the ledger did not know has moved rows as well."""
    world.goes_on(2)
    assert world.goes_on(60, handed_over=30)
    assert len(world.told) == 1


def test_a_restart_with_nothing_to_do_is_told_to_no_hook(world: World) -> None:
    """The log has it."""
    assert world.goes_on(60, handed_over=50)
    assert world.told == []


@pytest.mark.parametrize(
    ("progress", "remaining", "text"),
    [
        (None, None, "0 moved."),
        (ledger(handed_over=1_200, dispatched=3), None, "1 200 moved, 3 sent when due."),
        (MOVED, some_remaining(1_500), "57 833 moved; 1 500 still to move."),
        (ledger(handed_over=5, doubtful=988), some_remaining(0), "5 moved; 988 doubtful."),
        (
            ledger(handed_over=5, claimed=2, quarantined=1),
            replace(LEFT, to_move=7),
            "5 moved; 2 in flight, 1 in quarantine, 7 still to move. 863 are left to the timeout "
            "manager (cutoff 1m): all overdue, and nothing consumes `Sales.TimeoutsDispatcher`: "
            "run with `--cutoff 0s`",
        ),
        (MOVED, LEFT, finished_text(MOVED, LEFT)),
    ],
    ids=["nothing known", "not moved here", "to move", "doubtful", "all of it", "finished"],
)
def test_an_end_is_told_in_sentences(
    progress: EndpointProgress | None, remaining: Remaining | None, text: str
) -> None:
    """What is open as well; what is left to others is told whether or not it is finished."""
    end = EndpointEnd(
        endpoint=SALES,
        progress=progress,
        remaining=remaining,
        is_finished=is_finished(progress, remaining),
    )
    assert (end.text, end_document(end)["text"]) == (text, text)


def test_at_the_end_of_a_run_the_table_is_counted_before_the_ledger(world: World) -> None:
    """What another process claims in between is under way, not gone; else it would be `Done`."""
    world.left, count = some_remaining(0), world.read

    def read(_endpoint: StoreEndpoint, _selection: Selection) -> Remaining:
        world.rows = {"handed_over": 5, "claimed": 4}
        return count(_endpoint, _selection)

    world.read = read  # type: ignore[method-assign]
    dispatched = StoreEndpoint(name=EndpointName("Shop"), source="t")
    _, (sales, shop) = world.watch.at_end([ENDPOINT, dispatched], {})
    assert (sales.is_finished, sales.text) == (False, "5 moved; 4 in flight.")
    assert (shop.is_finished, shop.remaining) == (False, None)
    world.error = StoreUnavailable("no line")
    assert [end.remaining for end in world.watch.at_end([ENDPOINT], {})[1]] == [None]


def test_who_sends_what_is_left_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each look, and not where nothing is left."""
    asked: list[object] = []

    class Store:
        """Has a row that is overdue."""

        left = 1

        def count(self, _source: str, _now: object, *, limits: object) -> TableCount:
            due = [("overdue", self.left)] if self.left else []
            return TableCount(rows=self.left, is_all=True, due=due, until=(self.left,) * 3)

    store: Any = Store()
    clock: Any = type("Clock", (), {"now": staticmethod(lambda: NOW)})
    unused: Any = None
    reader = RemainingReader(
        store=store,
        claims=unused,
        clock=clock,
        broker=None,
        modes={},
        input_queues={},
        sends_near_due=False,
    )

    def ask(name: object) -> tuple[SentBy, str]:
        asked.append(name)
        return SentBy.NOBODY, "q"

    monkeypatch.setattr(reader, "_ask_for_sender", ask)
    selection = Selection(cutoff=timedelta(minutes=1), horizon=None)
    assert [reader.read(ENDPOINT, selection).unattended for _ in range(3)] == [1, 1, 1]
    store.left = 0
    assert reader.read(ENDPOINT, selection).sent_by is None
    assert len(asked) == 1
