"""Tests of ``migrator.reports.verify``."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import BatchId
from migrator.reports.verify import verify_page
from migrator.verify.report import Discrepancy, LevelBalance
from tests.unit.reports.reading import Page, read
from tests.unit.reports.samples import ABOUT, balance, found, place, verification

GONE: dict[str, Any] = {"counts": {Discrepancy.ROWS_GONE: 41}, "discrepancies": [found()]}


def shown(**changes: Any) -> Page:
    """Return the page of a verification."""
    return read(verify_page(verification(**changes), about=ABOUT))


def test_numbers_are_those_of_the_document() -> None:
    """In the books, the pictures and the tables."""
    document = verification()
    page = shown()
    (each,) = document["endpoints"]
    books = {name: cells[0] for name, cells in page.table("Its books").items()}
    assert books == {
        "came into the books": each["claimed"],
        "handed over": each["handed_over"],
        "dispatched": each["dispatched"],
        "in flight": each["in_flight"],
        "set aside": each["quarantined"],
        "released": each["released"],
        "recalled": each["recalled"],
        "doubtful": each["doubtful"],
        "purged": each["purged"],
        "unaccounted": each["unaccounted"],
        "still in the table": each["in_store"],
    }
    assert page.table("Every timeout")["Sales"] == [each["claimed"]]
    assert page.table("Timeouts by destination")["Billing"] == [12_000]
    assert page.table("Handed over for each")["Billing"] == ["Sales", 7_000, 5_000, 0]
    rungs = page.table("Messages in the delay levels")
    levels = page.table("Messages in each level")
    for level in document["levels"]:
        assert rungs[f"{level['level']:02d}"][-1] == level["total"]
        if level["total"]:
            row = levels[f"v2 {level['level']}"]
            assert row == [level["total"], level["ours"], level["foreign"]]
    for number in ("rows_checked", "waiting"):
        assert f"{document[number]:,}".replace(",", "\u202f") in page.text


@pytest.mark.parametrize(
    ("changes", "title", "tone", "step"),
    [
        ({}, "Everything agrees", "good", "There is nothing to do"),
        (
            {"not_checked": ["level 21"]},
            "Everything that was looked at agrees",
            "care",
            "Read what was not checked",
        ),
        (
            {"endpoints": [balance(handed_over=5, quarantined=2)]},
            "some timeouts are set aside",
            "care",
            "migrator quarantine list",
        ),
        (
            {"doubtful": [BatchId(9)], "endpoints": [balance(doubtful=5)]},
            "Of some batches nobody can tell",
            "care",
            "migrator batch list",
        ),
        (GONE, "Something does not agree", "bad", "Delete and purge nothing"),
        ({"levels": ()}, "Everything agrees", "good", "migrator verify --scan --endpoint Sales"),
    ],
)
def test_the_verdict_comes_first(changes: dict[str, Any], title: str, tone: str, step: str) -> None:
    """Green only when all was looked at and nothing is left to do for a person."""
    page = shown(**changes)
    assert ("section", f"verdict {tone}") in [(tag, a.get("class")) for tag, a in page.tags]
    assert title in page.text
    assert step in page.text
    assert ("There is nothing to do" in page.text) == (not changes)


def test_what_does_not_agree_is_explained() -> None:
    """Each kind with its number and what to do, and the first of them."""
    page = shown(**GONE, doubtful=[BatchId(9), BatchId(12)])
    assert page.table("Kinds")["rows are gone from the ledger rows_gone"] == [
        41,
        "Somebody deleted them. Look into a backup of the ledger.",
    ]
    assert page.table("The first of each kind")["rows_gone"] == ["7", "too few"]
    assert "Found: 41 contradictions" in page.text
    assert "Doubtful batches: 9, 12" in page.text


def test_what_is_not_known_is_not_0() -> None:
    """A level nobody looked at, a table that is gone, rows that are in no state."""
    levels = [
        LevelBalance(delays=DelaysVersion.V2, level=21, total=None, ours=None, foreign=None),
        LevelBalance(delays=DelaysVersion.V2, level=20, total=12, ours=None, foreign=None),
        LevelBalance(delays=DelaysVersion.V1, level=20, total=7, ours=3, foreign=0),
        LevelBalance(delays=DelaysVersion.V1, level=19, total=7, ours=3, foreign=0),
    ]
    page = shown(levels=levels, not_checked=["level 21"])
    assert page.table("Messages in the delay levels")["21"] == ["24 days", None]
    assert page.table("Messages in the delay levels")["20"] == ["12 days", 19]
    assert page.table("Messages in each level") == {
        "level": ["messages", "of this migration", "of others"],
        "v2 21": [None, None, None],
        "v2 20": [12, None, None],
        "v1 20": [7, 3, 0],
        "v1 19": [7, 3, 0],
    }
    assert "not looked at" in page.text


def test_thousands_of_destinations_stay_readable() -> None:
    """And one without a name has its line."""
    places = [place(f"Queue{n:03d}", waiting=n) for n in range(300)]
    page = shown(destinations=[place(None, waiting=1_000), *places])
    assert page.table("Timeouts by destination")["(none)"] == [1_000]
    assert "and 286 more, which --format json lists" in page.text
    assert "and 101 more, which --format json lists" in page.text


def test_an_empty_ledger_makes_a_page_too() -> None:
    """And the evidence of it can be told from another."""
    page = shown(endpoints=[], destinations=[], levels=(), digest="9f86d081")
    assert "Nothing came into the books yet." in page.text
    assert page.tables == []
    assert "9f86d081" in page.text
