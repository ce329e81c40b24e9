"""Tests of ``migrator.cli.recall``."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from migrator.cli import recall, recalled
from migrator.delays.walk import WalkProgress
from migrator.recall.recall import Recalled, RecallReport
from migrator.recall.rules import RecallForecast, RecallOutcome
from tests.unit.cli.conftest import Program

EXPECTED = RecallForecast(
    in_levels=9,
    too_near=1,
    left=4,
    possible_until=datetime(2026, 3, 10, 9, 30, tzinfo=UTC),
    may_find=True,
)


def report(
    outcomes: dict[RecallOutcome, int], *, unfinished: int = -1, not_found: int = 0
) -> RecallReport:
    """Return what became of a recall."""
    levels = [] if unfinished < 0 else [unfinished]
    done = Recalled(outcomes=outcomes, unfinished=levels)
    return RecallReport(expected=EXPECTED, done=done, not_found=not_found)


def test_what_stayed_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind on a line of its own; and then not all is back."""
    found = report(
        {RecallOutcome.RESTORED: 5, RecallOutcome.TOO_NEAR: 1, RecallOutcome.LEFTOVER: 2},
        unfinished=7,
        not_found=3,
    )
    assert not found.is_whole
    recall.say_recalled(found)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("by the ledger, 9 are in the levels, 1 are due too soon")
    assert said[1] == "all of them can come back until 2026-03-10 09:30:00 UTC"
    assert said[2] == "5 rows are back in their tables"
    assert any(line.startswith("2 messages were leftovers") for line in said)
    assert any(line.startswith("1 messages are due too soon") for line in said)
    assert any(line.startswith("level 07 was not seen to its end") for line in said)
    assert said[-1].startswith("3 that the ledger expects were met nowhere")


def test_all_is_back_when_nothing_stayed() -> None:
    """Leftovers that are gone, and messages of others, are no reason."""
    assert report({RecallOutcome.RESTORED: 9, RecallOutcome.LEFTOVER: 1}).is_whole
    assert report({RecallOutcome.FOREIGN: 9}).is_whole
    assert not report({RecallOutcome.RESTORED: 9}, not_found=1).is_whole
    assert RecallReport(expected=EXPECTED, done=None).is_whole


def test_a_line_now_and_then_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every five seconds where there is no terminal."""
    now_s = 100.0
    monkeypatch.setattr(recalled, "time", SimpleNamespace(monotonic=lambda: now_s))
    with recalled.watched() as progress:
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
