"""Tests of ``migrator.service.control``: what an operator says is done, and noted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from migrator.config import HandOver
from migrator.errors import LedgerError, StoreUnavailable
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import AuditEvent, QuarantinedRow, QuarantineFilter
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.service import control
from migrator.service.audit_log import AuditLog
from migrator.service.control import Control, Pauses, QuarantineService, Served
from migrator.service.runtime_settings import RuntimeSettings
from migrator.service.throttle import Throttle
from migrator.service.worker import Stop, WorkerPool
from migrator.web.control import (
    Adjust,
    Answer,
    Drain,
    Pause,
    Resume,
    Retry,
    RuntimeSetting,
    StopNow,
)

Lines = Callable[[str], list[logging.LogRecord]]
SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")


class Lanes:
    """A pool that only counts."""

    def __init__(self) -> None:
        self.wanted: list[int] = []
        self.woken = 0
        self.moves = True
        self.takes = True

    def set_lanes(self, wanted: int) -> bool:
        self.wanted.append(wanted)
        return self.takes

    def wake(self) -> None:
        self.woken += 1


class Ledger:
    """An audit trail in memory."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self.pauses: list[dict[str, Any]] = []
        self.is_there = threading.Event()
        self.is_there.set()

    def record(self, kind: str, *, detail: Mapping[str, object], batch: object) -> None:
        assert batch is None
        if not self.is_there.is_set():
            raise StoreUnavailable("away")
        (self.found if kind == "command" else self.pauses).append(dict(detail))


class Bench:
    """One control and everything it acts on."""

    def __init__(self, served: Sequence[Served]) -> None:
        self.throttle, self.stop, self.lanes = Throttle(), Stop(), Lanes()
        self.runtime = RuntimeSettings(HandOver())
        self.ledger = Ledger()
        self.audit_log = AuditLog(self.ledger)  # type: ignore[arg-type]  # only what is asked
        self.audit_log.start()
        workers: WorkerPool = self.lanes  # type: ignore[assignment]  # only what is asked
        self.control = Control(
            throttle=self.throttle,
            runtime=self.runtime,
            workers=workers,
            stop=self.stop,
            audit_log=self.audit_log,
            served=served,
            pauses=Pauses(self.throttle, self.audit_log, [s.name for s in served if s.moves]),
            retry=lambda _command: Answer(is_done=True, text="put back"),
        )

    def give(self, command: Any) -> Answer:
        return self.control.execute(command, who="Jo")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Of two endpoints, one of which cannot wait."""
    made = Bench(
        [
            Served(name=SALES, mode="migrate", moves=True),
            Served(name=SHOP, mode="forward", moves=True),
        ]
    )
    yield made
    made.audit_log.end()


def test_a_pause_holds_with_its_reason_and_who_gave_it(bench: Bench) -> None:
    """Resuming lifts it, and says what else there is to wait for."""
    answer = bench.give(Pause(endpoint=SALES, reason="rebuild"))
    assert answer == Answer(is_done=True, text="Sales is paused; what is claimed is finished")
    (hold,) = bench.throttle.reasons()
    assert (hold.signal, hold.endpoint, hold.observed) == (Signal.PAUSED, SALES, "rebuild (Jo)")
    again = bench.give(Pause(endpoint=SALES, reason="more of it"))
    assert "the reason is new" in again.text
    veto = PauseReason(
        signal=Signal.VETO, endpoint=None, observed="no", limit="", since=datetime.now(UTC)
    )
    bench.throttle.pause(veto)
    assert bench.give(Resume(endpoint=SALES)).text == "Sales is resumed; it still waits: veto: no"
    assert bench.throttle.reasons() == [veto]


def test_a_pause_of_all_says_what_goes_on(bench: Bench) -> None:
    """Resuming all lifts those of single endpoints as well."""
    answer = bench.give(Pause(endpoint=None, reason="x"))
    assert answer.text.endswith("finished; the dispatchers of Shop go on")
    bench.give(Pause(endpoint=SALES, reason="x"))
    assert bench.give(Resume(endpoint=None)) == Answer(is_done=True, text="hand-over is resumed")
    assert bench.give(Resume(endpoint=None)).text == "hand-over was not paused"
    assert bench.throttle.reasons() == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Pause(endpoint=SHOP, reason="x"), "mode forward: its timeouts would be late"),
        (Pause(endpoint=EndpointName("No"), reason="x"), "works on: Sales, Shop"),
        (Resume(endpoint=EndpointName("No")), "works on: Sales, Shop"),
        (
            Adjust(knob=RuntimeSetting.LANES, value="0"),
            "lanes cannot be '0': input should be greater",
        ),
        (
            Adjust(knob=RuntimeSetting.CUTOFF, value="60"),
            "cutoff cannot be '60': must be a duration",
        ),
        (
            Adjust(knob=RuntimeSetting.CUTOFF, value="4000000d"),
            "cutoff cannot be '4000000d': must be a dur",
        ),
        (Adjust(knob=RuntimeSetting.BATCH_SIZE, value="many"), "batch_size cannot be 'many'"),
        (Adjust(knob=RuntimeSetting.RATE_LIMIT, value="-1"), "rate_limit cannot be '-1'"),
    ],
)
def test_what_cannot_be_done_changes_nothing(bench: Bench, command: Any, why: str) -> None:
    """It says why, and that is noted as well."""
    answer = bench.give(command)
    assert not answer.is_done
    assert why in answer.text
    assert bench.throttle.reasons() == []
    assert bench.runtime.now == HandOver()
    assert [each["is_done"] for each in bench.ledger.found] == [False]


def test_the_ledger_knows_of_each_endpoint_whether_it_is_paused(bench: Bench) -> None:
    """A resumed one that all others still wait with is paused; the next start holds the same."""
    bench.give(Pause(endpoint=SALES, reason="x"))
    bench.give(Pause(endpoint=None, reason="y"))
    bench.give(Resume(endpoint=SALES))
    said = [(each["endpoint"], each["is_paused"]) for each in bench.ledger.pauses]
    assert said == [("Sales", True), ("Sales", True), ("Shop", True), ("Sales", True)]
    last = {each["endpoint"]: each for each in bench.ledger.pauses}
    assert last["Sales"]["observed"] == "y (Jo)"
    found = restarted(last)
    assert [(hold.endpoint, hold.observed) for hold in found] == [
        ("Sales", "y (Jo)"),
        ("Shop", "y (Jo)"),
    ]
    assert found[0].since == bench.throttle.reasons()[0].since
    bench.give(Resume(endpoint=None))
    assert restarted({each["endpoint"]: each for each in bench.ledger.pauses}) == []


def restarted(events: Mapping[str, Mapping[str, Any]]) -> Sequence[PauseReason]:
    """Return what a new process holds, when these are the latest events."""
    throttle = Throttle()
    trail: Any = None
    names = [SALES, SHOP]
    at = datetime.now(UTC)

    def latest(kind: str, wanted: Collection[EndpointName]) -> Mapping[EndpointName, AuditEvent]:
        assert (kind, set(wanted)) == ("pause", set(names))
        return {
            EndpointName(name): AuditEvent(
                id=1, at=at, kind=kind, batch=None, endpoint=None, actor="x", detail=detail
            )
            for name, detail in events.items()
        }

    Pauses(throttle, trail, names).restore(latest)
    return throttle.reasons()


def test_without_hand_over_there_is_nothing_to_pause(bench: Bench) -> None:
    """Dispatchers cannot wait."""
    bench.lanes.moves = False
    assert not bench.give(Pause(endpoint=None, reason="x")).is_done


def test_knobs_are_turned_while_it_runs(bench: Bench) -> None:
    """Lanes ask for them before each batch; the settings can be made to count again."""
    for knob, value in (("batch_size", "500"), ("rate_limit", "200"), ("cutoff", "5m")):
        assert bench.give(Adjust(knob=RuntimeSetting(knob), value=value)).is_done
    pace = bench.runtime.pace()
    assert (pace.batch_rows, pace.rate_limit_per_s) == (200, 200)
    assert bench.runtime.selection().cutoff.total_seconds() == 300
    answer = bench.give(Adjust(knob=RuntimeSetting.LANES, value="3"))
    assert answer.text == "lanes is 3 (was 1) until the settings are read again"
    assert bench.lanes.wanted == [3]
    assert bench.lanes.woken == 4
    assert dict(bench.runtime.texts()) == {
        "batch_size": "500",
        "rate_limit": "200",
        "lanes": "3",
        "cutoff": "5m",
    }
    bench.runtime.reset(HandOver())
    assert bench.runtime.texts()[RuntimeSetting.RATE_LIMIT] == "0"


@pytest.mark.parametrize(("command", "at_once"), [(Drain(), False), (StopNow(), True)])
def test_an_end_is_noted_before_it_begins(bench: Bench, command: Any, at_once: bool) -> None:
    """Then nothing more is claimed."""
    assert bench.give(command).is_done
    assert bench.stop.draining.is_set()
    assert bench.stop.at_once.is_set() is at_once
    (found,) = bench.ledger.found
    assert (found["who"], found["is_done"]) == ("Jo", True)
    assert found["answer"]
    assert datetime.fromisoformat(found["asked_at"]).tzinfo is not None


def test_a_ledger_that_is_away_keeps_nobody_from_obeying(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The answer says so, the log has it at once, and the ledger gets it later."""
    monkeypatch.setattr("migrator.service.control._LEDGER_PATIENCE_S", 0.05)
    monkeypatch.setattr("migrator.service.audit_log._AGAIN_S", 0.02)
    bench.ledger.is_there.clear()
    answer = bench.give(Pause(endpoint=SALES, reason="x"))
    assert answer.is_done
    assert answer.text.endswith("the ledger has no note of it yet")
    assert bench.throttle.reason_for(SALES) is not None
    assert len(lines("command_given")) == 1
    bench.ledger.is_there.set()
    bench.audit_log.end()
    assert [each["command"] for each in bench.ledger.found] == ["pause"]


# ── the quarantine ───────────────────────────────────────────────────────────────────────────────


ALL = Retry(endpoint=None, reason=None, timeout_id=None)


def row(key: int) -> QuarantinedRow:
    """Return a row of the quarantine."""
    return QuarantinedRow(
        key=key,
        endpoint=SALES,
        source="SalesTimeoutData",
        timeout_id=TimeoutId(f"t{key}"),
        batch=BatchId(1),
        destination="Billing",
        due_at=datetime(2031, 1, 1, tzinfo=UTC),
        body_bytes=10,
        reason="destination-unbound",
        detail="",
    )


class World:
    """A ledger that only remembers, and what is heard of it."""

    def __init__(self) -> None:
        self.asked: list[QuarantineFilter] = []
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.noted: list[tuple[str, Mapping[str, object]]] = []
        self.is_noted = threading.Event()
        self.woken = 0
        self.quarantine = self.claims = self.plan = self
        self.mode = Mode.STAGED
        app: Any = self
        audit_log: Any = self
        self.service = QuarantineService(app, audit_log, wake=self._wake)

    def page(self, which: QuarantineFilter, *, after: int, limit: int) -> Sequence[QuarantinedRow]:
        if self.error is not None:
            raise self.error
        self.asked.append(which)
        return [row(key) for key in range(1, 6) if key > after][:limit]

    def release_quarantined(self, _endpoint: None, which: QuarantineFilter) -> int:
        assert which.mode is Mode.DISPATCH
        return 2

    def retry(self, which: QuarantineFilter, *, mode: Mode) -> int:
        assert mode is self.mode
        self.asked.append(which)
        self.goes_on.wait(30)
        if self.error is not None:
            raise self.error
        return 3

    def note(self, kind: str, detail: Mapping[str, object]) -> None:
        self.noted.append((kind, detail))
        self.is_noted.set()

    def _wake(self) -> None:
        self.woken += 1


def test_pages_say_whether_more_follow() -> None:
    """Each goes on after the last key of the one before."""
    world, which = World(), QuarantineFilter(endpoint=SALES)
    first = world.service.page(which, after=0, limit=3)
    assert ([each.key for each in first.rows], first.has_more) == ([1, 2, 3], True)
    last = world.service.page(which, after=3, limit=3)
    assert ([each.key for each in last.rows], last.has_more) == ([4, 5], False)
    assert world.asked == [which, which]


def test_a_ledger_that_does_not_answer_is_told() -> None:
    """Instead of an empty page."""
    world = World()
    world.error = LedgerError("reading the quarantine: gone")
    assert world.service.page(QuarantineFilter(), after=0, limit=3).trouble == str(world.error)


def test_rows_are_tried_again() -> None:
    """Lanes look for them at once, and the audit trail says how many they were."""
    world = World()
    wish = Retry(endpoint=SALES, reason="destination-unbound", timeout_id=TimeoutId("t1"))
    found = world.service.retry(wish)
    assert found == Answer(is_done=True, text="5 rows of the quarantine tried again")
    assert world.is_noted.wait(30)
    ((kind, detail),) = world.noted
    assert kind == "quarantine_retried"
    assert detail == {"endpoint": SALES, "reason": "destination-unbound", "id": "t1", "rows": 5}
    assert world.woken == 1


def test_many_rows_keep_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is told so; a second wish is refused until the first is over."""
    monkeypatch.setattr(control, "_RETRY_PATIENCE_S", 0.05)
    world = World()
    world.goes_on.clear()
    assert "being tried again" in world.service.retry(ALL).text
    second = world.service.retry(ALL)
    assert (second.is_done, "nothing was begun" in second.text) == (False, True)
    world.goes_on.set()
    assert world.is_noted.wait(30)
    assert world.asked == [QuarantineFilter()]


@pytest.mark.parametrize("error", [LedgerError("gone"), RuntimeError("a bug")])
def test_what_fails_is_told_and_the_next_wish_is_heard(error: Exception) -> None:
    """Rows are moved in steps, so some may have been tried again."""
    world = World()
    world.error = error
    assert not world.service.retry(ALL).is_done
    world.error = None
    assert world.service.retry(ALL).is_done
    assert world.is_noted.wait(30)
    assert len(world.noted) == 1
