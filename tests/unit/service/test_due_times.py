"""Tests of ``migrator.service.due_times``."""

from __future__ import annotations

from migrator.ledger.pause_reasons import Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.due_times import AGAIN_S, HELD_AGAIN_S, DueTimeGuard
from migrator.service.gate import Gate
from migrator.stores.due_times import DueTimeReading

SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")
FINE = DueTimeReading(comparable=3)
WRONG = DueTimeReading(comparable=3, shifted=3, is_refused=True, text="an hour", remedy="set it")


class World:
    """A store of two endpoints, a gate, and the time."""

    def __init__(self) -> None:
        self.gate, self.at_s, self.looks = Gate(), 0.0, 0
        self.says = {SALES: FINE, SHOP: FINE}
        self.guard = DueTimeGuard(
            {name: StoreEndpoint(name=name, source=name) for name in self.says},
            look=self._look,
            gate=self.gate,
            now_s=lambda: self.at_s,
        )

    def _look(self, endpoint: StoreEndpoint) -> DueTimeReading:
        self.looks += 1
        return self.says[endpoint.name]


def test_the_first_claim_of_an_endpoint_is_held_alone_and_until_it_is_right() -> None:
    """The reason is named; it is looked at again soon."""
    world = World()
    world.says[SALES] = WRONG
    assert world.guard.holds(SALES)
    assert not world.guard.holds(SHOP)
    hold = world.gate.hold_for(SALES)
    assert hold is not None
    assert (hold.signal, hold.text) == (Signal.TIME_ZONE, "time_zone: an hour (set it)")
    world.says[SALES] = FINE
    assert world.guard.holds(SALES)
    world.at_s += HELD_AGAIN_S
    assert not world.guard.holds(SALES)


def test_rows_are_not_read_before_every_claim() -> None:
    """Once they are known to be right, only now and then."""
    world = World()
    for _ in range(5):
        world.guard.holds(SALES)
    assert world.looks == 1
    world.at_s += AGAIN_S
    world.guard.holds(SALES)
    assert world.looks == 2


def test_as_long_as_no_row_tells_each_claim_is_preceded_by_a_look() -> None:
    """An empty table says nothing about the rows that come."""
    world = World()
    world.says[SALES] = DueTimeReading()
    assert not world.guard.holds(SALES)
    world.says[SALES] = WRONG
    assert world.guard.holds(SALES)
