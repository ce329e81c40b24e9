"""Tests of ``migrator.service.hooks``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from migrator.config import Hooks as Given
from migrator.errors import ExitCode, StoreUnavailable
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import EndpointProgress, Progress, QuarantineCount
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.hooks import QUIET_S, HookEvent, HookEvents, fire_exit, fire_rollback, hooked

SALES, BILLING = EndpointName("Sales"), EndpointName("Billing")
NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)


class World:
    """What hook events are made of, and what was fired."""

    def __init__(self) -> None:
        self.told: list[tuple[HookEvent, str, Mapping[str, object]]] = []
        self.now_s = 1000.0
        self.is_idle = True
        self.hook_events = HookEvents(
            self.fire, [SALES], is_idle=lambda: self.is_idle, clock_s=lambda: self.now_s
        )

    def fire(self, event: HookEvent, text: str, facts: Mapping[str, object]) -> None:
        json.dumps(facts)  # it must be possible
        self.told.append((event, text, facts))

    def look(self, *, after_s: float = 2.0, **rows: int) -> None:
        """Have the ledger of ``Sales`` be read, some time after the last."""
        self.now_s += after_s
        self.hook_events.polled(progress(endpoint=SALES, **rows))

    @property
    def events(self) -> list[HookEvent]:
        return [event for event, _, _ in self.told]


@pytest.fixture
def world() -> World:
    """A world in which nothing has happened."""
    return World()


def progress(*, endpoint: EndpointName = SALES, **rows: int) -> Progress:
    """Return a ledger with so many rows in each state."""
    aside = rows.get("quarantined", 0)
    return Progress(
        taken_at=NOW,
        endpoints=[EndpointProgress(endpoint=endpoint, rows=rows)],
        quarantine=[QuarantineCount(endpoint=endpoint, reason="refused", rows=aside)]
        if aside
        else [],
        doubtful=(),
        oldest_open_age=None,
        lanes=(),
    )


def test_the_start_names_the_endpoints(world: World) -> None:
    """As soon as the work has begun."""
    world.hook_events.started()
    assert world.told == [(HookEvent.START, "working on Sales", {"endpoints": ["Sales"]})]


def test_a_hold_is_told_when_it_begins_and_when_it_ends(world: World) -> None:
    """With the reason, as everywhere else."""
    hold = PauseReason(
        signal=Signal.LEVEL_DEPTH, endpoint=None, observed="12", limit="at most 10", since=NOW
    )
    world.hook_events.throttled(hold, True)
    world.hook_events.throttled(hold, False)
    facts = {
        "signal": "level_depth",
        "endpoint": None,
        "observed": "12",
        "limit": "at most 10",
        "since": NOW.isoformat(),
    }
    assert world.told == [
        (HookEvent.THROTTLE, f"waits: {hold.text}", {"began": True, **facts}),
        (HookEvent.THROTTLE, f"no longer waits: {hold.text}", {"began": False, **facts}),
    ]


def test_quarantine_is_told_once_for_several_rows(world: World) -> None:
    """Only what came since the last look, and not what was there at the beginning."""
    world.look(quarantined=3)
    world.look(quarantined=3)
    assert world.told == []
    world.look(quarantined=8)
    world.look(quarantined=8)
    world.look(quarantined=2)
    world.look(quarantined=3)
    now = [{"endpoint": "Sales", "reason": "refused", "rows": 8}]
    first = {"rows": 5, "endpoints": {"Sales": 5}, "now": now}
    assert world.told[0] == (HookEvent.QUARANTINE, "5 rows went into quarantine", first)
    assert [facts["rows"] for _, _, facts in world.told] == [5, 1]


def test_rows_of_others_are_not_spoken_of(world: World) -> None:
    """Another process works on that endpoint, and tells."""
    world.hook_events.polled(progress(endpoint=BILLING))
    world.hook_events.polled(progress(endpoint=BILLING, quarantined=5))
    assert world.told == []


def test_a_daemon_that_has_moved_everything_is_drained(world: World) -> None:
    """Once, when it was so for a while; again when more rows came and went."""
    world.look(handed_over=10)
    world.look(handed_over=20, claimed=10)
    world.look(handed_over=30)
    for _ in range(6):
        world.look(handed_over=30)
    assert world.events == [HookEvent.DRAINED]
    assert world.told[0][2]["endpoints"] == [
        {
            "endpoint": "Sales",
            "handed_over": 30,
            "dispatched": 0,
            "in_flight": 0,
            "quarantined": 0,
            "doubtful": 0,
        }
    ]
    for _ in range(10):
        world.look(handed_over=30)
    assert len(world.told) == 1
    for _ in range(10):
        world.look(handed_over=31)
    assert world.events == [HookEvent.DRAINED] * 2


def test_a_daemon_that_moved_nothing_is_not_drained(world: World) -> None:
    """Or every start of one with nothing to do would be told."""
    for _ in range(20):
        world.look(handed_over=10)
    assert world.told == []


def test_a_row_now_and_then_is_not_drained_each_time(world: World) -> None:
    """While rows keep coming it is never quiet for long enough."""
    for number in range(40):
        world.look(after_s=QUIET_S - 1, handed_over=number)
    assert world.told == []


@pytest.mark.parametrize("what", ["held", "in flight"])
def test_what_is_held_or_in_flight_is_not_drained(world: World, what: str) -> None:
    """It only looks quiet."""
    world.look()
    world.is_idle = what != "held"
    for _ in range(20):
        world.look(handed_over=5, claimed=1 if what == "in flight" else 0)
    assert world.told == []
    world.is_idle = True
    for _ in range(7):
        world.look(handed_over=5)
    assert world.events == [HookEvent.DRAINED]


def test_a_finished_run_tells_what_it_left_aside_and_that_it_is_done(world: World) -> None:
    """In that order, without waiting, and though it moved nothing."""
    world.look()
    world.hook_events.finished(progress(quarantined=2))
    assert world.events == [HookEvent.QUARANTINE, HookEvent.DRAINED]
    world.hook_events.polled(progress(quarantined=1))  # a look that was on its way
    assert len(world.told) == 2


@pytest.mark.parametrize("code", ExitCode)
def test_only_bad_ends_are_failures(world: World, code: ExitCode) -> None:
    """Rows in quarantine were told already."""
    fire_exit(world.fire, code)
    is_bad = code not in (ExitCode.DONE, ExitCode.QUARANTINED)
    assert world.events == ([HookEvent.FAILURE] if is_bad else [])
    if is_bad:
        facts = {"exit_code": int(code), "outcome": code.name.lower(), "error": None}
        assert world.told[0][1:] == (f"migrator ends with exit code {int(code)}", facts)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (StoreUnavailable("the store is away"), 4, "the store is away"),
        (ZeroDivisionError("oh"), 1, "ZeroDivisionError: oh"),
    ],
)
def test_an_error_before_the_work_begins_is_a_failure(
    tmp_path: Path, error: Exception, code: int, text: str
) -> None:
    """It is told with its text, and goes on to whoever called."""
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat >{tmp_path}/told\n")
    hook.chmod(0o755)
    with pytest.raises(type(error)), hooked(Given(failure=hook)):
        raise error
    found = json.loads((tmp_path / "told").read_text())
    assert (found["facts"]["exit_code"], found["facts"]["error"]) == (code, text)
    assert found["text"] == f"migrator ends with exit code {code}: {text}"


def test_what_was_put_back_is_told_as_the_command_tells_it(world: World) -> None:
    """The document of ``--json``, and which verb."""
    fire_rollback(world.fire, "rollback", {"rows": 3})
    facts = {"verb": "rollback", "rows": 3}
    assert world.told == [(HookEvent.ROLLBACK, "migrator rollback put rows back", facts)]
