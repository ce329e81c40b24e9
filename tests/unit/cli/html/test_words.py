"""Tests of ``migrator.cli.html.words``."""

from __future__ import annotations

from migrator.cli.html.words import DISCREPANCIES, DUE, REASONS
from migrator.domain.conversion import Reason
from migrator.domain.preview import BEYOND, SPANS
from migrator.domain.verification import Discrepancy


def test_every_code_has_its_words() -> None:
    """And no words are about a code that is gone."""
    assert set(REASONS) == set(Reason)
    assert set(DISCREPANCIES) == set(Discrepancy)
    assert list(DUE) == [*(name for name, _ in SPANS), BEYOND]
