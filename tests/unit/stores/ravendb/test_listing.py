"""Tests of ``migrator.stores.ravendb.listing``: pages without a gap, and what is due next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.nservicebus.timeouts import TimeoutId
from migrator.stores.documents.ports import DueRange, Entry
from migrator.stores.ravendb import listing as module
from migrator.stores.ravendb.families import Modern, RawDocument, Request
from migrator.stores.ravendb.http import ONE_DOCUMENT_BYTES, AnswerTooLarge
from migrator.stores.ravendb.listing import ListedPage, Listing, RavenReader, SoonestEntries


def raw(number: int) -> RawDocument:
    """Return a document."""
    return RawDocument(id=name(number), version="v", collection="c", content={}, metadata={})


def name(number: int) -> str:
    """Return its id."""
    return f"T/{number:03}"


def page_of(
    there: Sequence[int], after: str | None, size: int, *, steps: bool
) -> list[RawDocument]:
    """Return a page as a server does, one of those that *steps* over what it found, or a later."""
    if after is None:
        return [raw(n) for n in sorted(there)[:size]]
    names = sorted(name(n) for n in there)
    start = bisect_left(names, after) + 1 if steps else bisect_right(names, after)
    return [raw(int(each.removeprefix("T/"))) for each in names[start : start + size]]


changes = st.lists(
    st.tuples(st.integers(2, 9), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40))),
    max_size=12,
)


@given(st.sets(st.integers(0, 40)), changes, st.booleans())
def test_all_that_stays_is_told_once(
    there: set[int], between: list[tuple[int, set[int], set[int]]], steps: bool
) -> None:
    """Before each page some are removed and some are stored; page sizes differ."""
    stayed, told, listing = set(there), list[str](), Listing()
    plan = iter(between)
    for _ in range(500):
        if listing.is_done:
            break
        size, gone, new = next(plan, (3, set[int](), set[int]()))
        there = (there - gone) | new
        stayed -= gone
        page = page_of(list(there), listing.after, size, steps=steps)
        told += [each.id for each in listing.add(page)]
    assert listing.is_done
    assert len(told) == len(set(told))
    assert {name(n) for n in stayed} <= set(told)


class TooLarge:
    """A server whose answers are too large, but of one document at a time; it ignores case."""

    def send(self, request: Request, *, at_most_bytes: int) -> dict[str, Any]:
        """Answer a request for documents by id."""
        if at_most_bytes < ONE_DOCUMENT_BYTES:
            raise AnswerTooLarge
        found = [
            {"@metadata": {"@id": each.upper(), "@change-vector": "v"}}
            for _, each in request.query[:1]
        ]
        return {"Results": found}


def test_large_documents_read_singly_are_those_that_were_asked_for() -> None:
    """As when they are read together, one whose id is written otherwise is another."""
    reader = RavenReader(cast("Any", TooLarge()), Modern())
    assert [each.id for each in reader.by_id([name(1), name(2).lower()])] == [name(1)]


NOW = datetime(2026, 11, 3, tzinfo=UTC)
ALWAYS = DueRange(None, NOW + timedelta(days=10_000))


def at(second: int) -> datetime:
    """Return a due time."""
    return NOW + timedelta(seconds=second)


class Listed:
    """A collection that counts how often it is listed, each time for a second."""

    def __init__(self, due: dict[str, list[int]], *, is_ascending: bool = False) -> None:
        """Hold a timeout for each due second of each endpoint."""
        self.due = due
        self.step = 1 if is_ascending else -1
        self.times = 0
        self.now_s = 0.0
        self.soonest = SoonestEntries(self.pages, lambda: self.now_s)

    def entries(self, endpoint: str) -> list[Entry]:
        """Return what there is of an endpoint, ascending."""
        seconds = self.due.get(endpoint, [])
        return sorted(
            Entry(due_at=at(s), id=TimeoutId(f"{endpoint}/{n}")) for n, s in enumerate(seconds)
        )

    def pages(self) -> Iterator[ListedPage]:
        """List all, three at a time."""
        self.times += 1
        self.now_s += 1.0
        for endpoint in self.due:
            entries = [(endpoint, entry) for entry in self.entries(endpoint)]
            entries = entries[:: self.step]
            for start in range(0, len(entries), 3):
                page = entries[start : start + 3]
                yield len(page), page


@given(
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 40), max_size=25), min_size=1),
    st.sampled_from("abc"),
    st.none() | st.integers(0, 40),
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(1, 20),
)
@settings(deadline=None)
def test_the_soonest_are_those_of_a_sorted_list(
    due: dict[str, list[int]], endpoint: str, after: int | None, until: int, most: int, kept: int
) -> None:
    """However little is kept, whoever asked before: the first of the range, in order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL_COLLECTION", 0)
        patch.setattr(module, "KEPT_ENTRIES", kept)
        listing = Listed(due)
        for asked in ("a", endpoint):
            behind = None if after is None else at(after)
            found = listing.soonest.between(asked, DueRange(behind, at(until)), most)
            expected = [
                entry
                for entry in listing.entries(asked)
                if entry.due_at in DueRange(behind, at(until))
            ]
            assert list(found) == expected[:most]


def test_what_comes_after_a_cut_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late entry that is listed after soon ones were cut is not taken for the next one."""
    monkeypatch.setattr(module, "SMALL_COLLECTION", 0)
    monkeypatch.setattr(module, "KEPT_ENTRIES", 6)
    listing = Listed({"b": [1], "a": [*range(12), 90]}, is_ascending=True)
    listing.soonest.between("b", ALWAYS, 1)
    assert [e.due_at for e in listing.soonest.between("a", ALWAYS, 4)] == [*map(at, range(4))]
    assert listing.times == 2  # three of "a" were kept, and the 91st second is not the fourth


def test_memory_is_bounded_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all endpoints together no more is kept than that, and something of each."""
    monkeypatch.setattr(module, "SMALL_COLLECTION", 0)
    monkeypatch.setattr(module, "KEPT_ENTRIES", 40)
    listing = Listed({"a": [*range(100)], "b": [*range(3)], "c": [*range(100)]})
    listing.soonest.between("a", ALWAYS, 5)
    kept = {each.owner: len(each.entries) for each in listing.soonest.recent._listings}
    assert sum(kept.values()) <= 40
    assert kept["b"] == 3
    assert min(kept.values()) > 0


def test_what_is_remembered_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as long as it took; listing is never most of what is done."""
    monkeypatch.setattr(module, "SMALL_COLLECTION", 0)
    listing = Listed({"a": [*range(9)]})
    for _ in range(5):
        listing.soonest.between("a", ALWAYS, 3)
    assert listing.times == 1
    listing.now_s += 10
    listing.soonest.between("a", ALWAYS, 3)
    assert listing.times == 2
    listing.soonest.forget()
    listing.soonest.between("a", ALWAYS, 3)
    assert listing.times == 3


def test_what_is_put_back_during_a_listing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing may not have met it, so it is not remembered."""
    monkeypatch.setattr(module, "SMALL_COLLECTION", 0)
    listing = Listed({"a": [1]})
    putting_back = Thread(target=lambda: soonest.forget())

    def pages() -> Iterator[ListedPage]:
        if listing.times == 0:
            putting_back.start()
            putting_back.join(0.1)
        yield from listing.pages()

    soonest = SoonestEntries(pages, lambda: listing.now_s)
    soonest.between("a", ALWAYS, 2)
    putting_back.join()
    listing.due["a"].append(2)
    assert len(soonest.between("a", ALWAYS, 2)) == 2


def test_a_small_collection_is_never_remembered() -> None:
    """What was just stored is seen at once."""
    listing = Listed({"a": [5]})
    listing.soonest.between("a", ALWAYS, 3)
    listing.due["a"].append(1)
    assert [e.due_at for e in listing.soonest.between("a", ALWAYS, 3)] == [at(1), at(5)]
