"""Tests of ``migrator.decommission.levels``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.decommission.levels import DelaysFound, others_bindings
from migrator.delays.routing import DelaysVersion, infrastructure
from migrator.rabbitmq.entities import Binding, exchange_entity, queue_entity

V2 = infrastructure(DelaysVersion.V2)
WHOLE = DelaysFound(
    version=DelaysVersion.V2,
    exchanges=V2.exchanges,
    queues=[queue.name for queue in V2.queues],
)
DELIVERY, LEVEL = V2.exchanges[0], "nsb.v2.delay-level-07"
SALES = Binding(source=DELIVERY, target=queue_entity("Sales"), key="#.Sales")


def test_each_obstacle_is_a_sentence() -> None:
    """Names are listed up to five of a kind."""
    found = replace(
        WHOLE,
        waiting={"nsb.v2.delay-level-07": 3},
        consumed=["nsb.v2.delay-level-08"],
        untold=["nsb.v2.delay-level-09"],
        feeders=[f"migrator.entry.v2.{n:02d}" for n in range(28)],
        staged={"migrator.staging.a.0": 2},
        bound=[SALES],
    )
    told = list(found.obstacles(even_if_bound=False))
    assert len(told) == 6
    assert "level-07 holds 3 messages" in told[0]
    assert "migrator.entry.v2.04 and 23 more;" in told[3]
    assert told[5].startswith("still bound to the delays: Sales")
    assert list(found.obstacles(even_if_bound=True)) == told[:5]


def test_bindings_of_others_are_told_from_the_delays_own() -> None:
    """By source, target, key, kind and arguments."""
    own = list(V2.bindings)
    odd = [
        replace(own[0], key="#"),
        replace(own[0], arguments={"x": 1}),
        replace(own[0], target=exchange_entity(own[0].target.name)),
    ]
    assert others_bindings(V2, [*own, SALES, *odd]) == [SALES, *odd]


@pytest.mark.parametrize(
    "binding",
    [
        Binding(source=LEVEL, target=queue_entity("spy"), key="#"),
        Binding(source="amq.topic", target=exchange_entity(LEVEL), key="#"),
        Binding(source="amq.topic", target=exchange_entity(DELIVERY), key="#"),
    ],
    ids=str,
)
def test_what_somebody_bound_to_a_level_cannot_be_ignored(binding: Binding) -> None:
    """Out of it or into it: whoever bound it is the only one who could do so again."""
    found = replace(WHOLE, bound=[SALES, binding])
    (told,) = found.obstacles(even_if_bound=True)
    assert f"{binding.source} → {binding.target.name}; unbind it first" in told
    assert len(list(found.obstacles(even_if_bound=False))) == 2
