"""Tests of ``migrator.cli.recall``."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.cli import output, recall
from migrator.delays.walk import WalkProgress
from migrator.recall.recall import RecallReport
from migrator.recall.rules import RecallForecast, RecallOutcome
from tests.unit.cli.conftest import Program


@pytest.mark.parametrize(
    ("outcomes", "more", "is_whole"),
    [
        ({RecallOutcome.RESTORED: 9, RecallOutcome.LEFTOVER: 1}, {}, True),
        ({RecallOutcome.FOREIGN: 9}, {}, True),
        ({RecallOutcome.RESTORED: 9}, {"not_found": 3}, False),
        ({RecallOutcome.RESTORED: 5, RecallOutcome.TOO_NEAR: 1}, {}, False),
        ({RecallOutcome.RESTORED: 5}, {"unfinished": [7]}, False),
    ],
)
def test_what_stayed_is_said_with_its_reason(
    outcomes: dict[RecallOutcome, int], more: dict[str, Any], is_whole: bool
) -> None:
    """Each kind on a line of its own; what is gone, and what is of others, is no reason."""
    expected = RecallForecast(
        in_levels=9,
        too_near=1,
        left=4,
        possible_until=datetime(2026, 3, 10, 9, 30, tzinfo=UTC),
        may_find=True,
    )
    report = RecallReport(expected=expected, outcomes=outcomes, **more)
    assert report.is_whole is is_whole
    said = "\n".join(recall.recalled_lines(report))
    for text, is_said in (
        ("by the ledger, 9 are in the levels, 1 are due too soon", True),
        ("\nall of them can come back until 2026-03-10 09:30:00 UTC", True),
        (f"\n{outcomes.get(RecallOutcome.RESTORED, 0)} rows are back in their tables", True),
        ("\n1 messages were leftovers", RecallOutcome.LEFTOVER in outcomes),
        ("\n1 messages are due too soon", RecallOutcome.TOO_NEAR in outcomes),
        ("\nlevel 07 was not seen to its end", "unfinished" in more),
        ("\n3 that the ledger expects were met nowhere", "not_found" in more),
    ):
        assert (text in said) is is_said


def test_a_line_now_and_then_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every five seconds where there is no terminal."""
    now_s = 100.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr(output, "time", clock)
    monkeypatch.setattr(recall, "time", clock)
    with recall.watched() as progress:
        for step in range(1, 12):
            now_s += 1
            progress(WalkProgress(level=20 - step, seen=300 * step, restored=100 * step))
    assert capsys.readouterr().err.splitlines() == [
        "recalling: level 15, 1500 messages seen, 500 rows restored, 300 messages/s",
        "recalling: level 10, 3000 messages seen, 1000 rows restored, 300 messages/s",
    ]


def test_terms_are_durations(program: Program) -> None:
    """It says which option is none, before anything is opened."""
    assert "--hold '20'" in program("recall", "--hold", "20", "--dry-run", codes=[2]).err
    assert "--hold '0s'" in program("recall", "--hold", "0s", "--dry-run", codes=[2]).err
    assert "--margin '1'" in program("rollback", "--margin", "1", "--dry-run", codes=[2]).err
