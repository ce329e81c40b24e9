"""What goes, what stays and why, what prevents it, and which bindings come back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from migrator.decommission.report import (
    LedgerSnapshot,
    Options,
    QueueSnapshot,
    bindings_record,
    read_bindings,
)
from migrator.decommission.rules import (
    bindings_of,
    make_plan,
    refusals,
    satellite_entities,
    still_whole,
    unexpected_bindings,
    unfinished_bindings,
)
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity
from tests.unit.decommission.decommissions import (
    DELIVERY,
    DISPATCHER,
    ENTRY,
    OWN_BINDINGS,
    RECEIPTS,
    RETRY,
    ROUTER,
    SATELLITE_BINDINGS,
    STAGING,
    TARGET,
    TIMEOUTS,
    broker,
    exchange_binding,
    facts,
    names,
    own,
    queue_binding,
)

PLAIN = Options()
BILLS = [EndpointName("Bills")]
SALES = QueueName("Sales")


@pytest.mark.parametrize(
    ("look", "is_calm"),
    [
        (QueueSnapshot(name="q"), True),
        (QueueSnapshot(name="q", is_told=False), False),
        (QueueSnapshot(name="q", ready=1), False),
        (QueueSnapshot(name="q", unacked=1), False),
        (QueueSnapshot(name="q", held_back=1), False),
        (QueueSnapshot(name="q", consumers=1), False),
    ],
)
def test_only_what_is_known_to_be_empty_is_calm(look: QueueSnapshot, is_calm: bool) -> None:
    """What is unknown is not zero."""
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
    look = broker(satellite_exchanges=[], retries=[], satellites=[QueueSnapshot(name=DISPATCHER)])
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
        satellites=[QueueSnapshot(name=TIMEOUTS)],
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


def test_bindings_survive_as_json() -> None:
    """With both kinds of ends, keys and arguments."""
    given = (*SATELLITE_BINDINGS, *OWN_BINDINGS)
    assert read_bindings(json.loads(json.dumps(bindings_record(given)))) == given


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────


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
        ({"others_with_rows": BILLS}, "rows of Bills"),
        ({"target": replace(TARGET, forwarding=BILLS)}, "Bills is in mode"),
        ({"ledger": LedgerSnapshot(open_elsewhere=2)}, "2 batches of other"),
        ({"ledger": LedgerSnapshot(lanes=["lane.0 (x)"])}, "somebody works: lane.0 (x)"),
        ({"broker": broker(own=own(clients=["migrator x"]))}, "another migrator is connected"),
        (
            {"broker": broker(own=own(queues=[QueueSnapshot(name=STAGING, unacked=1)]))},
            f"{STAGING} has 1 messages and 0 consumers",
        ),
        (
            {"broker": broker(own=own(queues=[QueueSnapshot(name=RECEIPTS, is_told=False)]))},
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
    plan = make_plan(facts(broker=None), Options(drops_table=True))
    assert (plan.delete, plan.unbind, plan.drops_table) == ((), (), True)
    assert [each.code for each in plan.refusals] == ["management_missing"]


@pytest.mark.parametrize(("rows", "drops"), [(0, True), (None, False)])
def test_a_table_is_dropped_when_it_is_there(rows: int | None, drops: bool) -> None:
    """And wished for."""
    assert make_plan(facts(rows=rows), Options(drops_table=True)).drops_table is drops


def test_what_was_cut_and_not_finished_is_made_again() -> None:
    """If this one is refused."""
    look = broker(bindings=OWN_BINDINGS)
    plan = make_plan(facts(broker=look, unfinished=SATELLITE_BINDINGS), PLAIN)
    assert plan.bind_again == SATELLITE_BINDINGS


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"ledger": LedgerSnapshot(recallable=4, last_due=datetime(2027, 1, 2, tzinfo=UTC))},
            "4 handed-over timeouts wait in the delay levels, the last until 2027-01-02",
        ),
        ({"target": replace(TARGET, is_dispatched=True)}, "take it out"),
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


# ── what prevents it ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "changes", "told"),
    [
        ("rows_in_table", {"rows": 3}, "3 rows"),
        ("vendor_run", {"vendor_runs": ["half-finished"]}, "half-finished"),
        ("shared", {"target": replace(TARGET, sharing=[EndpointName("Twin")])}, "Twin"),
        ("open_rows", {"ledger": LedgerSnapshot(open_rows=5)}, "5 claimed"),
        ("doubtful_batches", {"ledger": LedgerSnapshot(doubtful=[BatchId(7)])}, "batches 7"),
        ("quarantined_rows", {"ledger": LedgerSnapshot(quarantined=2)}, "2 rows"),
        ("dispatcher_alive", {"ledger": LedgerSnapshot(dispatcher="host/1")}, "host/1"),
        ("run_alive", {"ledger": LedgerSnapshot(is_running=True, lanes=["lane.0 (me)"])}, "lane.0"),
        ("management_missing", {"broker": None}, "are unknown"),
        (
            "consumers",
            {"broker": broker(satellites=[QueueSnapshot(name=TIMEOUTS, consumers=2)])},
            f"2 consume {TIMEOUTS}",
        ),
        (
            "messages",
            {"broker": broker(satellites=[QueueSnapshot(name=DISPATCHER, unacked=1)])},
            "0 ready, 1 unacknowledged, 0 held back",
        ),
        ("messages", {"broker": broker(retries=[QueueSnapshot(name=RETRY, held_back=1)])}, RETRY),
        (
            "counts_unknown",
            {"broker": broker(satellites=[QueueSnapshot(name=TIMEOUTS, is_told=False)])},
            TIMEOUTS,
        ),
        ("foreign_binding", {"broker": broker(queue_binding("Events", TIMEOUTS))}, "Events"),
    ],
)
def test_each_reason_is_told(code: str, changes: dict[str, Any], told: str) -> None:
    """One by one, each with what to do."""
    (found,) = refusals(facts(**changes), PLAIN)
    assert found.code == code
    assert told in found.text
    assert found.remedy


def test_nothing_speaks_against_an_endpoint_that_is_done() -> None:
    """Also without a table, and with its own last run killed while nobody works."""
    assert refusals(facts(), PLAIN) == ()
    assert refusals(facts(rows=None, ledger=LedgerSnapshot(is_running=True)), PLAIN) == ()
    assert refusals(facts(ledger=LedgerSnapshot(lanes=["lane.0 (other)"])), PLAIN) == ()


def test_all_reasons_come_at_once() -> None:
    """Nobody has to try again for the next one."""
    against = facts(rows=1, broker=None, ledger=LedgerSnapshot(open_rows=1, quarantined=1))
    assert len(refusals(against, PLAIN)) == 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PLAIN, []),
        (Options(drops_table=True), ["recallable"]),
        (Options(drops_table=True, gives_up_recall=True), []),
    ],
)
def test_a_table_that_a_recall_could_want_is_not_dropped_by_the_way(
    options: Options, expected: list[str]
) -> None:
    """Only who says so gives the recall up."""
    given = facts(ledger=LedgerSnapshot(recallable=9))
    assert [found.code for found in refusals(given, options)] == expected


def test_a_table_that_endpoints_share_stays() -> None:
    """Who wants it dropped is refused; the others are told in a note."""
    given = facts(is_table_shared=True)
    (refusal,) = refusals(given, Options(drops_table=True))
    assert (refusal.code, "when the last endpoint is gone" in refusal.remedy) == (
        "table_shared",
        True,
    )
    assert refusals(given, PLAIN) == ()
    (note,) = make_plan(given, PLAIN).notes
    assert note.endswith("is shared by all endpoints of the store; it stays")
