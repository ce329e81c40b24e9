"""``migrator.service.throttle_signals``: who is believed when the database's clock jumps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from migrator.errors import TargetUnavailable
from migrator.service.throttle_signals import ClockCheck
from tests.unit.ledger.told_clock import START, ToldClock


class Scene:
    """A database, this machine and a broker, each ahead by so many seconds; None: it is away."""

    def __init__(self) -> None:
        self.clock = ToldClock()
        self.wall_s = 0.0
        self.broker_s: float | None = 0.0
        self.check = ClockCheck(self.clock, self._ask_broker, lambda: self._at(self.wall_s))
        assert self.check() is None

    def holds(self) -> bool:
        """Let some seconds pass; return whether hand-over has to wait."""
        self.clock.elapsed_s += 6
        return self.check() is not None

    def _at(self, ahead_s: float) -> datetime:
        return START + timedelta(seconds=self.clock.elapsed_s + ahead_s)

    def _ask_broker(self, now: Callable[[], datetime]) -> bool | None:
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
