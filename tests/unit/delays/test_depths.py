"""Tests of ``migrator.delays.depths``."""

from __future__ import annotations

import pytest

from migrator.delays.depths import LevelDepth, Totals, build_level_depths, span_text
from migrator.delays.routing import DelaysVersion, entry_level

V2 = DelaysVersion.V2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (1, "1s"), (60, "1m"), (1024, "17m 4s"), (86_401, "1d"), (2**27, "1553d 10h")],
)
def test_spans_are_told_in_two_units(seconds: int, text: str) -> None:
    """The largest one and the next."""
    assert span_text(seconds) == text


@pytest.mark.parametrize("level", range(28))
def test_a_step_spans_the_delays_that_enter_there(level: int) -> None:
    """Without a gap to its neighbours."""
    step = LevelDepth(level=level)
    assert entry_level(step.wait_s) == entry_level(step.longest_delay_s) == level
    assert entry_level(step.longest_delay_s + 1) == level + 1


def test_all_levels_are_there_highest_first() -> None:
    """Those that nobody found do not exist."""
    ladder = build_level_depths(V2, [LevelDepth(level=0, ready=1), LevelDepth(level=27, ready=2)])
    assert [step.level for step in ladder.steps] == list(range(27, -1, -1))
    assert [step.level for step in ladder.steps if step.exists] == [27, 0]
    assert len(ladder.missing) == 26
    assert "nsb.v2.delay-level-05" in ladder.missing
    assert not ladder.is_absent
    assert build_level_depths(V2, []).is_absent


def test_what_is_not_known_somewhere_is_not_known_in_sum() -> None:
    """A sum over some levels would look like all."""
    full = LevelDepth(level=1, ready=1, unacknowledged=2, held=3, consumers=4)
    assert build_level_depths(V2, [full]).totals == Totals(
        ready=1, unacknowledged=2, held=3, consumers=4
    )
    partly = build_level_depths(V2, [full, LevelDepth(level=0, ready=5, consumers=0)])
    assert partly.totals == Totals(ready=6, unacknowledged=None, held=None, consumers=4)
    assert (full.known, LevelDepth(level=0, ready=5).known) == (6, 5)


@pytest.mark.parametrize(("held", "may"), [(None, False), (31, False), (32, True)])
def test_a_level_may_freeze_by_what_is_held(held: int | None, may: bool) -> None:
    """From the prefetch of the broker's dead-letter worker on."""
    assert LevelDepth(level=0, held=held).may_freeze is may
