"""Tests of ``migrator.stores.azure.account``: how much is done at a time, and ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from migrator.stores.azure.account import Account, AccountSettings

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
