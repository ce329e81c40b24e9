"""Tests of ``migrator.delays.destinations``."""

from __future__ import annotations

import pytest

from migrator.delays.destinations import DestinationBinding
from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import QueueName

DELIVERY = "nsb.v2.delay-delivery"
EITHER = "start its endpoint once with its installers, or "
TO_QUEUE = f"bind exchange {DELIVERY} to queue Sales with key #.Sales"
TO_EXCHANGE = f"bind exchange {DELIVERY} to exchange Sales with key #.Sales"
LAST = "bind exchange Sales to queue Sales without a key"


def way(*there: str) -> DestinationBinding:
    """Return a way of which only some pieces are there."""
    assert set(there) <= {"queue", "exchange", "bound", "leads"}
    return DestinationBinding(
        version=DelaysVersion.V2,
        destination=QueueName("Sales"),
        has_queue="queue" in there,
        has_exchange="exchange" in there,
        is_bound="bound" in there,
        leads_on="leads" in there,
    )


@pytest.mark.parametrize("there", [("queue",), ("queue", "exchange")])
def test_an_open_way_needs_nothing(there: tuple[str, ...]) -> None:
    """By either topology; also when the binding leads to a queue of another name."""
    for found in (way(*there, "bound", "leads"), way("bound", "leads")):
        assert found.is_open
        assert (found.problem, found.missing, found.remedy) == ("", (), "")


@pytest.mark.parametrize(
    ("there", "gap", "fix"),
    [
        ((), "does not exist", f"{EITHER}create queue Sales, then {TO_QUEUE}"),
        (("queue",), "nothing binds it", f"{EITHER}{TO_QUEUE}"),
        (
            ("exchange",),
            "does not exist",
            f"{EITHER}create queue Sales, then {LAST}, then {TO_EXCHANGE}",
        ),
        (("queue", "exchange"), "nothing binds it", f"{EITHER}{LAST}, then {TO_EXCHANGE}"),
        (("exchange", "bound"), "does not exist", f"{EITHER}create queue Sales, then {LAST}"),
        (("queue", "exchange", "bound"), "leads nowhere", f"{EITHER}{LAST}"),
    ],
)
def test_what_is_missing_is_named_with_what_mends_it(
    there: tuple[str, ...], gap: str, fix: str
) -> None:
    """The binding that lets messages out comes last, when there is a queue to hold them."""
    found = way(*there)
    assert not found.is_open
    assert gap in found.problem
    assert found.remedy == fix
    assert len(found.missing) == fix.count("bind exchange")


def test_version_1_has_a_delivery_exchange_of_its_own() -> None:
    """Named in the remedy."""
    found = DestinationBinding(
        version=DelaysVersion.V1,
        destination=QueueName("Sales"),
        has_queue=True,
        has_exchange=False,
        is_bound=False,
        leads_on=False,
    )
    assert [binding.source for binding in found.missing] == ["nsb.delay-delivery"]
