"""Destinations that cannot be reached: how long they are left alone, and when that is over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.delays.routing import Unreachable, refused
from migrator.ledger.held_destinations import HeldDestinations, is_over, wait_after
from migrator.nservicebus.conversion import Reason
from tests.unit.handover.memory import ENDPOINT, START, MemoryHeld

GONE = Unreachable(reason=Reason.DESTINATION_UNKNOWN, detail="no such queue")
FULL = refused("Full")
UNBOUND = Unreachable(reason=Reason.UNROUTABLE, detail="came back")


@pytest.mark.parametrize(("tries", "seconds"), [(1, 5), (2, 10), (6, 160), (7, 300), (1000, 300)])
def test_waits_double_up_to_five_minutes(tries: int, seconds: int) -> None:
    """A destination that stays away is asked for less and less often."""
    assert wait_after(tries) == timedelta(seconds=seconds)


def test_what_is_held_survives_the_process_until_it_is_freed() -> None:
    """Tries and the beginning are the ledger's; what is freed is forgotten everywhere."""
    ledger = MemoryHeld()
    HeldDestinations(ledger, ENDPOINT).hold("Gone", GONE, now=START)
    after = HeldDestinations(ledger, ENDPOINT)
    after.load()
    assert list(after.not_now(START)) == ["Gone"]
    again = after.hold("Gone", GONE, now=START + timedelta(seconds=5))
    assert (again.tries, again.since) == (2, START)
    assert list(after.not_now(START + timedelta(seconds=14))) == ["Gone"]
    assert [each.destination for each in after.to_try(START + timedelta(seconds=15))] == ["Gone"]

    after.free(["Gone", "Never", None])
    assert (len(after), ledger.now) == (0, {})
    assert after.hold("Gone", GONE, now=START).tries == 1


def test_a_clock_that_was_an_hour_ahead_holds_nothing_for_an_hour() -> None:
    """Once it is put right, what was held by it is tried at once."""
    held = HeldDestinations(MemoryHeld(), ENDPOINT)
    held.hold("Gone", GONE, now=START + timedelta(hours=1))
    assert not held.not_now(START)
    assert [each.destination for each in held.to_try(START)] == ["Gone"]
    held.hold("Gone", GONE, now=START)
    assert held.is_held("Gone", now=START)


def test_a_route_ends_the_wait_unless_messages_came_back() -> None:
    """An exchange may exist and lead nowhere; only a message that stays, or none at all, tells."""
    held = HeldDestinations(MemoryHeld(), ENDPOINT)
    gone = held.hold("Gone", GONE, now=START)
    unbound = held.hold("Unbound", UNBOUND, now=START)
    soon, later = START + timedelta(seconds=6), START + timedelta(minutes=6)
    assert (is_over(gone, now=soon), is_over(unbound, now=soon)) == (True, False)
    assert is_over(unbound, now=later)


def test_a_queue_that_refuses_is_tried_with_a_message_every_quarter_of_a_minute() -> None:
    """That it exists says nothing, and room in it comes at any time."""
    held = HeldDestinations(MemoryHeld(), ENDPOINT)
    for _ in range(5):
        held.hold("Full", FULL, now=START)
    (full,) = held.to_try(START + timedelta(seconds=15))
    assert full.next_try_at == START + timedelta(seconds=15)
    assert not is_over(full, now=START + timedelta(seconds=15))
    assert list(held.left_out(START + timedelta(seconds=14))) == ["Full"]
    assert not held.left_out(START + timedelta(seconds=15))
