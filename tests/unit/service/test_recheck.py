"""Tests of ``migrator.service.recheck``: refusals hold by themselves, and lift by themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.errors import StoreUnavailable, TargetUnavailable
from migrator.ledger.pause_reasons import Signal
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Finding, Level
from migrator.service.recheck import Recheck
from migrator.service.throttle import Throttle

Lines = Callable[[str], list[logging.LogRecord]]
FINE = Finding(check="policies", level=Level.OK, subject="policies", text="none")
BAD = Finding(
    check="policies",
    level=Level.REFUSED,
    subject="policy all",
    text="it sets x",
    remedy="narrow it",
)
BLIND = Finding(check="policies", level=Level.NOT_CHECKED, subject="policies", text="no API")
OPEN = Finding(check="ways-out", level=Level.OK, subject="destinations", text="all")
CLOSED = Finding(check="ways-out", level=Level.REFUSED, subject="Billing", text="not bound")


class Bench:
    """One recheck and everything it acts on."""

    def __init__(self, *, may_pause: bool = True) -> None:
        self.throttle = Throttle()
        self.refusing: list[Finding] | Exception = [FINE]
        self.ways: list[Finding] | Exception = [OPEN]
        self.left: list[str] | Exception = []
        self.bound: list[str] = []
        self.notes: list[Mapping[str, object]] = []
        trail: Any = self
        checks: Any = SimpleNamespace(
            refusing=lambda: _given(self.refusing), ways=lambda: _given(self.ways)
        )
        self.recheck = Recheck(
            self.throttle, trail, checks=checks, bind=self._bind, may_pause=may_pause
        )

    def _bind(self, names: Collection[QueueName]) -> Collection[QueueName]:
        self.bound += names
        return [QueueName(name) for name in _given(self.left)]

    def note(self, kind: str, detail: Mapping[str, object]) -> None:
        assert kind == "recheck"
        self.notes.append(detail)

    def look(self, *findings: Finding) -> tuple[str, bool]:
        """Look once; return the outcome, and whether it is fine."""
        if findings:
            self.refusing = list(findings)
        self.recheck._wants_ways = True
        self.recheck._look()
        assert self.recheck.last is not None
        return self.recheck.last.outcome, self.recheck.last.is_fine


def _given(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def test_a_refusal_holds_until_it_is_gone_and_was_looked_at(lines: Lines) -> None:
    """What cannot be looked at is said, and lifts nothing; each change is noted once."""
    bench = Bench()
    assert bench.look(FINE) == ("fine", True)
    assert bench.look(BAD) == ("refused", False)
    (hold,) = bench.throttle.reasons()
    assert (hold.signal, hold.endpoint) == (Signal.CHECK, None)
    assert hold.text == "broker_check: policy all: it sets x (narrow it)"
    assert bench.look(BLIND) == ("refused", False)
    bench.refusing = StoreUnavailable("the database is away")
    assert bench.look() == ("refused", False)
    assert bench.throttle.reasons()
    assert bench.look(FINE) == bench.look(FINE) == ("fine", True)
    assert not bench.throttle.reasons()
    assert bench.look(BLIND) == ("not_checked", False)
    assert not bench.throttle.reasons()
    outcomes = [note["outcome"] for note in bench.notes]
    assert outcomes == ["fine", "refused", "refused", "refused", "fine", "not_checked"]
    levels = [line.levelno for line in lines("recheck_changed")]
    assert levels.count(logging.WARNING) == 3


def test_without_hand_over_nothing_is_held() -> None:
    """It is told all the same."""
    bench = Bench(may_pause=False)
    assert bench.look(BAD) == ("refused", False)
    assert not bench.throttle.reasons()


def test_destinations_that_lost_their_way_are_bound_again(lines: Lines) -> None:
    """Those that cannot be are told; either way nothing is held, as a start is not refused."""
    bench = Bench()
    bench.ways = [CLOSED]
    assert bench.look() == ("fine", True)
    assert bench.bound == ["Billing"]
    assert vars(lines("destinations_bound_again")[0])["destinations"] == ["Billing"]
    for left in (["Billing"], TargetUnavailable("away")):
        bench.left = left
        assert bench.look() == ("refused", False)
        assert bench.recheck.last is not None
        assert bench.recheck.last.text == "cannot be reached: Billing: not bound"
    assert not bench.throttle.reasons()


def test_while_it_refuses_it_looks_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what was put right is seen before the next usual time."""
    bench = Bench()
    usual, refused = bench.recheck.jobs(timedelta(minutes=10))
    assert (usual.every, refused.every) == (timedelta(minutes=10), timedelta(seconds=30))
    asked: list[bool] = []
    monkeypatch.setattr(bench.recheck.task, "run_soon", lambda: asked.append(True))
    assert refused.do()
    assert asked == []
    bench.look(BAD)
    assert refused.do()
    assert asked == [True]
    assert len(bench.recheck.jobs(timedelta(seconds=5))) == 1


def test_ways_are_looked_at_at_the_usual_times_only() -> None:
    """While something refuses, the ledger is not read each half minute; what it told stands."""
    bench = Bench()
    bench.ways, bench.left = [CLOSED], ["Billing"]
    bench.look(BAD)
    usual, again = bench.recheck.jobs(timedelta(minutes=10))
    bench.ways = [OPEN]
    again.do()
    bench.recheck._look()
    assert bench.recheck.last is not None
    assert bench.recheck.last.text.endswith("cannot be reached: Billing: not bound")
    usual.do()
    bench.recheck._look()
    assert "Billing" not in bench.recheck.last.text


def test_how_many_wait_is_no_news() -> None:
    """The ledger gets an event for what is found, not for each row that becomes due."""
    bench = Bench()
    bench.left = ["Billing"]
    for rows in (10, 9):
        bench.ways = [replace(CLOSED, text=f"not bound, and {rows} timeouts are due")]
        bench.look()
    assert len(bench.notes) == 1
