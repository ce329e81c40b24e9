"""Tests of ``migrator.reports.preview``."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from migrator.nservicebus.timeouts import QueueName
from migrator.reports.preview import DRAWN, LISTED, preview_page
from migrator.reports.words import DUE
from tests.unit.reports.reading import Page, read
from tests.unit.reports.samples import ABOUT, dispatched, endpoint, preview

CLEAN: dict[str, Any] = {"quarantine": {}}


def shown(document: Any, **more: Any) -> Page:
    """Return the page of *document*."""
    return read(preview_page(document, about=ABOUT, **more))


def test_numbers_are_those_of_the_document() -> None:
    """In the lines of an endpoint, in the pictures and in what the reader sees first."""
    document = preview(endpoint())
    (each,) = document["endpoints"]
    page = shown(document)
    assert page.table("What would become of its timeouts") == {
        "stored": [each["stored"], "in the table now"],
        "to migrate now": [each["to_migrate"], "migrator run would take them out of the table"],
        "… to hand over": [each["to_hand_over"], "they wait at the broker until they are due"],
        "… to set aside": [3, "kept in the ledger with the reason"],
        "due before the cutoff": [each["left"], "left to the timeout manager"],
        "due after the horizon": [each["beyond_horizon"], "they stay in the table until nearer"],
        "without a usable due time": [each["without_due_time"], "they stay for good"],
        "in the ledger already": [each["in_ledger"], "claimed before; not claimed a second time"],
        "overdue": [each["overdue"], "among these; whatever becomes of them"],
    }
    assert page.table("Stored timeouts")["Sales"] == [each["stored"]]
    assert page.table("Each timeout counts once") == {
        "due": ["number"],
        **{DUE[step]: [count] for step, count in each["due"].items()},
    }
    rungs = page.table("Messages by the delay level")
    assert len(rungs) == 29
    assert (rungs["16"], rungs["03"], rungs["27"]) == (
        ["18 hours", 11_990],
        ["8 seconds", 7],
        ["4.3 years", 0],
    )
    assert page.table("Messages by destination")["Billing"] == [11_000]
    reason = "no-destination nothing says where the message has to go"
    assert page.table("To set aside, and why")[reason] == [3, "nothing", "a1 b2"]
    assert "11\u202f997 timeouts can be moved, 3 would be set aside" in page.text
    assert "Estimate for all of them: 6 seconds at 2000 messages a second" in page.text


def test_several_endpoints_are_added_up() -> None:
    """In the pictures; the tables of each have its own numbers."""
    both = [endpoint(), endpoint("Billing", **CLEAN, destinations={QueueName("Billing"): 5})]
    document = preview(*both, modes={"Sales": "migrate", "Billing": "forward", "Shipping": "x"})
    page = shown({**document, "dispatched": [dispatched()]}, attended=["Billing"])
    sums: Counter[str] = Counter()
    for each in document["endpoints"]:
        sums.update(each["due"])
    due = page.table("Each timeout counts once")
    assert {DUE[step]: [count] for step, count in sums.items()}.items() <= due.items()
    places = page.table("Messages by destination")
    assert (places["Billing"], places["Shipping"]) == ([11_005], [997 + 810])
    assert page.table("Stored timeouts")["Shipping"] == [812]
    tables = [t for t in page.tables if t.caption == "What would become of its timeouts"]
    assert [row[1] for row in tables[2].rows] == [812, 810, 2, 0, 0, 3]
    assert ["due before the cutoff", 44, "sent by migrator when due"] in tables[1].rows
    assert "810 timeouts would be sent when due, 5 would be set aside" in page.text
    levels = next(t for t in page.tables if t.caption == "Level on which they start")
    assert levels.rows == [["3", 7], ["16", 11_990]]


@pytest.mark.parametrize(
    ("changes", "title", "tone"),
    [
        (CLEAN, "12\u202f000 timeouts can be moved", "good"),
        ({}, "11\u202f997 timeouts can be moved, 3 would be set aside", "care"),
        (CLEAN | {"without_due_time": 2}, "12\u202f000 timeouts can be moved", "care"),
        (CLEAN | {"to_migrate": 0}, "Nothing would be moved now", "good"),
        (CLEAN | {"to_migrate": 0, "stored": 0}, "No timeouts are stored", "good"),
    ],
)
def test_the_verdict_comes_first(changes: dict[str, Any], title: str, tone: str) -> None:
    """Green only when there is nothing to look at."""
    page = shown(preview(endpoint(**changes)))
    assert ("section", f"verdict {tone}") in [(tag, a.get("class")) for tag, a in page.tags]
    assert title in page.text
    assert ("migrator run --endpoint Sales" in page.text) == ("can be moved" in title)


def test_warnings_are_told() -> None:
    """Rows without a due time, and columns in local time."""
    offsets = {timedelta(hours=2): 17, timedelta(minutes=-330): 1}
    page = shown(preview(endpoint(zone_offsets=offsets, without_due_time=6)))
    assert "+2 h from the row's own header: 17." in page.text
    assert "-5.5 h from the row's own header: 1." in page.text
    assert "timeout manager would ever reach: 6." in page.text
    assert "Have somebody who knows the endpoints read the warnings" in page.text


def test_what_was_not_looked_at_is_told() -> None:
    """The broker always, and rows that were left out."""
    page = shown(preview(endpoint(is_complete=False)))
    assert "a preview reads the database only" in page.text
    assert "Endpoint Sales: only the first 12\u202f345 rows" in page.text


def test_thousands_of_destinations_stay_readable() -> None:
    """The most wanted are shown, the rest is added up."""
    many = {QueueName(f"Queue{n:03d}"): 1_000 - n for n in range(300)}
    page = shown(preview(endpoint(destinations=many)))
    drawn, listed = [t for t in page.tables if t.caption == "Messages by destination"]
    assert len(drawn.rows) == 1 + DRAWN + 1
    rest = sum(sorted(many.values())[: 300 - DRAWN])
    assert drawn.rows[-1] == ["285 others together", "", rest]
    assert len(listed.rows) == LISTED
    assert "and 100 more, which --format json lists" in page.text


def test_an_empty_store_makes_a_page_too() -> None:
    """Without pictures, since there is nothing to draw."""
    page = shown(preview())
    assert page.tables == []
    assert "No timeouts are stored" in page.text
    only = shown(preview(dispatched=[dispatched()], modes={"Shipping": "dispatch"}))
    assert "810 timeouts would be sent when due" in only.text
    assert only.table("Messages by destination")["Shipping"] == [810]
