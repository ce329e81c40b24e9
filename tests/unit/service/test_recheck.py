"""Tests of ``migrator.service.tasks``: refusals hold by themselves, and lift by themselves."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from migrator.errors import StoreUnavailable, TargetUnavailable
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.context import Finding, Level
from migrator.service.tasks import Recheck
from migrator.throttle.reasons import Signal, Throttle
from tests.unit.service.conftest import Events, Lines

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

    def __init__(self, *, minutes: float = 10) -> None:
        self.throttle, self.events = Throttle(), Events()
        self.refusing: list[Finding] | Exception = [FINE]
        self.ways: list[Finding] | Exception = [OPEN]
        self.left: list[str] | Exception = []
        self.bound: list[str] = []
        audit_log: Any = self.events
        checks: Any = SimpleNamespace(
            refusing=lambda: _given(self.refusing), bindings=lambda: _given(self.ways)
        )
        self.recheck = Recheck(
            throttle=self.throttle,
            audit_log=audit_log,
            every=timedelta(minutes=minutes),
            checks=checks,
            bind=self._bind,
            may_pause=True,
        )

    @property
    def text(self) -> str:
        assert self.recheck.job.last is not None
        return self.recheck.job.last.text

    def _bind(self, names: Collection[QueueName]) -> Collection[QueueName]:
        self.bound += names
        return [QueueName(name) for name in _given(self.left)]

    def look(self, *findings: Finding) -> tuple[str, bool]:
        """Look once; return the outcome, and whether it is fine."""
        if findings:
            self.refusing = list(findings)
        self.recheck.look()
        assert self.recheck.job.last is not None
        return self.recheck.job.last.outcome, self.recheck.job.last.is_fine


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
    outcomes = [note["outcome"] for note in bench.events.of("recheck")]
    assert outcomes == ["fine", "refused", "refused", "refused", "fine", "not_checked"]
    levels = [line.levelno for line in lines("recheck_changed")]
    assert levels.count(logging.WARNING) == 3
    bench.recheck.may_pause = False  # nothing is handed over here
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
        assert bench.text == "cannot be reached: Billing: not bound"
    assert not bench.throttle.reasons()


def test_while_it_refuses_it_looks_more_often_but_not_at_ways() -> None:
    """What was put right is seen soon, and the ledger is not read each half minute."""
    bench = Bench()
    usual, refused = bench.recheck.jobs
    assert (usual.every, refused.every) == (timedelta(minutes=10), timedelta(seconds=30))
    assert len(Bench(minutes=0.1).recheck.jobs) == 1
    bench.recheck.look_again()
    assert bench.recheck.job.last is None
    bench.ways, bench.left = [CLOSED], ["Billing"]
    bench.look(BAD)
    bench.ways, bench.refusing = [OPEN], [FINE]
    bench.recheck.look_again()
    assert not bench.throttle.reasons()
    assert bench.text == "cannot be reached: Billing: not bound"
    bench.look()
    assert "Billing" not in bench.text


def test_how_many_wait_is_no_news() -> None:
    """The ledger gets an event for what is found, not for each row that becomes due."""
    bench = Bench()
    bench.left = ["Billing"]
    for rows in (10, 9):
        bench.ways = [replace(CLOSED, text=f"had lost its binding, and {rows} timeouts are due")]
        bench.look()
    assert len(bench.events.of("recheck")) == 1
