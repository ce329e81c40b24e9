"""Pages of a listing skip nothing and repeat nothing, whatever comes and goes in between."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.stores.ravendb.families import RawDocument
from migrator.stores.ravendb.listing import DoesNotPageError, Listing


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


def test_an_undisturbed_listing_asks_once_more_at_its_end() -> None:
    """Each page begins with the last document of the one before."""
    listing, anchors = Listing(), []
    while not listing.is_done:
        anchors.append(listing.after)
        listing.add(page_of(range(5), listing.after, 3, steps=True))
    assert anchors == [None, name(1), name(3)]


def test_a_page_that_begins_at_its_anchor_is_an_error() -> None:
    """Such a server ignores what it is asked."""
    listing = Listing()
    listing.add([raw(1), raw(2)])
    with pytest.raises(DoesNotPageError, match="T/001"):
        listing.add([raw(1), raw(2)])
