"""Tests of ``migrator.delays.topology``."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.delays.topology import BindingFindings, DelaysInspection, EntityFinding, Presence
from migrator.rabbitmq.entities import (
    Binding,
    Kind,
    QueueState,
    ServerFacts,
    lowest_limit,
    queue_entity,
)

BINDING = Binding(source="a", target=queue_entity("b"), key="#")


def inspection(
    *presences: Presence, missing: tuple[Binding, ...] = (), ready: int | None = None
) -> DelaysInspection:
    """Return an inspection that found queues in these conditions."""
    return DelaysInspection(
        version=DelaysVersion.V2,
        entities=tuple(
            EntityFinding(kind=Kind.QUEUE, name=f"q{n}", presence=presence, ready=ready)
            for n, presence in enumerate(presences)
        ),
        bindings=BindingFindings(missing=missing),
    )


@pytest.mark.parametrize(
    ("presences", "is_absent", "is_usable"),
    [
        ([Presence.PRESENT, Presence.PRESENT], False, True),
        ([Presence.PRESENT, Presence.UNKNOWN], False, True),
        ([Presence.PRESENT, Presence.WRONG], False, False),
        ([Presence.PRESENT, Presence.ABSENT], False, False),
        ([Presence.ABSENT, Presence.ABSENT], True, False),
    ],
)
def test_all_or_nothing(presences: list[Presence], is_absent: bool, is_usable: bool) -> None:
    """Absent means nothing is there; usable means nothing speaks against it."""
    found = inspection(*presences)
    assert (found.is_absent, found.is_usable) == (is_absent, is_usable)


def test_a_missing_binding_makes_delays_unusable() -> None:
    """Messages would not get through."""
    assert not inspection(Presence.PRESENT, missing=(BINDING,)).is_usable


def test_entities_are_told_by_condition() -> None:
    """In the order in which they would be declared."""
    found = inspection(Presence.WRONG, Presence.PRESENT, Presence.WRONG)
    assert [entity.name for entity in found.having(Presence.WRONG)] == ["q0", "q2"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("3.10.8", (3, 10, 8)),
        ("4.0.0-rc.1", (4, 0, 0)),
        ("3.13.7+4.gdeadbee", (3, 13, 7)),
        ("4.1", (4, 1)),
        ("", ()),
        ("unknown", ()),
        ("3.x", ()),
    ],
)
def test_a_version_is_read_as_numbers(version: str, expected: tuple[int, ...]) -> None:
    """Without what follows them; nothing when it is unreadable."""
    facts = ServerFacts(
        product="RabbitMQ", version=version, cluster_name="c", frame_max_bytes=131_072
    )
    assert facts.release == expected


def queue(policy: int | None = None, argument: int | None = None) -> QueueState:
    """Return a queue with these delivery limits."""
    return QueueState(
        name="level",
        kind="quorum",
        effective_policy={} if policy is None else {"delivery-limit": policy},
        arguments={} if argument is None else {"x-delivery-limit": argument},
    )


@pytest.mark.parametrize(
    ("queues", "default", "expected"),
    [
        ([], None, None),
        ([], 20, 20),
        ([queue(), queue()], None, None),
        ([queue(), queue()], 20, 20),
        ([queue(policy=100), queue()], 20, 20),  # the other one has the broker's own
        ([queue(policy=100), queue()], None, 100),
        ([queue(policy=100), queue(argument=7)], None, 7),
        ([queue(policy=100_000), queue(policy=100_000)], 20, 100_000),
        ([queue(policy=-1)], 20, None),
        ([queue(policy=-1, argument=5)], 20, 5),
        ([queue(policy=100_000, argument=5)], 20, 5),
    ],
)
def test_the_lowest_delivery_limit_counts(
    queues: list[QueueState], default: int | None, expected: int | None
) -> None:
    """Of all queues, of policy and argument; below 0 is none (measured with RabbitMQ 4.0.5)."""
    assert lowest_limit(queues, default=default) == expected
