"""Tests of ``migrator.cli.ladder``."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from migrator.cli.ladder import ladder_table
from migrator.delays.depths import LevelDepth, LevelDepths, build_level_depths
from migrator.delays.routing import DelaysVersion
from tests.unit.preflight.fakes import ladder


def drawn(steps: LevelDepths, *, width: int = 100, color: bool = False) -> list[str]:
    """Return the lines of a ladder."""
    stream = io.StringIO()
    system = "standard" if color else None
    console = Console(file=stream, width=width, force_terminal=color, color_system=system)  # type: ignore[arg-type]  # rich types it as a literal
    console.print(ladder_table(steps))
    return stream.getvalue().splitlines()


def test_each_level_is_a_rung() -> None:
    """Longest delays on top, sums at the bottom."""
    lines = drawn(ladder())
    assert len(lines) == 1 + 28 + 1
    assert lines[1].startswith("27     1553d 10h … 3106d 21h  ├────")
    assert lines[28].startswith("00")
    assert "total" in lines[29]


def test_rungs_are_filled_by_what_waits() -> None:
    """In proportion, and the least message is seen beside a million."""
    crowded = ladder(
        LevelDepth(level=9, ready=1_000_000, unacknowledged=0, held=0, consumers=0),
        LevelDepth(level=8, ready=500_000, unacknowledged=0, held=0, consumers=0),
        LevelDepth(level=7, ready=1, unacknowledged=1, held=1, consumers=1),
        LevelDepth(level=6, ready=999_998, unacknowledged=1, held=1, consumers=0),
    )
    by_level = {line[:2]: line for line in drawn(crowded)}
    assert "├" + "█" * 16 + "┤" in by_level["09"]
    assert "├" + "█" * 8 + "─" * 8 + "┤" in by_level["08"]
    assert "├█▒▓" + "─" * 13 + "┤" in by_level["07"]
    assert "├" + "█" * 14 + "▒▓┤" in by_level["06"]
    assert "1 000 000" in by_level["09"]
    assert all(line.count("┤") == 1 for level, line in by_level.items() if level.isdigit())


@pytest.mark.parametrize(
    ("step", "remark"),
    [
        (LevelDepth(level=3, exists=False), "missing"),
        (LevelDepth(level=3, ready=0, held=1), "not passed on"),
        (LevelDepth(level=3, ready=0, held=32), "may stand still"),
    ],
)
def test_what_is_wrong_is_said_and_coloured(step: LevelDepth, remark: str) -> None:
    """In red on a terminal."""
    (line,) = [text for text in drawn(ladder(step)) if text.startswith("03")]
    assert remark in line
    (line,) = [text for text in drawn(ladder(step), color=True) if "03" in text[:12]]
    assert "31m" in line


def test_what_is_not_known_is_not_drawn_as_zero() -> None:
    """Counts that nobody could ask for are named as such."""
    plain = build_level_depths(
        DelaysVersion.V2, [LevelDepth(level=n, ready=n, consumers=0) for n in range(28)]
    )
    lines = drawn(plain)
    assert lines[1].count("not known") == 2
    assert lines[29].count("not known") == 2
    assert "378" in lines[29]
