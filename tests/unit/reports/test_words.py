"""Tests of ``migrator.reports.words``."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from migrator.nservicebus.conversion import Reason
from migrator.preview.report import BEYOND, SPANS
from migrator.reports.words import (
    DISCREPANCIES,
    DUE,
    REASONS,
    counted,
    grouped,
    marked,
    size_words,
    span_words,
    visible,
)
from migrator.verify.report import Discrepancy


def test_numbers_are_grouped() -> None:
    """And what is not known is not 0."""
    assert grouped(1_234_567) == "1\u202f234\u202f567"
    assert (grouped(0), grouped(None)) == ("0", "not known")
    assert (counted(1, "row"), counted(2, "row")) == ("1 row", "2 rows")


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
    ("size", "words"), [(1, "1 byte"), (2_048, "2 KiB"), (3_500_000, "3.3 MiB"), (2**34, "16 GiB")]
)
def test_sizes_are_told_as_people_do(size: int, words: str) -> None:
    """In one unit."""
    assert size_words(size) == words


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
    assert visible(value) == shown


def test_backticks_mark_code() -> None:
    """And nothing else gets through."""
    assert marked("run `migrator <x>` & go") == "run <code>migrator &lt;x&gt;</code> &amp; go"
    assert marked("one ` <alone>") == "one ` &lt;alone&gt;"


def test_every_code_has_its_words() -> None:
    """And no words are about a code that is gone."""
    assert set(REASONS) == set(Reason)
    assert set(DISCREPANCIES) == set(Discrepancy)
    assert list(DUE) == [*(name for name, _ in SPANS), BEYOND]
