"""Tests of ``migrator.web.tries``."""

from __future__ import annotations

import pytest

from migrator.web.tries import Tries


class Clock:
    """Seconds that pass when they are told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_who_is_wrong_too_often_has_to_wait() -> None:
    """Until the span is over, and nobody else."""
    clock = Clock()
    tries = Tries(most=3, span_s=30, clock=clock)
    for _ in range(3):
        assert tries.wait_s("192.0.2.1") == 0
        tries.note_wrong("192.0.2.1")
        clock.now_s += 1
    assert tries.wait_s("192.0.2.1") == 27
    assert tries.wait_s("192.0.2.2") == 0
    clock.now_s = 30
    assert tries.wait_s("192.0.2.1") == 0


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("", "", True),
    ],
)
def test_a_network_is_one_address(one: str, other: str, is_same: bool) -> None:
    """Whoever has an IPv6 address has many more of them."""
    tries = Tries(most=1, span_s=30)
    tries.note_wrong(one)
    assert (tries.wait_s(other) > 0) is is_same


def test_memory_is_bounded() -> None:
    """However many come; the latest are remembered."""
    tries = Tries(most=1, span_s=30)
    for number in range(2_000):
        tries.note_wrong(f"10.0.{number // 250}.{number % 250}")
    assert len(tries) == 256
    assert tries.wait_s("10.0.7.249") > 0
