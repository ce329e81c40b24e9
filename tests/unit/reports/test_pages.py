"""Tests of ``migrator.reports``: the pages of a preview and of a verification."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from jinja2 import UndefinedError

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import BatchId, EndpointName, QueueName
from migrator.preflight.context import refused
from migrator.reports.pages import DUE, About, page, spelt
from migrator.reports.plan import PreviewDocument
from migrator.reports.preview import DRAWN, LISTED, preview_page
from migrator.reports.verify import verify_page
from migrator.stores.endpoints import Quarantinable
from migrator.verify.report import Discrepancy, LevelBalance
from tests.unit.reports.reading import Page, read, spaced
from tests.unit.reports.samples import (
    ABOUT,
    HOSTILE,
    balance,
    dispatched,
    endpoint,
    found,
    place,
    preview,
    verification,
)

# ── what all pages keep ─────────────────────────────────────────────────────────────────────────

NICE = "Sales"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section"),
    *("div", "p", "h1", "h2", "h3", "dl", "dt", "dd", "ul", "ol", "li", "span", "strong", "small"),
    *("code", "bdi", "data", "time", "table", "caption", "colgroup", "col", "thead", "tbody"),
    *("tr", "th", "td", "svg", "rect"),
}


def pages_about(name: str) -> list[str]:
    """Return one page of each kind in which everything that has a name is called *name*."""
    about = About(version="0.1.0", ledger=name, options=name, not_checked=[name])
    one = endpoint(name, source=name, destinations={QueueName(name): 3}, zone_offsets={})
    one.quarantine[next(iter(one.quarantine))].examples[:] = [name]
    one.quarantine[next(iter(one.quarantine))].detail = name
    modes = {name: "migrate", "Sent": "dispatch"}
    previewed = preview(
        one,
        endpoint("Other"),
        modes={**modes, "Other": "migrate"},
        dispatched=[dispatched("Sent", destinations={name: 1})],
    )
    checked = verification(
        endpoints=[balance(name, handed_over=4)],
        destinations=[place(name, waiting=3), place(None, waiting=1)],
        discrepancies=[found(name, name)],
        not_checked=[name],
        digest="abc",
    )
    return [
        preview_page(previewed, about=about),
        verify_page(checked, about=about),
    ]


def shape(text: str) -> list[tuple[str, list[str]]]:
    """Return all tags of a page, with the names of their attributes; backticks make code."""
    return [(tag, sorted(attrs)) for tag, attrs in read(text).tags if tag != "code" or attrs]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_changes_the_page(name: str) -> None:
    """Tags and attributes are those of a page about nice names, and the name is text."""
    for text, nice in zip(pages_about(name), pages_about(NICE), strict=True):
        assert shape(text) == shape(nice)
        assert text.encode()
        readable = spaced(str(spelt(name)).replace("`", ""))
        assert readable in read(text).text.replace("`", "")


@pytest.mark.parametrize("kind", [0, 1], ids=["preview", "verify"])
@pytest.mark.parametrize("name", [NICE, HOSTILE[4]])
def test_a_page_has_no_script_and_loads_nothing(name: str, kind: int) -> None:
    """Neither by an element, nor by an attribute, nor by its style."""
    text = pages_about(name)[kind]
    seen: Page = read(text)
    assert {tag for tag, _ in seen.tags} <= TAGS
    for _, attributes in seen.tags:
        assert not {each for each in attributes if each.startswith("on")}
        assert not {"src", "href", "srcset", "style", "xmlns", "action"} & set(attributes)
    assert not re.search(r"url\(|@import|expression|http|//", seen.style)
    assert not re.search(r"https?:|src=|@import|url\(", text)
    policy = next(a["content"] for tag, a in seen.tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")


def test_a_page_says_when_which_and_what_was_not_checked() -> None:
    """Whoever gets it by mail has nothing else."""
    for text in (
        preview_page(preview(endpoint()), about=ABOUT),
        verify_page(verification(not_checked=["level 21"]), about=ABOUT),
    ):
        seen = read(text).text
        assert "taken 2031-03-04 02:58:11 UTC version 0.1.0 ledger fd0b44d9ce25" in seen
        assert "What was not checked" in seen
        assert "What to do next" in seen


def test_what_is_missing_is_an_error() -> None:
    """Not an empty place in a report."""
    with pytest.raises(UndefinedError):
        page("preview.html", about=ABOUT)


# ── previews ────────────────────────────────────────────────────────────────────────────────────

CLEAN: dict[str, Any] = {"quarantine": {}}
REFUSED = refused("Sales", "no", "fix it")


def previewed(document: PreviewDocument, **more: Any) -> Page:
    """Return the page of a preview."""
    return read(preview_page(document, about=ABOUT, **more))


def test_numbers_of_a_preview_are_those_of_the_document() -> None:
    """In the lines of an endpoint, in the pictures and in what the reader sees first."""
    document = preview(endpoint())
    (each,) = document.endpoints
    page = previewed(document)
    assert page.table("What would happen to its timeouts") == {
        "stored": [each.stored, "in the table now"],
        "to migrate now": [each.to_migrate, "migrator run would take them out of the table"],
        "… to hand over": [each.to_hand_over, "they wait at the broker until they are due"],
        "… to quarantine": [3, "kept in the ledger with the reason"],
        "due before the cutoff": [each.left, "left to the timeout manager"],
        "due after the horizon": [each.beyond_horizon, "they stay in the table until nearer"],
        "without a usable due time": [each.without_due_time, "they stay for good"],
        "in the ledger already": [each.in_ledger, "claimed before; not claimed a second time"],
        "overdue": [each.overdue, "among these, whatever happens to them"],
    }
    assert page.table("Stored timeouts")["Sales"] == [each.stored]
    assert page.table("Each timeout counts once") == {
        "due": ["number"],
        **{DUE[step]: [count] for step, count in each.due.items()},
    }
    levels = page.table("Messages by the delay level")
    assert len(levels) == 29
    assert (levels["16"], levels["03"], levels["27"]) == (
        ["18 hours", 11_990],
        ["8 seconds", 7],
        ["4.3 years", 0],
    )
    assert page.table("Messages by destination")["Billing"] == [11_000]
    reason = f"no-destination {Reason.NO_DESTINATION.meaning}"
    assert page.table("To quarantine, and why")[reason] == [3, "nothing", "a1 b2"]
    assert "11 997 timeouts can be moved, 3 would go to quarantine" in page.text
    assert "Estimate for all of them: 6 seconds at 2 000 messages/s" in page.text


def test_several_endpoints_are_added_up() -> None:
    """In the pictures; the tables of each have its own numbers."""
    both = [endpoint(), endpoint("Billing", **CLEAN, destinations={QueueName("Billing"): 5})]
    modes = {"Sales": "migrate", "Billing": "forward", "Shipping": "x"}
    document = preview(*both, modes=modes, dispatched=[dispatched()])
    page = previewed(document, attended=["Billing"])
    sums: Counter[str] = Counter()
    for each in document.endpoints:
        sums.update(each.due)
    due = page.table("Each timeout counts once")
    assert {DUE[step]: [count] for step, count in sums.items()}.items() <= due.items()
    places = page.table("Messages by destination")
    assert (places["Billing"], places["Shipping"]) == ([11_005], [997 + 810])
    assert page.table("Stored timeouts")["Shipping"] == [812]
    tables = [t for t in page.tables if t.caption == "What would happen to its timeouts"]
    assert [row[1] for row in tables[2].rows] == [812, 810, 2, 0, 0, 3]
    assert ["due before the cutoff", 44, "sent by migrator when due"] in tables[1].rows
    assert "810 timeouts would be sent when due, 5 would go to quarantine" in page.text
    levels = next(t for t in page.tables if t.caption == "Level on which they start")
    assert levels.rows == [["3", 7], ["16", 11_990]]


@pytest.mark.parametrize(
    ("changes", "title", "tone"),
    [
        (CLEAN, "12 000 timeouts can be moved", "good"),
        ({}, "11 997 timeouts can be moved, 3 would go to quarantine", "care"),
        (CLEAN | {"without_due_time": 2}, "12 000 timeouts can be moved", "care"),
        (CLEAN | {"to_migrate": 0}, "Nothing would be moved now", "good"),
        (CLEAN | {"to_migrate": 0, "stored": 0}, "No timeouts are stored", "good"),
    ],
)
def test_the_verdict_of_a_preview_comes_first(
    changes: dict[str, Any], title: str, tone: str
) -> None:
    """Green only when there is nothing to look at."""
    page = previewed(preview(endpoint(**changes)))
    assert ("section", f"verdict {tone}") in [(tag, a.get("class")) for tag, a in page.tags]
    assert title in page.text
    assert ("migrator run --endpoint Sales" in page.text) == ("can be moved" in title)


@pytest.mark.parametrize(
    ("changes", "title", "tone"),
    [
        (
            {"verdict": "refused", "findings": [REFUSED, REFUSED]},
            "A run would be refused for 2 reasons",
            "bad",
        ),
        ({"asks_broker": False}, "12 000 timeouts can be moved; the broker was not asked", "care"),
    ],
)
def test_a_preview_of_a_run_that_may_not_start_promises_nothing(
    changes: dict[str, Any], title: str, tone: str
) -> None:
    """As on the terminal, the headline is red when a run would be refused."""
    page = previewed(preview(endpoint(**CLEAN), **changes))
    assert ("section", f"verdict {tone}") in [(tag, a.get("class")) for tag, a in page.tags]
    assert title in page.text
    assert ("timeouts can be moved" in page.text) == ("can be moved" in title)


def test_what_waits_for_a_destination_is_not_called_movable() -> None:
    """The page and the terminal say the same numbers."""
    waits = "would wait for a destination"
    page = previewed(preview(endpoint(**CLEAN), waiting={"Billing": 40}))
    assert f"11 960 timeouts can be moved, 40 {waits} that cannot be reached" in page.text
    assert re.search(rf"11 960\W+can be moved.* 40\W+{waits}", page.text)
    none = previewed(preview(endpoint(**CLEAN), waiting={"Billing": 12_000}))
    assert f"0 timeouts can be moved, 12 000 {waits} that cannot be reached" in none.text
    assert waits not in previewed(preview(endpoint(**CLEAN))).text


def test_warnings_are_told() -> None:
    """Rows that stay, and columns in local time; and what was not looked at."""
    offsets = {timedelta(hours=2): 17, timedelta(minutes=-330): 1}
    odd = {"odd": Quarantinable(count=2, examples=["id-1"])}
    one = endpoint(
        zone_offsets=offsets, without_due_time=6, unclaimable=odd, unmeasured=9, is_complete=False
    )
    page = previewed(preview(one, asks_broker=False))
    for told in (
        "+2 h from the row's own header: 17.",
        "-5.5 h from the row's own header: 1.",
        "rows that are never claimed, odd: 2, such as id-1.",
        "timeout manager would ever reach: 4.",
        "rows whose body size is not known: 9.",
        "Ask an engineer who knows the endpoints to read the warnings",
        "The broker, because of",
        "Endpoint Sales: only the first 12 345 rows",
    ):
        assert told in page.text


def test_thousands_of_destinations_of_a_preview_stay_readable() -> None:
    """The most wanted are shown, the rest is added up."""
    many = {QueueName(f"Queue{n:03d}"): 1_000 - n for n in range(300)}
    page = previewed(preview(endpoint(destinations=many)))
    drawn, listed = [t for t in page.tables if t.caption == "Messages by destination"]
    assert len(drawn.rows) == 1 + DRAWN + 1
    rest = sum(sorted(many.values())[: 300 - DRAWN])
    assert drawn.rows[-1] == ["285 others together", "", rest]
    assert len(listed.rows) == LISTED
    assert "and 100 more, which --json lists" in page.text


def test_what_is_empty_makes_a_page_too() -> None:
    """Without pictures, since there is nothing to draw; evidence can be told from another."""
    page = previewed(preview())
    assert page.tables == []
    assert "No timeouts are stored" in page.text
    only = previewed(preview(dispatched=[dispatched()], modes={"Shipping": "dispatch"}))
    assert "810 timeouts would be sent when due" in only.text
    assert only.table("Messages by destination")["Shipping"] == [810]
    page = verified(endpoints=[], destinations=[], levels=(), digest="9f86d081")
    assert "Nothing was claimed yet." in page.text
    assert page.tables == []
    assert "9f86d081" in page.text


# ── verifications ───────────────────────────────────────────────────────────────────────────────

GONE: dict[str, Any] = {"counts": {Discrepancy.ROWS_GONE: 41}, "discrepancies": [found()]}


def verified(**changes: Any) -> Page:
    """Return the page of a verification."""
    return read(verify_page(verification(**changes), about=ABOUT))


def test_numbers_of_a_verification_are_those_of_the_document() -> None:
    """In the counts, the pictures and the tables."""
    document = verification()
    page = verified()
    (each,) = document.endpoints
    counts = {name: cells[0] for name, cells in page.table("In the ledger").items()}
    assert counts == {
        "claimed": each.claimed,
        "handed over": each.handed_over,
        "dispatched": each.dispatched,
        "in flight": each.in_flight,
        "parked": each.parked,
        "in quarantine": each.quarantined,
        "released": each.released,
        "recalled": each.recalled,
        "discarded": each.discarded,
        "doubtful": each.doubtful,
        "purged": each.purged,
        "unaccounted": each.unaccounted,
        "still in the table": each.in_store,
    }
    assert page.table("Every timeout")["Sales"] == [each.claimed]
    assert page.table("Timeouts by destination")["Billing"] == [12_000]
    assert page.table("Handed over for each")["Billing"] == ["Sales", 7_000, 5_000, 0]
    level_bars = page.table("Messages in the delay levels")
    levels = page.table("Messages in each level")
    for level in document.levels:
        assert level_bars[f"{level.level:02d}"][-1] == level.total
        if level.total:
            row = levels[f"v2 {level.level}"]
            assert row == [level.total, level.ours, level.foreign]
    for number in (document.rows_checked, document.waiting):
        assert f"{number:,}".replace(",", " ") in page.text


@pytest.mark.parametrize(
    ("changes", "title", "tone", "step"),
    [
        ({}, "Verified: every timeout is accounted for", "good", "There is nothing to do"),
        (
            {"not_checked": ["level 21"]},
            "No contradiction found, but 1 thing not checked",
            "care",
            "See below what was not checked",
        ),
        (
            {"endpoints": [balance(handed_over=5, quarantined=2)]},
            "Not finished: 2 timeouts in quarantine",
            "care",
            "migrator quarantine list",
        ),
        (
            {"doubtful": [BatchId(9)], "endpoints": [balance(doubtful=5)]},
            "Not settled: 1 doubtful batch",
            "care",
            "migrator db resolve",
        ),
        (GONE, "Not verified: 41 contradictions", "bad", "Delete and purge nothing"),
        (
            {"levels": ()},
            "Verified: every timeout is accounted for",
            "good",
            "migrator verify --deep --endpoint Sales",
        ),
    ],
)
def test_the_verdict_of_a_verification_comes_first(
    changes: dict[str, Any], title: str, tone: str, step: str
) -> None:
    """Green only when all was looked at and nothing is left to do for a person."""
    page = verified(**changes)
    assert ("section", f"verdict {tone}") in [(tag, a.get("class")) for tag, a in page.tags]
    assert title in page.text
    assert step in page.text
    assert ("There is nothing to do" in page.text) == (not changes)


def test_what_does_not_agree_is_explained() -> None:
    """Each kind with its number and what to do, and the first of them."""
    page = verified(**GONE, doubtful=[BatchId(9), BatchId(12)])
    assert page.table("Kinds")["rows are gone from the ledger rows_gone"] == [
        41,
        "They were deleted. Compare with a backup of the ledger.",
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
    page = verified(levels=levels, not_checked=["level 21"])
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


def test_thousands_of_destinations_of_a_verification_stay_readable() -> None:
    """And one without a name has its line."""
    places = [place(f"Queue{n:03d}", waiting=n) for n in range(300)]
    page = verified(destinations=[place(None, waiting=1_000), *places])
    assert page.table("Timeouts by destination")["(none)"] == [1_000]
    assert "and 286 more, which --json lists" in page.text
    assert "and 101 more, which --json lists" in page.text


def test_a_destination_of_two_endpoints_has_one_bar() -> None:
    """With the sum of both; the table below has a line for each."""
    sales = place("Billing", waiting=7_000, left=5_000)
    shop = replace(sales, endpoint=EndpointName("Shop"), waiting=30, left=2)
    page = verified(destinations=[sales, shop])
    rows = {table.caption: table.rows[1:] for table in page.tables}
    assert rows["Timeouts by destination, as the ledger knows"] == [["Billing", "", 12_032]]
    assert rows["Handed over for each destination"] == [
        ["Billing", "Sales", 7_000, 5_000, 0],
        ["Billing", "Shop", 30, 2, 0],
    ]
