"""Tests of ``migrator.preview.forecast``: what comes late, by one line with a rate."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.preview.forecast import bursts, dues_per_s
from tests.unit.preflight.fakes import NOW


def late(dues: dict[int, int], rate_per_s: float = 100.0) -> list[tuple[int, int, int, float]]:
    """Return bursts of *dues* by second: first, last, rows, and how late."""
    found = bursts({NOW + timedelta(seconds=s): rows for s, rows in dues.items()}, rate_per_s)
    return [
        ((b.due_from - NOW).seconds, (b.due_until - NOW).seconds, b.rows, round(b.late_s, 2))
        for b in found
    ]


@pytest.mark.parametrize(
    ("dues", "expected"),
    [
        ({}, []),
        ({0: 99, 1: 99, 2: 99}, []),  # what the broker takes in a second is never late
        ({0: 700}, [(0, 0, 700, 7.0)]),
        # what comes behind waits as well, also when it alone would not be late
        ({0: 300, 1: 50, 2: 10, 60: 5}, [(0, 2, 360, 3.0)]),
        # a little too much for a long time
        ({second: 110 for second in range(30)}, [(0, 29, 3300, 4.0)]),
        # in any order, the latest first, and each by itself once the line is empty
        ({50: 300, 3: 200, 100: 150}, [(50, 50, 300, 3.0), (3, 3, 200, 2.0), (100, 100, 150, 1.5)]),
    ],
)
def test_what_is_due_faster_than_the_broker_lets_go_of_comes_late(
    dues: dict[int, int], expected: list[tuple[int, int, int, float]]
) -> None:
    """One line: what is due waits for what was due before it."""
    assert late(dues) == expected


def test_the_broker_lets_go_of_what_its_cores_can_route() -> None:
    """Eleven exchanges for each message in its last thousand seconds."""
    assert dues_per_s() == pytest.approx(1364, abs=1)
    assert dues_per_s(2 * 0.0001) == pytest.approx(682, abs=1)
