"""Tests of ``migrator.throttle.clock``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from migrator.errors import TargetUnavailable
from migrator.throttle.clock import AT_START, BrokerClock, ClockSignal, check_first_time
from tests.unit.ledger.told_clock import START, ToldClock


class Scene(BrokerClock):
    """A database, this machine and a broker, each ahead by so many seconds; None: it is away."""

    def __init__(self) -> None:
        self.clock = ToldClock()
        self.wall_s = 0.0
        self.broker_s: float | None = 0.0
        self.signal = ClockSignal(self.clock, self, self.wall_clock)
        assert not self.signal.poll()

    def holds(self) -> bool:
        """Let some seconds pass; return whether hand-over has to wait."""
        self.clock.elapsed_s += 6
        return bool(self.signal.poll())

    def _at(self, ahead_s: float) -> datetime:
        return START + timedelta(seconds=self.clock.elapsed_s + ahead_s)

    def wall_clock(self) -> datetime:
        return self._at(self.wall_s)

    def agrees(self, now: Callable[[], datetime]) -> bool | None:
        if self.broker_s is None:
            raise TargetUnavailable("away")
        return abs((now() - self._at(self.broker_s)).total_seconds()) < 1


@pytest.mark.parametrize("broker_s", [0.0, None])
def test_a_clock_that_nobody_agrees_with_holds_until_it_is_back(broker_s: float | None) -> None:
    """This machine still has the old time, and so has the broker, or it is away."""
    scene = Scene()
    scene.broker_s = broker_s
    scene.clock.ahead_s = 300
    assert scene.holds()
    assert scene.holds()
    scene.clock.ahead_s = 0
    assert not scene.holds()


@pytest.mark.parametrize(
    ("database_s", "wall_s", "broker_s", "waits"),
    [
        (45.0, 0.0, 0.0, True),
        (-45.0, 0.0, 0.0, True),
        (45.0, 0.0, None, True),  # until the broker can be asked
        (45.0, 0.0, 20.0, True),
        (45.0, 0.0, 45.0, False),  # this machine is wrong
        (1.9, 0.0, 0.0, False),
        (45.0, 45.0, 0.0, False),
    ],
)
def test_the_first_time_needs_a_witness(
    *, database_s: float, wall_s: float, broker_s: float | None, waits: bool
) -> None:
    """A start beside a wrong clock waits as a daemon does whose clock jumped, and so it ends."""
    scene = Scene()
    scene.clock = ToldClock()
    scene.clock.ahead_s, scene.wall_s, scene.broker_s = database_s, wall_s, broker_s
    signal = ClockSignal(scene.clock, scene, scene.wall_clock)
    check_first_time(scene.clock, scene, scene.wall_clock)
    found = signal.poll()
    scene.clock.elapsed_s += 6
    assert bool(found) is bool(signal.poll()) is waits
    if waits:
        assert AT_START in found[None].observed
        scene.clock.elapsed_s += 6
        scene.clock.ahead_s = 0
        assert not signal.poll()
        assert scene.clock.after(0) == 0
        scene.clock.ahead_s = 45
        scene.clock.elapsed_s += 6
        assert "jumped: it is 45.0 s ahead of where it was" in signal.poll()[None].observed


def test_this_machine_is_a_witness() -> None:
    """Its clock went on as it should, and has the new time."""
    scene = Scene()
    scene.wall_s, scene.broker_s = 40, None
    assert not scene.holds()
    assert not scene.holds()
    scene.clock.ahead_s = 40.5
    assert not scene.holds()
    assert scene.clock.after(0) == 40.5


def test_a_machine_that_jumped_as_well_is_none_but_the_broker_is() -> None:
    """Somebody may have set the clock of the one machine that both run on."""
    scene = Scene()
    scene.wall_s = scene.clock.ahead_s = 300
    assert scene.holds()
    scene = Scene()
    scene.wall_s = scene.clock.ahead_s = scene.broker_s = 300
    assert not scene.holds()
