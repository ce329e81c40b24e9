"""Tests of ``migrator.preflight.broker``, as far as they need no broker."""

from __future__ import annotations

from typing import cast

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import AccessRefused, NotChecked, TargetError, TargetUnavailable
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.broker import BrokerFacts, effective_policies
from migrator.rabbitmq.connection import EntityAbsent
from migrator.rabbitmq.entities import (
    Binding,
    NodeAlarms,
    PolicyRule,
    QueueState,
    Room,
    queue_entity,
)
from migrator.rabbitmq.management import ManagementApi
from tests.unit.rabbitmq.material import connection

SETTINGS = connection("amqp://guest:guest@127.0.0.1:1/%2F")
V2 = DelaysVersion.V2


class Api:
    """Answers like the management API, or fails as told."""

    def __init__(self, failure: TargetError | None = None) -> None:
        self.failure = failure
        self.nodes: tuple[NodeAlarms, ...] = ()
        self.rooms: tuple[Room, ...] = ()
        self.found: tuple[QueueState, ...] = ()
        self.bindings: tuple[Binding, ...] = ()

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure

    def policies(self) -> tuple[PolicyRule, ...]:
        """Return one blanket policy."""
        self._answer()
        return (rule("blanket"),)

    def alarms(self) -> tuple[NodeAlarms, ...]:
        """Return what was set."""
        self._answer()
        return self.nodes

    def room(self) -> tuple[Room, ...]:
        """Return what was set."""
        self._answer()
        return self.rooms

    def queues(self, pattern: str) -> tuple[QueueState, ...]:
        """Return what was set."""
        self._answer()
        return self.found

    def bindings_from(self, exchange: str) -> tuple[Binding, ...]:
        """Return what was set."""
        self._answer()
        return self.bindings


def facts(api: Api | None) -> BrokerFacts:
    """Return the facts of a broker that only its management API is asked about."""
    return BrokerFacts(SETTINGS, cast(ManagementApi | None, api))


def rule(name: str, pattern: str = ".*", **more: object) -> PolicyRule:
    """Return a policy that sets a key of its own name."""
    return PolicyRule(
        name=name,
        pattern=pattern,
        apply_to=str(more.get("apply_to", "all")),
        priority=cast(int, more.get("priority", 0)),
        is_operator=bool(more.get("is_operator")),
        definition={name: 1},
    )


STAGING = "migrator.staging.a1.0"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], []),
        ([rule("a")], ["a"]),
        ([rule("a", priority=1), rule("b", priority=2)], ["b"]),
        ([rule("a", priority=-5)], ["a"]),
        ([rule("a"), rule("b")], ["a", "b"]),
        ([rule("a", priority=9), rule("op", is_operator=True)], ["a", "op"]),
        ([rule("a", "^other"), rule("b", "staging")], ["b"]),
        ([rule("a", apply_to="exchanges"), rule("b", apply_to="queues")], ["b"]),
        ([rule("a", apply_to="classic_queues"), rule("b", apply_to="quorum_queues")], ["b"]),
        ([rule("a", "(?<x>only the broker knows this")], ["a"]),
    ],
)
def test_the_strongest_policy_applies(rules: list[PolicyRule], expected: list[str]) -> None:
    """And the strongest operator policy beside it; in doubt, one too many."""
    assert [policy.name for policy in effective_policies(rules, STAGING)] == expected


def test_level_queues_of_version_1_are_classic() -> None:
    """Those of version 2, and our own, are quorum queues."""
    rules = [rule("a", apply_to="classic_queues"), rule("b", apply_to="quorum_queues")]
    for queue, expected in (("nsb.delay-level-03", "a"), ("nsb.v2.delay-level-03", "b")):
        assert [policy.name for policy in effective_policies(rules, queue)] == [expected]


def answers(asked: BrokerFacts) -> list[object]:
    """Return every answer that only the management API has."""
    return [
        asked.policies([STAGING]),
        asked.diverting([STAGING]),
        asked.bound_names(V2),
        asked.stuck(V2),
        asked.alarms(),
        asked.room(),
    ]


def test_without_the_management_api_nobody_knows() -> None:
    """The operator is told how to change that."""
    for answer in answers(facts(None)):
        assert isinstance(answer, NotChecked)
        assert "broker.management_url" in answer.reason


@pytest.mark.parametrize(
    "failure", [AccessRefused("no"), TargetUnavailable("gone"), EntityAbsent("404")]
)
def test_a_management_api_that_fails_is_not_asked_for_more(failure: TargetError) -> None:
    """It is optional: its failure is an answer, not an error."""
    for answer in answers(facts(Api(failure))):
        assert answer == NotChecked(reason=str(failure))


def test_alarms_name_their_node() -> None:
    """A node that is down counts as one."""
    api = Api()
    api.nodes = (
        NodeAlarms(node="a", is_running=True, memory=False, disk=False),
        NodeAlarms(node="b", is_running=False, memory=True, disk=True),
    )
    assert facts(api).alarms() == ["b is not running", "memory alarm on b", "disk alarm on b"]


def test_the_fullest_node_counts() -> None:
    """Above its own limit; without any number nobody knows."""
    api = Api()
    assert isinstance(facts(api).room(), NotChecked)
    small = Room(disk_free_bytes=100, disk_limit_bytes=90)
    api.rooms = (Room(disk_free_bytes=50, disk_limit_bytes=0), small)
    assert facts(api).room() == small


def test_stuck_messages_are_told_by_level() -> None:
    """Queues of other names, and levels where nothing hangs, are left out."""
    api = Api()
    api.found = (
        QueueState(name="nsb.v2.delay-level-08", kind="quorum", held_back=40),
        QueueState(name="nsb.v2.delay-level-09", kind="quorum"),
        QueueState(name="nsb.v2.delay-level-99", kind="quorum", held_back=1),
    )
    assert facts(api).stuck(V2) == {8: 40}
    api.found += (QueueState(name="nsb.v2.delay-level-10", kind="quorum", is_told=False),)
    assert isinstance(facts(api).stuck(V2), NotChecked)


def test_bound_names_are_read_from_their_keys() -> None:
    """Names may have dots."""
    api = Api()
    api.bindings = tuple(
        Binding(source="nsb.v2.delay-delivery", target=queue_entity("t"), key=key)
        for key in ("#.Sales", "#.My.Sales", "#.")
    )
    assert facts(api).bound_names(V2) == frozenset(map(QueueName, ("Sales", "My.Sales")))
