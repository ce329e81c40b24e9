"""Tests of ``migrator.failover.run``: what cannot be seen proves nothing."""

from __future__ import annotations

import pytest

from migrator.errors import NotChecked, PreflightRefused
from migrator.failover.run import wait_until_passed_on


def test_messages_that_hang_between_levels_refuse_the_look() -> None:
    """Their rows would count as not sent, and would be sent twice."""
    with pytest.raises(
        PreflightRefused, match=r"level 03: 32, level 12: 1\).* nothing was changed"
    ):
        wait_until_passed_on(lambda: {12: 1, 3: 32}, patience_s=0.01)


def test_messages_that_go_on_are_waited_for() -> None:
    """A message on its way from one level to the next is seen in the next one."""
    answers = [{4: 1}, {}]
    wait_until_passed_on(lambda: answers.pop(0), patience_s=0.01)
    assert not answers


def test_where_nobody_tells_nothing_is_waited_for() -> None:
    """Without a management API."""
    wait_until_passed_on(lambda: NotChecked(reason="no management API"), patience_s=0.01)
