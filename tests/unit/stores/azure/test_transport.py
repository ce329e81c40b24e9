"""Tests of ``migrator.stores.azure.account``."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from migrator.stores.azure.account import MOST_S, Pace, seconds_of


class Time:
    """A clock that goes on by what is slept."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.fixture
def time() -> Time:
    """A clock of this test's own."""
    return Time()


@pytest.fixture
def pace(time: Time) -> Pace:
    """A pace by that clock."""
    return Pace(monotonic_s=time.monotonic, sleep=time.sleep)


@pytest.mark.parametrize("status", [429, 503])
def test_the_next_request_waits_as_long_as_the_account_asks(
    pace: Pace, time: Time, status: int
) -> None:
    """Not shorter, a little longer, and only once."""
    pace.wait()
    pace.learn(status, "3")
    pace.wait()
    pace.wait()
    (slept,) = time.slept
    assert 3 <= slept <= 3.6


@pytest.mark.parametrize(
    ("status", "asked"), [(200, "3"), (404, "3"), (500, None), (503, None), (503, "soon")]
)
def test_nothing_waits_when_nobody_asks(
    pace: Pace, time: Time, status: int, asked: str | None
) -> None:
    """A header that is none asks for nothing."""
    pace.learn(status, asked)
    pace.wait()
    assert time.slept == []


def test_no_wait_is_longer_than_the_most(pace: Pace, time: Time) -> None:
    """Whatever the account asks for."""
    pace.learn(503, "86400")
    pace.wait()
    assert time.slept[0] <= MOST_S * 1.2


def test_a_shorter_wait_does_not_cut_a_longer_one(pace: Pace, time: Time) -> None:
    """Several threads hear different answers."""
    pace.learn(503, "5")
    pace.learn(503, "1")
    pace.wait()
    assert time.slept[0] >= 5


def test_a_busy_account_is_told_once_a_minute(
    pace: Pace, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    """With how many answers there were since."""
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            pace.learn(503, "1")
        time.sleep(61)
        pace.learn(503, "1")
    assert [getattr(each, "count", None) for each in caplog.records] == [1, 3]


def test_a_date_is_a_time_to_wait_until() -> None:
    """One in the past asks for nothing."""
    soon = datetime.now(UTC) + timedelta(seconds=60)
    assert 20 <= seconds_of(format_datetime(soon, usegmt=True)) <= 60
    assert seconds_of("Tue, 03 Nov 2015 08:15:30 GMT") == 0
    assert seconds_of("Tue, 03 Nov 2015 08:15:30 -0000") == 0
