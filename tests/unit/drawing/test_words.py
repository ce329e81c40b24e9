"""Tests of ``migrator.drawing.words``."""

from __future__ import annotations

from migrator.domain.conversion import Reason
from migrator.domain.preview import BEYOND, SPANS
from migrator.domain.verification import Discrepancy
from migrator.drawing.words import DISCREPANCIES, DUE, REASONS


def test_every_code_has_its_words() -> None:
    """And no words are about a code that is gone."""
    assert set(REASONS) == set(Reason)
    assert set(DISCREPANCIES) == set(Discrepancy)
    assert list(DUE) == [*(name for name, _ in SPANS), BEYOND]
