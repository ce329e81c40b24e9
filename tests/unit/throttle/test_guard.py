"""Tests of ``migrator.throttle.guard``."""

from __future__ import annotations

import threading

import pytest

from migrator.config.work import HandOver
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.due_times import DueTimeReader, DueTimeReading
from migrator.text import grouped
from migrator.throttle.guard import AGAIN_S, REFUSED_AGAIN_S, ClaimGuard, QuarantineLimit
from migrator.throttle.reasons import Signal, Throttle
from tests.unit.handover.memory import MemoryClock

SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")
BILLING = EndpointName("Billing")
FINE = DueTimeReading(comparable=3)
WRONG = DueTimeReading(comparable=3, shifted=3, is_refused=True, text="an hour", remedy="set it")


class World(DueTimeReader):
    """A store of two endpoints, a throttle, and the time."""

    def __init__(self) -> None:
        self.throttle, self.time, self.looks = Throttle(), MemoryClock(), 0
        self.says = {SALES: FINE, SHOP: FINE}
        self.draining = threading.Event()
        self.guard = ClaimGuard(
            self.throttle,
            self.draining,
            [StoreEndpoint(name=name, source=name) for name in self.says],
            due_times=self,
            clock=self.time,
            quarantine_limit=QuarantineLimit(0, ()),
        )

    def read(self, endpoint: StoreEndpoint) -> DueTimeReading:
        self.looks += 1
        return self.says[endpoint.name]


def test_the_first_claim_of_an_endpoint_is_held_alone_and_until_it_is_right() -> None:
    """The reason is named; it is looked at again soon."""
    world = World()
    world.says[SALES] = WRONG
    assert not world.guard.admit(SALES)
    assert world.guard.admit(SHOP)
    hold = world.throttle.reason_for(SALES)
    assert hold is not None
    assert (hold.signal, hold.text) == (Signal.TIME_ZONE, "time_zone: an hour (set it)")
    world.says[SALES] = FINE
    assert not world.guard.admit(SALES)
    world.time.elapsed += REFUSED_AGAIN_S
    assert world.guard.admit(SALES)


def test_rows_are_read_now_and_then_once_they_are_known_to_be_right() -> None:
    """As long as none tells, each claim is preceded by a look: an empty table says nothing."""
    world = World()
    world.says[SALES] = DueTimeReading()
    assert [world.guard.admit(SALES) for _ in range(3)] == [True] * 3
    assert world.looks == 3
    world.says[SALES] = FINE
    for _ in range(5):
        world.guard.admit(SALES)
    assert world.looks == 4
    world.time.elapsed += AGAIN_S
    world.says[SALES] = WRONG
    assert not world.guard.admit(SALES)


def test_nothing_is_claimed_while_everything_waits_or_the_process_ends() -> None:
    """Whichever endpoint it is; rows are not even read at the end."""
    world = World()
    assert world.guard.may_claim()
    world.throttle.pause(Signal.PAUSED, None, "x")
    assert not world.guard.may_claim()
    assert not world.guard.admit(SALES)
    world.throttle.resume(Signal.PAUSED)
    assert world.guard.admit(SALES)
    looks = world.looks
    world.draining.set()
    assert not world.guard.may_claim()
    assert not world.guard.admit(SHOP)
    assert world.looks == looks


@pytest.mark.parametrize(
    ("claimed", "quarantined", "is_too_many"),
    [(500, 100, False), (500, 101, True), (20_000, 200, False), (20_000, 201, True)],
)
def test_more_than_100_rows_or_1_percent_are_too_many(
    claimed: int, quarantined: int, is_too_many: bool
) -> None:
    """Whichever is more, as the settings are by themselves; then it counts from 0 again."""
    limit = QuarantineLimit(HandOver().max_quarantined, [SALES])
    limit.count(SALES, claimed=claimed - 400, quarantined=0)
    limit.count(SALES, claimed=400, quarantined=quarantined)
    told = f"{quarantined} of {grouped(claimed)} claimed rows went to quarantine"
    assert limit.take_passed(SALES) == (told if is_too_many else None)
    if is_too_many:
        assert limit.take_passed(SALES) is None


def test_other_endpoints_and_no_limit_let_all_pass() -> None:
    """Those of endpoints in mode forward would be late; 0 rows is no limit."""
    for limit in (QuarantineLimit(100, [SALES]), QuarantineLimit(0, [BILLING])):
        limit.count(BILLING, claimed=1000, quarantined=1000)
        assert limit.take_passed(BILLING) is None
