"""Which names may be bound beside each other, and which queues reject when they are full."""

from __future__ import annotations

import pytest

from migrator.delays.destinations import BoundNames, collision
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.rabbitmq.entities import QueueState, reject_limits

BOUND = frozenset(map(QueueName, ("Sales", "Your.Billing", "A.B.C")))


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("My.Sales", "Sales"),
        ("Deep.My.Sales", "Sales"),
        ("Billing", "Your.Billing"),
        ("C", "A.B.C"),
        ("X.A.B.C", "A.B.C"),
        ("Sales", None),
        ("MySales", None),
        ("Sales.My", None),
        ("B", None),
    ],
)
def test_the_later_of_two_that_collide_is_not_bound(name: str, other: str | None) -> None:
    """Either way round; what is bound already is only caught, never a catcher."""
    found = collision(QueueName(name), BOUND)
    assert (found is None) == (other is None)
    if found is not None:
        assert found.reason is Reason.SUFFIX_COLLISION
        assert f" {other}, which is bound" in found.detail
    if name in {"Billing", "C"}:
        assert collision(QueueName(name), BOUND | {QueueName(name)}) is None


def test_names_of_the_ledger_are_asked_for_once() -> None:
    """What is bound meanwhile is added."""
    asked: list[int] = []

    def handed_over() -> list[QueueName]:
        asked.append(1)
        return [QueueName("Sales")]

    bound = BoundNames(handed_over)
    bound.add(QueueName("Billing"))
    assert {*bound.names()} == {*bound.names()} == {"Sales", "Billing"}
    assert asked == [1]


@pytest.mark.parametrize(
    ("kind", "policy", "arguments", "limits"),
    [
        ("classic", {}, {"x-max-length": 5, "x-overflow": "reject-publish"}, [5]),
        ("quorum", {"max-length": 4, "overflow": "reject-publish"}, {"x-max-length": 5}, [4]),
        ("classic", {"max-length-bytes": 9}, {"x-overflow": "reject-publish-dlx"}, [9]),
        (
            "classic",
            {"overflow": "drop-head"},
            {"x-max-length": 5, "x-overflow": "reject-publish"},
            [5],
        ),
        (
            "quorum",
            {"overflow": "drop-head"},
            {"x-max-length": 5, "x-overflow": "reject-publish"},
            [],
        ),
        ("classic", {}, {"x-max-length": 5}, []),
        ("classic", {}, {"x-overflow": "reject-publish"}, []),
    ],
)
def test_which_queues_reject_when_they_are_full(
    kind: str, policy: dict[str, object], arguments: dict[str, object], limits: list[int]
) -> None:
    """By policy or argument, by messages or bytes; one that drops its oldest message does not."""
    queue = QueueState(
        name="q", kind=kind, effective_policy=policy, arguments=arguments, ready=5, ready_bytes=8
    )
    found = reject_limits(queue)
    assert [each.limit for each in found] == limits
    assert [each.is_reached for each in found] == [limit <= 5 for limit in limits]
