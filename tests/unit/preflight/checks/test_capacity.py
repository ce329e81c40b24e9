"""Tests of ``migrator.preflight.checks.capacity``."""

from __future__ import annotations

import pytest

from migrator.preflight.checks.capacity import FACTOR, OVERHEAD_BYTES, check
from migrator.preflight.findings import Level
from migrator.rabbitmq.entities import Room
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker, preview

ROWS = preview(destinations={"Sales": 1000}, size=10**6)
NEEDED = FACTOR * (10**6 + 1000 * OVERHEAD_BYTES)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (NEEDED - 1, Level.REFUSED),
        (NEEDED, Level.WARNING),
        (2 * NEEDED - 1, Level.WARNING),
        (2 * NEEDED, Level.OK),
    ],
)
def test_the_estimate_is_compared_with_what_is_left(left: int, expected: Level) -> None:
    """Above the broker's own limit, below which it stops publishers."""
    broker = FakeBroker(left=Room(disk_free_bytes=left + 50, disk_limit_bytes=50))
    assert [f.level for f in check(broker, [ROWS])] == [expected]


def test_without_the_management_api_the_need_is_told_all_the_same() -> None:
    """A person can compare."""
    (found,) = check(FakeBroker(left=NO_API), [ROWS])
    assert found.level is Level.NOT_CHECKED
    assert "1000 messages need about 3 MiB" in found.text


def test_part_of_the_rows_is_no_estimate() -> None:
    """Neither is none of them."""
    part = preview(destinations={"Sales": 1}, is_complete=False)
    for previews in ([ROWS, part], None):
        (found,) = check(FakeBroker(), previews)
        assert found.level is Level.NOT_CHECKED
