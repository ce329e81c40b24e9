"""What goes and what stays: ours only when nobody needs it, the rest whenever it is announced."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from migrator.decommission.plan import make_plan
from migrator.decommission.rules import LedgerLook, Neighbours, QueueLook, Wishes
from migrator.nservicebus.timeouts import EndpointName
from migrator.rabbitmq.entities import Binding
from tests.unit.decommission.decommissions import (
    ENTRY,
    OWN_BINDINGS,
    RECEIPTS,
    ROUTER,
    SATELLITE_BINDINGS,
    STAGING,
    TIMEOUTS,
    broker,
    exchange_binding,
    facts,
    names,
    own,
    queue_binding,
)

PLAIN = Wishes()
SATELLITES_ONLY = 5
OURS = [f"e:{STAGING}", f"q:{STAGING}", f"q:{RECEIPTS}", f"e:{ENTRY}", f"e:{ROUTER}"]


def test_everything_goes_when_nobody_needs_it() -> None:
    """Satellites first, ours last; every binding that goes is told, none of it twice."""
    plan = make_plan(facts(), PLAIN)
    assert names(plan.delete)[SATELLITES_ONLY:] == OURS
    assert len(plan.unbind) == len(SATELLITE_BINDINGS) + len(OWN_BINDINGS)
    assert set(plan.unbind) == {*SATELLITE_BINDINGS, *OWN_BINDINGS}
    assert (plan.keep, plan.refusals, plan.bind_again, plan.drops_table) == ([], (), (), False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"neighbours": Neighbours(with_rows=[EndpointName("Bills")])}, "rows of Bills"),
        ({"neighbours": Neighbours(forwarding=[EndpointName("Bills")])}, "Bills is in mode"),
        ({"ledger": LedgerLook(open_elsewhere=2)}, "2 batches of other"),
        ({"ledger": LedgerLook(lanes=["lane.0 (x)"])}, "somebody works: lane.0 (x)"),
        ({"broker": broker(own=own(clients=["migrator x"]))}, "another migrator is connected"),
        (
            {"broker": broker(own=own(queues=[QueueLook(name=STAGING, unacked=1)]))},
            f"{STAGING} has 1 messages and 0 consumers",
        ),
        (
            {"broker": broker(own=own(queues=[QueueLook(name=RECEIPTS, is_told=False)]))},
            f"does not tell yet what is in {RECEIPTS}",
        ),
        ({"broker": broker(queue_binding(STAGING, "spy"))}, f"{STAGING} is bound to spy"),
        ({"broker": broker(queue_binding("spy", RECEIPTS))}, f"spy is bound to {RECEIPTS}"),
    ],
)
def test_ours_stay_while_somebody_needs_them(changes: dict[str, Any], why: str) -> None:
    """All of them, with why; the satellites go all the same."""
    plan = make_plan(facts(**changes), PLAIN)
    assert plan.refusals == ()
    assert names(plan.delete)[:SATELLITES_ONLY]
    assert len(plan.delete) == SATELLITES_ONLY
    assert plan.keep
    assert all(why in each.why for each in plan.keep)
    assert not set(plan.unbind) & set(OWN_BINDINGS)


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ((exchange_binding("spy", ENTRY),), [ENTRY]),
        ((queue_binding(ENTRY, "spy"),), [ENTRY]),
        ((queue_binding(ROUTER, "spy"),), [ROUTER]),
    ],
)
def test_a_shared_exchange_that_somebody_uses_stays(
    more: tuple[Binding, ...], kept: list[str]
) -> None:
    """The others go."""
    plan = make_plan(facts(broker=broker(*more)), PLAIN)
    assert [each.entity.name for each in plan.keep] == kept
    assert not [binding for binding in plan.unbind if binding in more]


def test_shared_exchanges_stay_for_another_ledger() -> None:
    """This ledger's lanes go, and with them the router's binding to their receipts."""
    look = broker(own=own(others=["migrator.staging.zzz.0"]))
    plan = make_plan(facts(broker=look), PLAIN)
    assert names(plan.delete)[SATELLITES_ONLY:] == OURS[:3]
    assert [each.entity.name for each in plan.keep] == [ENTRY, ROUTER]
    assert all("migrator.staging.zzz.0" in each.why for each in plan.keep)
    assert OWN_BINDINGS[1] in plan.unbind
    assert OWN_BINDINGS[2] not in plan.unbind


def test_without_the_management_api_there_is_nothing_to_plan() -> None:
    """But the reason."""
    plan = make_plan(facts(broker=None), Wishes(drops_table=True))
    assert (plan.delete, plan.unbind, plan.drops_table) == ((), (), True)
    assert [each.code for each in plan.refusals] == ["management_missing"]


@pytest.mark.parametrize(("rows", "drops"), [(0, True), (None, False)])
def test_a_table_is_dropped_when_it_is_there(rows: int | None, drops: bool) -> None:
    """And wished for."""
    assert make_plan(facts(rows=rows), Wishes(drops_table=True)).drops_table is drops


def test_what_was_cut_and_not_finished_is_made_again() -> None:
    """If this one is refused."""
    look = broker(bindings=OWN_BINDINGS)
    plan = make_plan(facts(broker=look, unfinished=SATELLITE_BINDINGS), PLAIN)
    assert plan.bind_again == SATELLITE_BINDINGS


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"ledger": LedgerLook(recallable=4, last_due=datetime(2027, 1, 2, tzinfo=UTC))},
            "4 handed-over timeouts wait in the delay levels, the last until 2027-01-02",
        ),
        ({"is_dispatched": True}, "take it out"),
        ({"rows": None}, "public.Sales_TimeoutData is not there"),
        ({"broker": broker(satellites=[], satellite_exchanges=[])}, f"neither {TIMEOUTS} nor"),
    ],
)
def test_what_is_good_to_know_is_told(changes: dict[str, Any], told: str) -> None:
    """None of it is a reason against."""
    plan = make_plan(facts(**changes), PLAIN)
    assert plan.refusals == ()
    (note,) = plan.notes
    assert told in note
