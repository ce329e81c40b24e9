"""What belongs to an endpoint's timeout manager, and which bindings go or come back."""

from __future__ import annotations

import pytest

from migrator.decommission.rules import (
    QueueLook,
    bindings_of,
    satellite_entities,
    still_whole,
    unexpected_bindings,
    unfinished_bindings,
)
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity
from tests.unit.decommission.decommissions import (
    DELIVERY,
    DISPATCHER,
    OWN_BINDINGS,
    RETRY,
    SATELLITE_BINDINGS,
    STAGING,
    TIMEOUTS,
    broker,
    exchange_binding,
    facts,
    names,
    queue_binding,
)

SALES = QueueName("Sales")


@pytest.mark.parametrize(
    ("look", "is_calm"),
    [
        (QueueLook(name="q"), True),
        (QueueLook(name="q", is_told=False), False),
        (QueueLook(name="q", ready=1), False),
        (QueueLook(name="q", unacked=1), False),
        (QueueLook(name="q", held_back=1), False),
        (QueueLook(name="q", consumers=1), False),
    ],
)
def test_only_what_is_known_to_be_empty_is_calm(look: QueueLook, is_calm: bool) -> None:
    """What nobody tells is not zero."""
    assert look.is_calm is is_calm


def test_retry_queues_go_first_and_each_exchange_behind_its_queue() -> None:
    """So that nothing comes out of a retry queue, and an exchange leads nowhere but briefly."""
    assert names(list(satellite_entities(SALES, broker()))) == [
        f"q:{RETRY}",
        f"q:{TIMEOUTS}",
        f"e:{TIMEOUTS}",
        f"q:{DISPATCHER}",
        f"e:{DISPATCHER}",
    ]


def test_what_is_not_there_is_not_deleted() -> None:
    """Direct topology has no exchanges; an earlier run may have deleted a queue."""
    look = broker(satellite_exchanges=[], retries=[], satellites=[QueueLook(name=DISPATCHER)])
    assert names(list(satellite_entities(SALES, look))) == [f"q:{DISPATCHER}"]


def test_the_way_in_is_cut_first() -> None:
    """Bindings of the delivery exchange come before those behind it; others are left out."""
    found = bindings_of([queue_entity(TIMEOUTS), exchange_entity(TIMEOUTS)], broker().bindings)
    assert found == (SATELLITE_BINDINGS[1], SATELLITE_BINDINGS[0])


@pytest.mark.parametrize(
    "binding",
    [
        queue_binding("Events", TIMEOUTS),
        exchange_binding("Events", DISPATCHER),
        queue_binding(TIMEOUTS, "audit"),
        exchange_binding(TIMEOUTS, DISPATCHER),
        queue_binding(TIMEOUTS, TIMEOUTS, x=1),
        queue_binding("amq.direct", RETRY),
        exchange_binding(DELIVERY, TIMEOUTS, "#.OldSales.Timeouts"),
        exchange_binding(DELIVERY, TIMEOUTS, "#"),
        queue_binding(DELIVERY, TIMEOUTS, ""),
        queue_binding(TIMEOUTS, TIMEOUTS, "#"),
        exchange_binding(TIMEOUTS, TIMEOUTS, ""),
    ],
    ids=str,
)
def test_a_binding_that_nobody_of_ours_makes_is_noticed(binding: Binding) -> None:
    """From elsewhere, to elsewhere, with arguments or an odd key, or at a retry queue."""
    assert list(unexpected_bindings(SALES, broker(binding))) == [binding]


def test_usual_bindings_are_expected() -> None:
    """Conventional, direct, and those of migrator's own."""
    direct = queue_binding(DELIVERY, TIMEOUTS, f"#.{TIMEOUTS}")
    assert list(unexpected_bindings(SALES, broker(direct))) == []


def test_only_what_is_missing_and_has_both_ends_is_unfinished() -> None:
    """What is bound, or whose queue is gone, is not made again."""
    look = broker(
        bindings=SATELLITE_BINDINGS[1:2],
        satellites=[QueueLook(name=TIMEOUTS)],
        satellite_exchanges=[TIMEOUTS],
    )
    recorded = [*SATELLITE_BINDINGS, *OWN_BINDINGS]
    found = unfinished_bindings(facts(broker=look, unfinished=recorded))
    assert found == (SATELLITE_BINDINGS[0], *OWN_BINDINGS)
    assert unfinished_bindings(facts(broker=None, unfinished=recorded)) == ()


def test_what_lost_an_end_is_not_whole() -> None:
    """Neither as a source nor as a target."""
    gone = [exchange_entity(TIMEOUTS), queue_entity(STAGING)]
    found = still_whole([*SATELLITE_BINDINGS, OWN_BINDINGS[0]], gone)
    assert found == SATELLITE_BINDINGS[2:]
