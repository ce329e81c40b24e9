"""Tests of ``migrator.reports.pages`` and ``pictures``."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from migrator.preview.report import BEYOND, SPANS
from migrator.reports.pages import (
    DISCREPANCIES,
    DUE,
    marked,
    spelt,
)
from migrator.reports.pictures import WHOLE, Share, bars, legend, level_bars, stacked
from migrator.text import counted, grouped, size_words, span_text, span_words
from migrator.verify.report import Discrepancy


def test_numbers_are_grouped() -> None:
    """And what is not known is not 0."""
    assert grouped(1_234_567) == "1 234 567"
    assert (grouped(0), grouped(None)) == ("0", "not known")
    assert (counted(1, "row"), counted(2, "row")) == ("1 row", "2 rows")
    assert (size_words(1), size_words(3_500_000)) == ("1 byte", "3.3 MiB")


def test_spans_in_tables_have_two_units() -> None:
    """The largest two that are not 0."""
    assert [span_text(each) for each in (0, 1024, 86_401, 2**27)] == [
        "0s",
        "17m 4s",
        "1d",
        "1553d 10h",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "less than a second"),
        (1, "1 second"),
        (93.2, "1.6 minutes"),
        (3_600, "1 hour"),
        (86_400 * 24, "24 days"),
        (2**27, "4.3 years"),
    ],
)
def test_spans_are_told_as_people_do(seconds: float, words: str) -> None:
    """In one unit."""
    assert span_words(seconds) == words


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Sales", "Sales"),
        ("Größe 売上", "Größe 売上"),
        ("a\u202eb", "a\\u202eb"),
        ("\x00\n\t", "\\x00\\n\\t"),
        ("\ud800", "\\ud800"),
        (7, 7),
        (Markup("<b>\n</b>"), Markup("<b>\n</b>")),
    ],
)
def test_what_nobody_would_see_is_spelt_out(value: object, shown: object) -> None:
    """Controls, directions and halves of characters."""
    assert spelt(value) == shown


def test_backticks_mark_code() -> None:
    """And nothing else gets through."""
    assert marked("run `migrator <x>` & go") == "run <code>migrator &lt;x&gt;</code> &amp; go"
    assert marked("one ` <alone>") == "one ` &lt;alone&gt;"


def test_every_code_has_its_words() -> None:
    """And no words are about a code that is gone."""
    assert set(DISCREPANCIES) == set(Discrepancy)
    assert list(DUE) == [*(name for name, _ in SPANS), BEYOND]


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


def shares(*counts: int) -> list[Share]:
    """Return shares of so many kinds."""
    return [Share(kind=f"k{n}", label=f"l{n}", count=count) for n, count in enumerate(counts)]


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


def test_there_is_a_bar_for_each_of_the_28_levels() -> None:
    """Highest first; what is not known is not 0."""
    bars_ = level_bars({16: shares(5), 0: shares(1)}, counts={16: 7, 3: None})
    assert [each.label for each in bars_] == [f"{level:02d}" for level in range(27, -1, -1)]
    counts = {each.label: each.count for each in bars_}
    assert (counts["16"], counts["03"], counts["00"], counts["27"]) == (7, None, 1, 0)
    assert bars_[-1].remark == "1 second"
