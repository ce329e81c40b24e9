"""Tests of ``migrator.delays.broker``, as far as they need no broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.delays.broker import BrokerFacts, effective_policies
from migrator.delays.routing import DelaysVersion
from migrator.errors import AccessRefused, NotChecked, TargetError, TargetUnavailable
from migrator.rabbitmq.entities import (
    NodeState,
    PolicyRule,
    QueueState,
)
from migrator.rabbitmq.management import ManagementApi
from tests.unit.rabbitmq.material import connection

SETTINGS = connection("amqp://guest:guest@127.0.0.1:1/%2F")
V2 = DelaysVersion.V2
STAGING = "migrator.staging.a1.0"


def facts(**answers: object) -> BrokerFacts:
    """Return the facts of a broker whose management API answers so."""
    given = {name: lambda *_, said=said: said for name, said in answers.items()}
    return BrokerFacts(SETTINGS, cast(ManagementApi, SimpleNamespace(**given)))


def rule(name: str, pattern: str = ".*", **more: Any) -> PolicyRule:
    """Return a policy of that name."""
    usual: dict[str, Any] = {"apply_to": "all", "priority": 0, "is_operator": False}
    return PolicyRule(name=name, pattern=pattern, **(usual | more))


KINDS = [rule("a", apply_to="classic_queues"), rule("b", apply_to="quorum_queues")]


@pytest.mark.parametrize(
    ("rules", "queue", "expected"),
    [
        ([], STAGING, []),
        ([rule("a", priority=-5)], STAGING, ["a"]),
        ([rule("a", priority=1), rule("b", priority=2)], STAGING, ["b"]),
        ([rule("a"), rule("b")], STAGING, ["a", "b"]),
        ([rule("a", priority=9), rule("op", is_operator=True)], STAGING, ["a", "op"]),
        ([rule("a", "^other"), rule("b", "staging")], STAGING, ["b"]),
        ([rule("a", apply_to="exchanges"), rule("b", apply_to="queues")], STAGING, ["b"]),
        (KINDS, STAGING, ["b"]),
        (KINDS, "nsb.v2.delay-level-03", ["b"]),
        (KINDS, "nsb.delay-level-03", ["a"]),
        ([rule("a", "(?<x>only the broker knows this")], STAGING, ["a"]),
    ],
)
def test_the_strongest_policy_applies(
    rules: list[PolicyRule], queue: str, expected: list[str]
) -> None:
    """And the strongest operator policy beside it; in doubt, one too many."""
    assert [policy.name for policy in effective_policies(rules, queue)] == expected


@pytest.mark.parametrize("failure", [None, AccessRefused("no"), TargetUnavailable("gone")])
def test_without_a_management_api_that_answers_nobody_knows(failure: TargetError | None) -> None:
    """It is optional: the operator is told what to set, or what it said."""

    class Api:
        def __getattr__(self, name: str) -> object:
            assert failure is not None
            raise failure

    asked = BrokerFacts(SETTINGS, None if failure is None else cast(ManagementApi, Api()))
    for ask in (
        lambda: asked.policies([STAGING]),
        lambda: asked.diverting([STAGING]),
        lambda: asked.bound_names(V2),
        lambda: asked.stuck(V2),
        asked.alarms,
        asked.bytes_left,
    ):
        with pytest.raises(NotChecked, match="management_url" if failure is None else str(failure)):
            ask()


def test_alarms_name_their_node_and_the_fullest_counts() -> None:
    """A node that is down counts as an alarm; room is above a node's own limit."""
    nodes = [
        NodeState(node="a", is_running=True, left_bytes=50),
        NodeState(node="b", is_running=False, memory=True, disk=True, left_bytes=1),
        NodeState(node="c", is_running=True, left_bytes=10),
    ]
    told = ["b is not running", "memory alarm on b", "disk alarm on b"]
    assert facts(nodes=nodes).alarms() == told
    assert facts(nodes=nodes).bytes_left() == 10
    with pytest.raises(NotChecked):
        facts(nodes=nodes[1:2]).bytes_left()


def test_stuck_messages_are_told_by_level() -> None:
    """Queues of other names, and levels where nothing hangs, are left out."""
    queues = [
        QueueState(name="nsb.v2.delay-level-08", kind="quorum", held_back=40),
        QueueState(name="nsb.v2.delay-level-09", kind="quorum"),
        QueueState(name="nsb.v2.delay-level-99", kind="quorum", held_back=1),
    ]
    assert facts(queues=queues).stuck(V2) == {8: 40}
    new = QueueState(name="nsb.v2.delay-level-10", kind="quorum", is_told=False)
    with pytest.raises(NotChecked, match="so new"):
        facts(queues=[*queues, new]).stuck(V2)
