"""Tests of ``migrator.delays.access``: what cannot be seen proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from migrator.delays.access import LevelAccess
from migrator.delays.routing import DelaysVersion, level_name
from migrator.errors import PreflightRefused
from migrator.rabbitmq.entities import QueueState

V2 = DelaysVersion.V2


class Management:
    """Tells of levels whose messages hang, another count each time."""

    def __init__(self, *answers: dict[int, int]) -> None:
        self.answers = [*answers]

    def queues(self, _pattern: str) -> Sequence[QueueState]:
        held = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            QueueState(name=level_name(V2, level), kind="quorum", held_back=count)
            for level, count in held.items()
        ]


def access(management: Management | None) -> LevelAccess:
    """Return how levels are reached that nobody opens."""
    none: Any = None
    return LevelAccess(
        none, cast("Any", management), purpose="test", staging_queues=list, patience_s=0.01
    )


def test_messages_that_hang_between_levels_refuse_the_look() -> None:
    """Their rows would count as not sent, and would be sent twice."""
    with pytest.raises(
        PreflightRefused, match=r"level 03: 32, level 12: 1\).* nothing was changed"
    ):
        access(Management({12: 1, 3: 32})).wait_until_passed_on(V2)


def test_messages_that_go_on_are_waited_for() -> None:
    """A message on its way from one level to the next is seen in the next one."""
    management = Management({4: 1}, {4: 0})
    access(management).wait_until_passed_on(V2)
    assert len(management.answers) == 1


def test_where_nobody_tells_nothing_is_waited_for() -> None:
    """Without a management API."""
    access(None).wait_until_passed_on(V2)
