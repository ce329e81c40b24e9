"""Tests of ``migrator.service.throttle.ClaimGuard``."""

from __future__ import annotations

from datetime import UTC, datetime

from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.throttle import AGAIN_S, REFUSED_AGAIN_S, ClaimGuard, Throttle
from migrator.service.worker import Stop
from migrator.stores.due_times import DueTimeReading

SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")
FINE = DueTimeReading(comparable=3)
WRONG = DueTimeReading(comparable=3, shifted=3, is_refused=True, text="an hour", remedy="set it")


class World:
    """A store of two endpoints, a throttle, and the time."""

    def __init__(self) -> None:
        self.throttle, self.at_s, self.looks = Throttle(), 0.0, 0
        self.says = {SALES: FINE, SHOP: FINE}
        self.stop = Stop()
        self.guard = ClaimGuard(
            self.throttle,
            self.stop,
            [StoreEndpoint(name=name, source=name) for name in self.says],
            read_due_times=self._look,
            now_s=lambda: self.at_s,
        )

    def _look(self, endpoint: StoreEndpoint) -> DueTimeReading:
        self.looks += 1
        return self.says[endpoint.name]


def test_the_first_claim_of_an_endpoint_is_held_alone_and_until_it_is_right() -> None:
    """The reason is named; it is looked at again soon."""
    world = World()
    world.says[SALES] = WRONG
    assert not world.guard.may_claim(SALES)
    assert world.guard.may_claim(SHOP)
    hold = world.throttle.reason_for(SALES)
    assert hold is not None
    assert (hold.signal, hold.text) == (Signal.TIME_ZONE, "time_zone: an hour (set it)")
    world.says[SALES] = FINE
    assert not world.guard.may_claim(SALES)
    world.at_s += REFUSED_AGAIN_S
    assert world.guard.may_claim(SALES)


def test_rows_are_not_read_before_every_claim() -> None:
    """Once they are known to be right, only now and then."""
    world = World()
    for _ in range(5):
        world.guard.may_claim(SALES)
    assert world.looks == 1
    world.at_s += AGAIN_S
    world.guard.may_claim(SALES)
    assert world.looks == 2


def test_as_long_as_no_row_tells_each_claim_is_preceded_by_a_look() -> None:
    """An empty table says nothing about the rows that come."""
    world = World()
    world.says[SALES] = DueTimeReading()
    assert world.guard.may_claim(SALES)
    world.says[SALES] = WRONG
    assert not world.guard.may_claim(SALES)


def test_nothing_is_claimed_while_everything_waits_or_the_process_ends() -> None:
    """Whichever endpoint it is; rows are not even read at the end."""
    world = World()
    assert world.guard.may_claim()
    reason = PauseReason(
        signal=Signal.PAUSED, endpoint=None, observed="x", limit="", since=datetime.now(UTC)
    )
    world.throttle.pause(reason)
    assert not world.guard.may_claim()
    assert not world.guard.may_claim(SALES)
    world.throttle.resume(Signal.PAUSED)
    assert world.guard.may_claim(SALES)
    looks = world.looks
    world.stop.draining.set()
    assert not world.guard.may_claim()
    assert not world.guard.may_claim(SHOP)
    assert world.looks == looks
