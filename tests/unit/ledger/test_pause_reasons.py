"""Tests of ``migrator.ledger.pause_reasons``."""

from __future__ import annotations

from datetime import UTC, datetime

from migrator.ledger.pause_reasons import PauseReason, Signal

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_hold_is_one_line() -> None:
    """With what would be fine, where there is such a thing."""
    facts = {"signal": Signal.VETO, "endpoint": None, "observed": "no", "since": NOW}
    assert PauseReason(limit="", **facts).text == "veto: no"  # type: ignore[arg-type]  # a plain mapping
    assert PauseReason(limit="yes", **facts).text == "veto: no (yes)"  # type: ignore[arg-type]  # as above
