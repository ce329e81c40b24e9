"""Tests of ``migrator.stores.azure.account``: how many requests at a time, and at which pace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from migrator.stores.azure.account import MOST_S, Account, AccountSettings, Pace, seconds_of

REQUESTS = 3


@pytest.fixture
def account() -> Iterator[Account]:
    """Return an account that nobody asks anything."""
    settings = AccountSettings(
        connection_string="DefaultEndpointsProtocol=http;AccountName=a;AccountKey=YQ==",
        table="Timeouts",
        container="timeouts",
        requests=REQUESTS,
    )
    with closing(Account(settings)) as account:
        yield account


def test_each_is_answered_in_order(account: Account) -> None:
    """However many there are."""
    assert [*account.each(str, range(40))] == [str(each) for each in range(40)]
    assert [*account.each(str, [])] == []


def test_little_is_done_ahead(account: Account) -> None:
    """A body may have a hundred megabytes, and whoever has enough just stops."""
    begun: list[int] = []
    answers = account.each(begun.append, range(100))
    for _ in range(5):
        next(answers)
    del answers
    assert 5 <= len(begun) <= 5 + 2 * REQUESTS


def test_a_failure_ends_what_has_not_begun(account: Account) -> None:
    """It is raised in its turn, once nothing is under way any more."""
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise ZeroDivisionError
        return number

    answers = account.each(work, range(100))
    assert next(answers) == 0
    with pytest.raises(ZeroDivisionError):
        next(answers)
    done = len(begun)
    assert done <= 2 * REQUESTS + 2
    assert [*account.each(str, range(2))] == ["0", "1"], "the threads go on"
    assert len(begun) == done


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
