"""Tests of ``migrator.reports.pictures``."""

from __future__ import annotations

import pytest

from migrator.reports.pictures import WHOLE, Share, bars, ladder, legend, stacked


def shares(*counts: int) -> list[Share]:
    """Return shares of so many kinds."""
    return [Share(kind=f"k{n}", label=f"l{n}", count=count) for n, count in enumerate(counts)]


def test_widths_are_in_proportion() -> None:
    """Side by side, from the left."""
    pieces = stacked(shares(50, 0, 25), most=100)
    assert [(piece.x, piece.width) for piece in pieces] == [(0, 50), (50, 25)]


@pytest.mark.parametrize("counts", [(1, 1_000_000), (1,) * 8 + (10**9,), (1,) * 200])
def test_whatever_is_there_is_seen_and_fits(counts: tuple[int, ...]) -> None:
    """However little, and however many."""
    pieces = stacked(shares(*counts), most=sum(counts))
    assert len(pieces) == len(counts)
    assert all(piece.width > 0 for piece in pieces)
    assert pieces[-1].x + pieces[-1].width <= WHOLE + 0.1


def test_bars_share_one_scale() -> None:
    """The longest fills its place; one without rows has none."""
    long, short, empty = bars([("a", shares(30, 10)), ("b", shares(10)), ("c", ())])
    assert [piece.width for piece in long.pieces] == [75, 25]
    assert [piece.width for piece in short.pieces] == [25]
    assert (long.count, empty.count, empty.pieces) == (40, 0, [])
    assert legend([long, short]) == {"k0": "l0", "k1": "l1"}
    assert bars([("a", shares(0))])[0].pieces == []


def test_a_ladder_has_28_rungs() -> None:
    """Highest first; what is not known is not 0."""
    rungs = ladder({16: shares(5), 0: shares(1)}, counts={16: 7, 3: None})
    assert [rung.label for rung in rungs] == [f"{level:02d}" for level in range(27, -1, -1)]
    counts = {rung.label: rung.count for rung in rungs}
    assert (counts["16"], counts["03"], counts["00"], counts["27"]) == (7, None, 1, 0)
    assert rungs[-1].remark == "1 second"
