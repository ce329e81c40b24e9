"""Destinations that take no messages: how long they are left alone, and when that is over."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from migrator.delays.routing import Unreachable, refused
from migrator.ledger.held_destinations import HeldChecks, HeldDestinations, wait_after
from migrator.ledger.parking import Wanted
from migrator.ledger.states import Mode
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from tests.unit.handover.memory import (
    ENDPOINT,
    LEASE,
    RUN,
    START,
    MemoryClock,
    MemoryLedger,
    timeout,
)

GONE = Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail="no such queue")
FULL = refused("Full")
UNBOUND = Unreachable(reason=Reason.UNROUTABLE, detail="came back")


@pytest.mark.parametrize(("tries", "seconds"), [(1, 5), (2, 10), (6, 160), (7, 300), (1000, 300)])
def test_waits_double_up_to_five_minutes(tries: int, seconds: int) -> None:
    """A destination that stays away is asked for less and less often."""
    assert wait_after(tries) == timedelta(seconds=seconds)


def held_in(ledger: MemoryLedger) -> HeldDestinations:
    """Return what a process knows that has just begun."""
    held = HeldDestinations(ledger.held, ledger.parking, ENDPOINT)
    held.load(START)
    return held


def park(ledger: MemoryLedger, *names: str) -> None:
    """Have a row parked for each of *names*."""
    for number, name in enumerate(names):
        ledger.parked[name] = [timeout(number, -1.0, destination=name)]


def wait_s(held: HeldDestinations, name: str, now: datetime) -> float:
    """Return how long *name* is left alone."""
    (found,) = [each for each in held.to_try(datetime.max.replace(tzinfo=now.tzinfo))]
    assert found.destination == name
    return (found.next_try_at - now).total_seconds()


def test_what_is_held_survives_the_process_until_it_is_freed() -> None:
    """Tries and the beginning are the ledger's; what is freed is forgotten everywhere."""
    ledger = MemoryLedger([])
    park(ledger, "Gone")
    held_in(ledger).hold({"Gone": GONE}, now=START)
    after = held_in(ledger)
    assert after.unreachable(["Gone", "Billing"]) == {"Gone": GONE}
    (again,) = after.hold({"Gone": GONE}, now=START + timedelta(seconds=5))
    assert (again.tries, again.since) == (2, START)
    assert not after.to_try(START + timedelta(seconds=14))
    assert [each.destination for each in after.to_try(START + timedelta(seconds=15))] == ["Gone"]

    after.free(["Gone", "Never"])
    assert (len(after), ledger.held.now, after.has_ready) == (0, {}, True)
    (anew,) = after.hold({"Gone": GONE}, now=START)
    assert anew.tries == 1
    assert not after.has_ready


def test_rows_that_are_parked_for_what_is_not_held_go_on() -> None:
    """A process ended between the two; and what is held without a row is forgotten."""
    ledger = MemoryLedger([])
    park(ledger, "Back")
    first = held_in(ledger)
    assert first.has_ready
    first.hold({"Empty": GONE}, now=START - timedelta(minutes=10))
    first.hold({"New": GONE}, now=START)
    first.load(START)
    assert list(ledger.held.now) == ["New"]


def test_a_clock_that_was_an_hour_ahead_holds_nothing_for_an_hour() -> None:
    """Once it is put right, what was held by it is tried at once."""
    held = held_in(MemoryLedger([]))
    held.hold({"Gone": GONE}, now=START + timedelta(hours=1))
    assert [each.destination for each in held.to_try(START)] == ["Gone"]
    held.hold({"Gone": GONE}, now=START)
    assert not held.to_try(START)


@pytest.mark.parametrize(("why", "seconds"), [(GONE, 15), (FULL, 15), (UNBOUND, 300)])
def test_waits_end_by_what_the_destination_lacks(why: Unreachable, seconds: float) -> None:
    """A queue is made, and gets room, at any time; a way that leads nowhere stays for long."""
    held = held_in(MemoryLedger([]))
    for _ in range(9):
        held.hold({"Gone": why}, now=START)
    assert wait_s(held, "Gone", START) == seconds


def test_a_few_are_checked_in_one_go_longest_due_first() -> None:
    """However many there are, so that they cost the same; while none is cured, less often."""
    ledger, clock = MemoryLedger([]), MemoryClock()
    park(ledger, *(f"Gone{number}" for number in range(30)))
    held = held_in(ledger)
    for number in range(30):
        held.hold({f"Gone{number}": GONE}, now=START - timedelta(seconds=number))
    clock.elapsed = 60
    checks = HeldChecks(clock)
    due = checks.take_due([held])
    assert [each.held.destination for each in due] == [f"Gone{n}" for n in range(29, 19, -1)]
    assert checks.take_due([held]) == ()
    checks.judge(due, {QueueName(each.held.destination): GONE for each in due})
    clock.elapsed += 10
    assert checks.take_due([held]) == ()
    clock.elapsed += 1
    due = checks.take_due([held])
    checks.judge(due, {})
    assert len(held) == 20
    clock.elapsed += 3
    assert len(checks.take_due([held])) == 10


@pytest.mark.parametrize("why", [FULL, UNBOUND])
def test_where_only_a_message_can_tell_one_row_is_sent(why: Unreachable) -> None:
    """Lost again, it waits twice as long; taken, all others go on."""
    ledger = MemoryLedger([])
    ledger.parked["Gone"] = [timeout(n, -10.0 + n, destination="Gone") for n in range(5)]
    held = held_in(ledger)
    held.hold({"Gone": why}, now=START)
    later = START + timedelta(seconds=5)
    wanted = Wanted(run=RUN, mode=Mode.STAGED, lease=LEASE, most_rows=100)
    assert held.next_batch(wanted, now=later) is None

    (due,) = held.to_try(later)
    held.judge([due], {}, now=later)
    probe = held.next_batch(wanted, now=later)
    assert probe is not None
    assert (probe.size, probe.mode) == (1, Mode.DIRECT)
    assert (held.unreachable(["Gone"]), held.unreachable(["Gone"], of=probe.id)) == (
        {"Gone": why},
        {},
    )
    held.park(probe, {0: ("Gone", why)}, LEASE, now=later)
    assert (ledger.held.now["Gone"].tries, len(ledger.parked["Gone"])) == (2, 5)
    assert held.next_batch(wanted, now=later) is None

    later += timedelta(seconds=10)
    (due,) = held.to_try(later)
    held.judge([due], {}, now=later)
    probe = held.next_batch(wanted, now=later)
    assert probe is not None
    held.reached(["Gone"], by=probe.id)
    rest = held.next_batch(wanted, now=later)
    assert rest is not None
    assert (rest.size, ledger.parked, len(held)) == (4, {}, 0)


def test_a_queue_that_takes_some_and_refuses_others_stays_held() -> None:
    """It is full, and all of its rows would only come back."""
    ledger = MemoryLedger([timeout(n, -10.0, destination="Full") for n in range(4)])
    batch = ledger.add_batch(list(ledger.stored.values()), RUN, ENDPOINT, LEASE, Mode.DIRECT)
    held = held_in(ledger)
    held.park(batch, {3: ("Full", FULL)}, LEASE, now=START)
    held.reached(["Full"], by=batch.id)
    assert held.unreachable(["Full"]) == {"Full": FULL}


def test_what_waits_for_a_message_and_is_due_later_goes_on_after_minutes() -> None:
    """No row can tell until it is due."""
    ledger = MemoryLedger([])
    ledger.parked["Gone"] = [timeout(1, 86_400.0, destination="Gone")]
    held = held_in(ledger)
    held.hold({"Gone": UNBOUND}, now=START)
    wanted = Wanted(run=RUN, mode=Mode.STAGED, lease=LEASE, most_rows=100)
    for minutes, size in ((1, None), (6, 1)):
        now = START + timedelta(minutes=minutes)
        (due,) = held.to_try(now)
        held.judge([due], {}, now=now)
        found = held.next_batch(wanted, now=now)
        assert (found and found.size, found and found.mode) == (size, size and Mode.STAGED)
