"""What goes, what stays and why, what prevents it, and which bindings come back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from migrator.decommission.rules import (
    BrokerSnapshot,
    DatabaseSnapshot,
    Options,
    Plan,
    bindings_record,
    make_plan,
    read_bindings,
    still_whole,
)
from migrator.nservicebus.timeouts import BatchId, EndpointName
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
    names,
    queue,
    queue_binding,
)

PAGE = Path(__file__).parents[3] / "docs" / "decommission.md"

BILLS = [EndpointName("Bills")]
THERE = broker()
SATELLITES = [f"q:{RETRY}", f"q:{TIMEOUTS}", f"e:{TIMEOUTS}", f"q:{DISPATCHER}", f"e:{DISPATCHER}"]
"""Retry queues go first, so that nothing comes out of one, and each exchange behind its queue."""
OURS = [f"e:{STAGING}", f"q:{STAGING}", f"q:{RECEIPTS}", f"e:{ENTRY}", f"e:{ROUTER}"]


def plan(look: BrokerSnapshot | None = THERE, **changes: Any) -> Plan:
    """Return the plan for an endpoint that nothing prevents, but for *changes*."""
    target = replace(TARGET, **{k: changes.pop(k) for k in _OF_TARGET if k in changes})
    options = Options(**{k: changes.pop(k) for k in _OF_OPTIONS if k in changes})
    return make_plan(target, DatabaseSnapshot(**changes), look, options)


_OF_TARGET = ("forwarding", "sharing", "is_dispatched")
_OF_OPTIONS = ("drops_table", "gives_up_recall")


def codes(found: Plan) -> list[str]:
    """Return why it is refused."""
    return [each.code for each in found.refusals]


# ── what goes ─────────────────────────────────────────────────────────────────────────────────────


def test_everything_goes_when_nobody_needs_it() -> None:
    """Satellites first, ours last; the ways in are cut first, and no binding is told twice."""
    found = plan()
    assert names(found.delete) == [*SATELLITES, *OURS]
    assert found.unbind[:2] == (SATELLITE_BINDINGS[1], SATELLITE_BINDINGS[3])
    assert len(found.unbind) == len(SATELLITE_BINDINGS) + len(OWN_BINDINGS)
    assert set(found.unbind) == {*SATELLITE_BINDINGS, *OWN_BINDINGS}
    assert (found.keep, found.refusals, found.bind_again, found.notes) == ({}, (), (), ())


def test_what_is_not_there_is_not_deleted() -> None:
    """Direct topology has no exchanges; an earlier run may have deleted a queue."""
    look = broker(satellite_exchanges=[], retries=[], satellites=[queue(DISPATCHER)])
    assert names(plan(look).delete) == [f"q:{DISPATCHER}", *OURS]


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
    assert codes(plan(broker(binding))) == ["foreign_binding"]


def test_the_direct_topology_is_expected() -> None:
    """It binds queues to the delivery exchange."""
    assert codes(plan(broker(queue_binding(DELIVERY, TIMEOUTS, f"#.{TIMEOUTS}")))) == []


@pytest.mark.parametrize(
    ("look", "changes", "why"),
    [
        (THERE, {"others_with_rows": BILLS}, "rows of Bills"),
        (THERE, {"forwarding": BILLS}, "Bills is in mode"),
        (THERE, {"open_elsewhere": 2}, "2 batches of other"),
        (THERE, {"lanes": ["lane.0 (x)"]}, "a process works on lane.0 (x)"),
        (broker(clients=["migrator x"]), {}, "another migrator is connected"),
        (broker(lanes=[queue(STAGING, unacked=1)]), {}, "has 1 message and 0 consumers"),
        (broker(lanes=[queue(STAGING, consumers=1)]), {}, "has 0 messages and 1 consumer"),
        (broker(lanes=[queue(STAGING, held_back=1)]), {}, "has 1 message and 0 consumers"),
        (broker(lanes=[queue(RECEIPTS, is_told=False)]), {}, "does not report yet what is in"),
        (broker(queue_binding(STAGING, "spy")), {}, f"{STAGING} is bound to spy"),
        (broker(queue_binding("spy", RECEIPTS)), {}, f"spy is bound to {RECEIPTS}"),
    ],
)
def test_ours_stay_while_somebody_needs_them(
    look: BrokerSnapshot, changes: dict[str, Any], why: str
) -> None:
    """All of them, with why; the satellites go all the same."""
    found = plan(look, **changes)
    assert found.refusals == ()
    assert names(found.delete) == SATELLITES
    assert found.keep
    assert all(why in each for each in found.keep.values())
    assert not set(found.unbind) & set(OWN_BINDINGS)


@pytest.mark.parametrize(
    ("binding", "kept"),
    [
        (exchange_binding("spy", ENTRY), ENTRY),
        (queue_binding(ENTRY, "spy"), ENTRY),
        (queue_binding(ROUTER, "spy"), ROUTER),
    ],
    ids=str,
)
def test_a_shared_exchange_that_somebody_uses_stays(binding: Binding, kept: str) -> None:
    """The others go."""
    found = plan(broker(binding))
    assert [each.name for each in found.keep] == [kept]
    assert binding not in found.unbind


def test_shared_exchanges_stay_for_another_ledger() -> None:
    """This ledger's lanes go, and with them the router's binding to their receipts."""
    found = plan(broker(others=["migrator.staging.zzz.0"]))
    assert names(found.delete) == [*SATELLITES, *OURS[:3]]
    assert [each.name for each in found.keep] == [ENTRY, ROUTER]
    assert all("migrator.staging.zzz.0" in why for why in found.keep.values())
    assert OWN_BINDINGS[1] in found.unbind
    assert OWN_BINDINGS[2] not in found.unbind


@pytest.mark.parametrize(("rows", "drops"), [(0, True), (None, False)])
def test_a_table_is_dropped_when_it_is_there(rows: int | None, drops: bool) -> None:
    """And wished for; without the management API there is nothing else to plan."""
    found = plan(None, rows=rows, drops_table=True)
    assert (found.delete, found.unbind, found.drops_table) == ((), (), drops)


# ── what comes back ───────────────────────────────────────────────────────────────────────────────


def test_only_what_is_missing_and_has_both_ends_is_made_again() -> None:
    """What is bound, or whose queue is gone, is not."""
    look = broker(
        bindings=SATELLITE_BINDINGS[1:2],
        satellites=[queue(TIMEOUTS)],
        satellite_exchanges=[TIMEOUTS],
    )
    recorded = [*SATELLITE_BINDINGS, *OWN_BINDINGS]
    assert plan(look, unfinished=recorded).bind_again == (SATELLITE_BINDINGS[0], *OWN_BINDINGS)
    assert plan(None, unfinished=recorded).bind_again == ()


def test_what_lost_an_end_is_not_whole() -> None:
    """Neither as a source nor as a target."""
    gone = [exchange_entity(TIMEOUTS), queue_entity(STAGING)]
    found = still_whole([*SATELLITE_BINDINGS, OWN_BINDINGS[0]], gone)
    assert found == SATELLITE_BINDINGS[2:]


def test_bindings_survive_as_json() -> None:
    """With both kinds of ends, keys and arguments."""
    given = (*SATELLITE_BINDINGS, *OWN_BINDINGS)
    assert read_bindings(json.loads(json.dumps(bindings_record(given)))) == given


# ── what is told ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("look", "changes", "told"),
    [
        (
            THERE,
            {"recallable": 4, "last_due": datetime(2027, 1, 2, tzinfo=UTC)},
            "4 handed-over timeouts in the delay levels, the last until 2027-01-02",
        ),
        (THERE, {"is_dispatched": True}, "remove it there"),
        (THERE, {"rows": None}, "public.Sales_TimeoutData no longer exists"),
        (THERE, {"is_table_shared": True}, "is shared by all endpoints of the store; it stays"),
        (broker(satellites=[], satellite_exchanges=[]), {}, f"neither {TIMEOUTS} nor"),
    ],
)
def test_what_is_good_to_know_is_told(
    look: BrokerSnapshot, changes: dict[str, Any], told: str
) -> None:
    """None of it is a reason against."""
    found = plan(look, **changes)
    assert found.refusals == ()
    (note,) = found.notes
    assert told in note


@pytest.mark.parametrize(
    ("code", "look", "changes", "told"),
    [
        ("rows_in_table", THERE, {"rows": 3}, "3 rows"),
        ("vendor_run", THERE, {"vendor_runs": ["half-finished"]}, "half-finished"),
        ("shared", THERE, {"sharing": [EndpointName("Twin")]}, "Twin"),
        ("table_shared", THERE, {"is_table_shared": True, "drops_table": True}, "all endpoints"),
        ("open_rows", THERE, {"open_rows": 5}, "5 claimed"),
        ("doubtful_batches", THERE, {"doubtful": [BatchId(7)]}, "batches 7"),
        ("quarantined_rows", THERE, {"quarantined": 2}, "2 rows"),
        ("dispatcher_alive", THERE, {"dispatcher": "host/1"}, "host/1"),
        ("run_alive", THERE, {"is_running": True, "lanes": ["lane.0 (me)"]}, "lane.0"),
        ("recallable", THERE, {"recallable": 9, "drops_table": True}, "9 handed-over"),
        ("management_missing", None, {}, "are unknown"),
        (
            "consumers",
            broker(satellites=[queue(TIMEOUTS, consumers=2)]),
            {},
            f"2 consume {TIMEOUTS}",
        ),
        (
            "messages",
            broker(satellites=[queue(DISPATCHER, unacked=1)]),
            {},
            "0 ready, 1 unacknowledged, 0 held back",
        ),
        ("messages", broker(retries=[queue(RETRY, held_back=1)]), {}, RETRY),
        ("counts_unknown", broker(satellites=[queue(TIMEOUTS, is_told=False)]), {}, TIMEOUTS),
        ("foreign_binding", broker(queue_binding("Events", TIMEOUTS)), {}, "Events"),
    ],
)
def test_each_reason_is_told(
    code: str, look: BrokerSnapshot | None, changes: dict[str, Any], told: str
) -> None:
    """One by one, each with what to do; the page has them all."""
    (found,) = plan(look, **changes).refusals
    assert found.code == code
    assert told in found.text
    assert found.remedy
    assert f"`{code}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": None, "is_running": True},  # killed, while nobody works
        {"lanes": ["lane.0 (other)"]},
        {"is_table_shared": True},
        {"recallable": 9},
        {"recallable": 9, "drops_table": True, "gives_up_recall": True},
    ],
)
def test_nothing_speaks_against_an_endpoint_that_is_done(changes: dict[str, Any]) -> None:
    """Somebody else may work; a recall is given up by whoever says so."""
    assert codes(plan(**changes)) == []


def test_all_reasons_come_at_once() -> None:
    """Nobody has to try again for the next one."""
    assert len(plan(None, rows=1, open_rows=1, quarantined=1).refusals) == 4
