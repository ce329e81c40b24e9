"""Tests of ``migrator.reports.drawing.words``."""

from __future__ import annotations

from migrator.nservicebus.conversion import Reason
from migrator.preview.report import BEYOND, SPANS
from migrator.reports.drawing.words import DISCREPANCIES, DUE, REASONS
from migrator.verify.report import Discrepancy


def test_every_code_has_its_words() -> None:
    """And no words are about a code that is gone."""
    assert set(REASONS) == set(Reason)
    assert set(DISCREPANCIES) == set(Discrepancy)
    assert list(DUE) == [*(name for name, _ in SPANS), BEYOND]
