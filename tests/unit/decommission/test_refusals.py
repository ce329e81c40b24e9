"""Every reason against a decommission has a code, a text and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.decommission.plan import make_plan
from migrator.decommission.refusals import refusals
from migrator.decommission.rules import LedgerLook, Neighbours, QueueLook, Wishes
from migrator.nservicebus.timeouts import BatchId, EndpointName
from tests.unit.decommission.decommissions import (
    DISPATCHER,
    RETRY,
    TIMEOUTS,
    broker,
    facts,
    queue_binding,
)

PLAIN = Wishes()
SATELLITES = [QueueLook(name=TIMEOUTS), QueueLook(name=DISPATCHER)]


@pytest.mark.parametrize(
    ("code", "changes", "told"),
    [
        ("rows_in_table", {"rows": 3}, "3 rows"),
        ("vendor_run", {"vendor_runs": ["half-finished"]}, "half-finished"),
        ("shared", {"neighbours": Neighbours(sharing=[EndpointName("Twin")])}, "Twin"),
        ("open_rows", {"ledger": LedgerLook(open_rows=5)}, "5 claimed"),
        ("doubtful_batches", {"ledger": LedgerLook(doubtful=[BatchId(7)])}, "batches 7"),
        ("quarantined_rows", {"ledger": LedgerLook(quarantined=2)}, "2 rows"),
        ("dispatcher_alive", {"ledger": LedgerLook(dispatcher="host/1")}, "host/1"),
        ("run_alive", {"ledger": LedgerLook(is_running=True, lanes=["lane.0 (me)"])}, "lane.0"),
        ("management_missing", {"broker": None}, "nobody tells"),
        (
            "consumers",
            {"broker": broker(satellites=[QueueLook(name=TIMEOUTS, consumers=2)])},
            f"2 consume {TIMEOUTS}",
        ),
        (
            "messages",
            {"broker": broker(satellites=[QueueLook(name=DISPATCHER, unacked=1)])},
            "0 ready, 1 unacknowledged, 0 held back",
        ),
        ("messages", {"broker": broker(retries=[QueueLook(name=RETRY, held_back=1)])}, RETRY),
        (
            "counts_unknown",
            {"broker": broker(satellites=[QueueLook(name=TIMEOUTS, is_told=False)])},
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
    assert refusals(facts(rows=None, ledger=LedgerLook(is_running=True)), PLAIN) == ()
    assert refusals(facts(ledger=LedgerLook(lanes=["lane.0 (other)"])), PLAIN) == ()


def test_all_reasons_come_at_once() -> None:
    """Nobody has to try again for the next one."""
    against = facts(rows=1, broker=None, ledger=LedgerLook(open_rows=1, quarantined=1))
    assert len(refusals(against, PLAIN)) == 4


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (PLAIN, []),
        (Wishes(drops_table=True), ["recallable"]),
        (Wishes(drops_table=True, gives_up_recall=True), []),
    ],
)
def test_a_table_that_a_recall_could_want_is_not_dropped_by_the_way(
    wishes: Wishes, expected: list[str]
) -> None:
    """Only who says so gives the recall up."""
    given = facts(ledger=LedgerLook(recallable=9))
    assert [found.code for found in refusals(given, wishes)] == expected


def test_a_table_that_endpoints_share_stays() -> None:
    """Who wants it dropped is refused; the others are told in a note."""
    given = facts(is_table_shared=True)
    (refusal,) = refusals(given, Wishes(drops_table=True))
    assert (refusal.code, "when the last endpoint is gone" in refusal.remedy) == (
        "table_shared",
        True,
    )
    assert refusals(given, PLAIN) == ()
    (note,) = make_plan(given, PLAIN).notes
    assert note.endswith("is shared by all endpoints of the store; it stays")
