"""Tests of ``migrator.stores.azure.account``: how many requests at a time, and at which pace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

from migrator.stores.azure.account import MOST_S, Account, AccountSettings, Pace, PacedTransport

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


def test_each_is_answered_in_order_and_little_is_done_ahead(account: Account) -> None:
    """A body may have a hundred megabytes, and whoever has enough just stops."""
    assert [*account.each(str, range(40))] == [str(each) for each in range(40)]
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
        self.pace = Pace(monotonic_s=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now_s += seconds


@pytest.mark.parametrize(
    ("answers", "least_s", "most_s"),
    [
        ([(429, "3")], 3, 3.6),
        ([(503, "3")], 3, 3.6),
        ([(503, "5"), (503, "1")], 4.9, 6),  # several threads hear different answers
        ([(503, "86400")], 1, MOST_S * 1.2),
        ([(200, "3")], 0, 0),
        ([(404, "3")], 0, 0),
        ([(500, None)], 0, 0),
        ([(503, None)], 0, 0),
        ([(503, "soon")], 0, 0),
    ],
    ids=str,
)
def test_the_next_request_waits_as_long_as_the_account_asks(
    answers: list[tuple[int, str | None]], least_s: float, most_s: float
) -> None:
    """Not shorter, a little longer, only once, and never longer than the most."""
    time = Time()
    for status, asked in answers:
        time.pace.learn(status, asked)
    time.pace.wait()
    time.pace.wait()
    assert least_s <= sum(time.slept) <= most_s
    assert len(time.slept) <= 1


def test_a_busy_account_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With how many answers there were since."""
    time = Time()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            time.pace.learn(503, "1")
        time.sleep(61)
        time.pace.learn(503, "1")
    assert [getattr(each, "count", None) for each in caplog.records] == [1, 3]


def test_netrc_does_not_replace_the_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account's own key signs each request, whatever the environment knows of the host."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    session = PacedTransport(connections=1, pace=Pace()).session
    headers = {"Authorization": "SharedKey account:signature"}
    sent = session.prepare_request(requests.Request("GET", "http://localhost/", headers=headers))
    assert sent.headers["Authorization"] == headers["Authorization"]
