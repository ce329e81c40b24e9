"""Tests of ``migrator.service.control``: what an operator says is done, and noted."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.config import HandOver
from migrator.errors import LedgerError
from migrator.ledger.report import AuditEvent, QuarantineFilter
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import EndpointName, TimeoutId
from migrator.service import audit_log, control
from migrator.service.audit_log import AuditLog
from migrator.service.control import Control, ServedEndpoint
from migrator.service.runtime_settings import RuntimeSettings
from migrator.service.worker import Stop
from migrator.throttle.reasons import LASTING, Signal, Throttle
from migrator.web.control import (
    Adjust,
    Answer,
    Discard,
    Drain,
    Pause,
    Resume,
    Retry,
    RuntimeSetting,
    StopNow,
)
from tests.unit.service.conftest import Events, Lines, WaitFor

SALES, SHOP, NO = EndpointName("Sales"), EndpointName("Shop"), EndpointName("No")
ALL = Retry(endpoint=None, reason=None, id=None)


class Lanes:
    """A pool that only counts."""

    def __init__(self) -> None:
        self.wanted: list[int] = []
        self.woken = 0
        self.moves = True

    def set_lanes(self, wanted: int) -> bool:
        self.wanted.append(wanted)
        return True

    def wake(self) -> None:
        self.woken += 1


class Quarantine:
    """Rows that are tried again when the test says so."""

    def __init__(self) -> None:
        self.asked: list[QuarantineFilter] = []
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()

    def release_quarantined(self, _endpoint: None, which: QuarantineFilter) -> int:
        assert which.mode is Mode.DISPATCH
        return 2

    def discard(self, which: QuarantineFilter) -> int:
        return self.retry(which, mode=Mode.STAGED)

    def retry(self, which: QuarantineFilter, *, mode: Mode) -> int:
        assert mode is Mode.STAGED
        self.asked.append(which)
        self.goes_on.wait(30)
        if self.error is not None:
            raise self.error
        return 3


class Bench:
    """One control and everything it acts on; of two endpoints, one cannot wait."""

    def __init__(self) -> None:
        self.throttle, self.stop, self.lanes = Throttle(), Stop(), Lanes()
        self.runtime, self.events = RuntimeSettings(HandOver()), Events()
        self.quarantine = Quarantine()
        self.audit_log = AuditLog(self.events)  # type: ignore[arg-type]  # only what is asked
        self.audit_log.start()
        self.control = self.new_control(self.throttle)

    def new_control(self, throttle: Throttle) -> Control:
        ledger: Any = self
        quarantine: Any = self.quarantine
        clock: Any = SimpleNamespace(doubt=None)
        return Control(
            clock=clock,
            queries=ledger,
            claims=quarantine,
            quarantine=quarantine,
            mode=Mode.STAGED,
            served={
                SALES: ServedEndpoint(name=SALES, mode="migrate", moves=True),
                SHOP: ServedEndpoint(name=SHOP, mode="forward", moves=True),
            },
            throttle=throttle,
            runtime=self.runtime,
            workers=self.lanes,  # type: ignore[arg-type]  # only what is asked
            stop=self.stop,
            audit_log=self.audit_log,
        )

    def latest_event_of_each(
        self, kind: str, wanted: Collection[EndpointName]
    ) -> Mapping[EndpointName, AuditEvent]:
        assert (kind, set(wanted)) == ("pause", {SALES, SHOP})
        at = datetime.now(UTC)
        return {
            EndpointName(detail["endpoint"]): AuditEvent(
                id=1, at=at, kind=kind, batch=None, endpoint=None, actor="x", detail=detail
            )
            for detail in self.events.of("pause")
        }

    def after_a_restart(self) -> list[tuple[EndpointName | None, str, datetime]]:
        """Return what a new process holds."""
        throttle = Throttle()
        self.new_control(throttle).restore_pauses(*LASTING)
        return [(each.endpoint, each.observed, each.since) for each in throttle.reasons()]

    def give(self, command: Any) -> Answer:
        return self.control.execute(command, who="Jo")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One that nobody has told anything."""
    made = Bench()
    yield made
    made.audit_log.end()


def test_what_else_there_is_to_wait_for_is_told(bench: Bench) -> None:
    """What goes on although all is paused, a new reason, and what a resume does not lift."""
    assert bench.give(Pause(endpoint=None, reason="x")).text.endswith(
        "is finished; the dispatchers of Shop continue"
    )
    assert "the reason is replaced" in bench.give(Pause(endpoint=None, reason="rebuild")).text
    assert bench.throttle.reasons()[0].observed == "rebuild (Jo)"
    bench.throttle.pause(Signal.HTTP, SALES, "no")
    text = bench.give(Resume(endpoint=SALES)).text
    assert text == "Sales was not paused; it still waits: paused: rebuild (Jo)"
    bench.give(Pause(endpoint=SALES, reason="x"))
    assert bench.give(Resume(endpoint=None)).text == "hand-over is resumed"
    assert [each.signal for each in bench.throttle.reasons()] == [Signal.HTTP]
    bench.lanes.moves = False
    assert not bench.give(Pause(endpoint=None, reason="x")).is_done


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Pause(endpoint=SHOP, reason="x"), "mode forward: its timeouts would be late"),
        (Pause(endpoint=NO, reason="x"), "works on: Sales, Shop"),
        (Resume(endpoint=NO), "works on: Sales, Shop"),
        (
            Adjust(setting=RuntimeSetting.LANES, value="0"),
            "lanes cannot be '0': input should be gre",
        ),
        (
            Adjust(setting=RuntimeSetting.CUTOFF, value="60"),
            "cutoff cannot be '60': must be a durati",
        ),
    ],
)
def test_what_cannot_be_done_changes_nothing(bench: Bench, command: Any, why: str) -> None:
    """It says why, and that is noted as well."""
    answer = bench.give(command)
    assert (answer.is_done, why in answer.text) == (False, True)
    assert (bench.throttle.reasons(), bench.runtime.now) == ([], HandOver())
    assert [each["is_done"] for each in bench.events.of("command")] == [False]


def test_the_ledger_knows_of_each_endpoint_whether_it_is_paused(bench: Bench) -> None:
    """A resumed one that all others still wait with is paused; the next start holds the same."""
    bench.give(Pause(endpoint=SALES, reason="x"))
    bench.give(Pause(endpoint=None, reason="y"))
    bench.give(Resume(endpoint=SALES))
    said = [(each["endpoint"], each["is_paused"]) for each in bench.events.of("pause")]
    assert said == [("Sales", True), ("Sales", True), ("Shop", True), ("Sales", True)]
    since = bench.throttle.reasons()[0].since
    assert bench.after_a_restart() == [(SALES, "y (Jo)", since), (SHOP, "y (Jo)", since)]
    bench.give(Resume(endpoint=None))
    assert bench.after_a_restart() == []


def test_settings_are_changed_while_it_runs(bench: Bench) -> None:
    """Lanes ask for them before each batch."""
    for setting, value in (("batch_size", "500"), ("rate_limit", "200"), ("cutoff", "5m")):
        assert bench.give(Adjust(setting=RuntimeSetting(setting), value=value)).is_done
    pace = bench.runtime.pace()
    assert (pace.batch_rows, pace.rate_limit_per_s) == (200, 200)
    assert bench.runtime.selection().cutoff.total_seconds() == 300
    answer = bench.give(Adjust(setting=RuntimeSetting.LANES, value="3"))
    assert answer.text == "lanes is 3 (was 1) until the settings are read again"
    assert (bench.lanes.wanted, bench.lanes.woken) == ([3], 4)
    assert bench.runtime.texts() == {
        "batch_size": "500",
        "pace": "levels",
        "rate_limit": "200",
        "lanes": "3",
        "cutoff": "5m",
    }


@pytest.mark.parametrize(("command", "at_once"), [(Drain(), False), (StopNow(), True)])
def test_an_end_is_noted_before_it_begins(
    bench: Bench, command: Any, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing more is claimed."""
    was_draining, note = list[bool](), bench.events.note

    def noting(kind: str, detail: Mapping[str, object]) -> None:
        was_draining.append(bench.stop.draining.is_set())
        note(kind, detail)

    monkeypatch.setattr(bench.events, "note", noting)
    assert bench.give(command).is_done
    assert was_draining == [False]
    assert (bench.stop.draining.is_set(), bench.stop.at_once.is_set()) == (True, at_once)
    (found,) = bench.events.of("command")
    assert (found["who"], found["is_done"], bool(found["answer"])) == ("Jo", True, True)
    assert datetime.fromisoformat(found["asked_at"]).tzinfo is not None


def test_a_ledger_that_is_away_keeps_nobody_from_obeying(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    """The answer says so, the log has it at once, and the ledger gets it later."""
    monkeypatch.setattr(control, "_LEDGER_PATIENCE_S", 0.05)
    monkeypatch.setattr(audit_log, "_AGAIN_S", 0.02)
    bench.events.is_there.clear()
    answer = bench.give(Pause(endpoint=SALES, reason="x"))
    assert (answer.is_done, "it is not recorded in the ledger yet" in answer.text) == (True, True)
    assert bench.throttle.reason_for(SALES) is not None
    assert len(lines("command_given")) == 1
    bench.events.is_there.set()
    bench.audit_log.end()
    assert [each["command"] for each in bench.events.of("command")] == ["pause"]


def test_rows_of_the_quarantine_are_tried_again(bench: Bench, wait_for: WaitFor) -> None:
    """Lanes look for them at once, and the audit trail says how many they were."""
    reason = "destination-unbound"
    found = bench.give(Retry(endpoint=SALES, reason=reason, id=TimeoutId("t1")))
    assert found == Answer(is_done=True, text="5 rows of the quarantine tried again")
    wait_for(lambda: bool(bench.events.of("quarantine_retried")))
    assert bench.events.of("quarantine_retried") == [
        {"endpoint": SALES, "reason": reason, "id": "t1", "rows": 5}
    ]
    assert bench.lanes.woken == 1


def test_rows_of_the_quarantine_are_given_up(bench: Bench, wait_for: WaitFor) -> None:
    """The audit trail says how many they were, and no dispatcher gets one back."""
    found = bench.give(Discard(endpoint=SALES, reason=None, id=None))
    assert found == Answer(is_done=True, text="3 rows of the quarantine discarded")
    wait_for(lambda: bool(bench.events.of("quarantine_discarded")))
    assert bench.events.of("quarantine_discarded") == [
        {"endpoint": SALES, "reason": None, "id": None, "rows": 3}
    ]


def test_many_rows_keep_nobody_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    """Whoever asked is told so; a second wish is refused until the first is over."""
    monkeypatch.setattr(control, "_RETRY_PATIENCE_S", 0.05)
    bench.quarantine.goes_on.clear()
    assert "being tried again" in bench.give(ALL).text
    second = bench.give(ALL)
    assert (second.is_done, "nothing was started" in second.text) == (False, True)
    bench.quarantine.goes_on.set()
    wait_for(lambda: bool(bench.events.of("quarantine_retried")))
    assert bench.quarantine.asked == [QuarantineFilter()]


@pytest.mark.parametrize("error", [LedgerError("gone"), RuntimeError("a bug")])
def test_what_fails_is_told_and_the_next_wish_is_heard(
    bench: Bench, error: Exception, lines: Lines
) -> None:
    """Rows are moved in steps, so some may have been tried again."""
    bench.quarantine.error = error
    assert not bench.give(ALL).is_done
    bench.quarantine.error = None
    assert bench.give(ALL).is_done
    assert len(lines("job_failed")) == isinstance(error, RuntimeError)
