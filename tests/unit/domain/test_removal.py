"""Tests of ``migrator.domain.removal``."""

from __future__ import annotations

from dataclasses import replace

from migrator.domain.removal import DelaysFound, others_bindings
from migrator.domain.routing import BindingSpec, DelaysVersion, infrastructure

V2 = infrastructure(DelaysVersion.V2)
WHOLE = DelaysFound(
    version=DelaysVersion.V2,
    exchanges=V2.exchanges,
    queues=[queue.name for queue in V2.queues],
)


def test_nothing_speaks_against_empty_delays() -> None:
    """Whether all of them are there, or some, or none."""
    some, none = replace(WHOLE, queues=()), replace(WHOLE, exchanges=(), queues=())
    for found in (WHOLE, some, none):
        assert list(found.obstacles(even_if_bound=False)) == []
    assert [f.is_partly_gone for f in (WHOLE, some, none)] == [False, True, False]
    assert [f.is_absent for f in (WHOLE, some, none)] == [False, False, True]


def test_each_obstacle_is_a_sentence() -> None:
    """Names are listed up to five of a kind."""
    sales = BindingSpec(source="x", target="Sales", key="#.Sales", target_is_queue=True)
    found = replace(
        WHOLE,
        waiting={"nsb.v2.delay-level-07": 3},
        consumed=["nsb.v2.delay-level-08"],
        untold=["nsb.v2.delay-level-09"],
        feeders=[f"migrator.entry.v2.{n:02d}" for n in range(28)],
        staged={"migrator.staging.a.0": 2},
        bound=[sales],
    )
    told = list(found.obstacles(even_if_bound=False))
    assert len(told) == 6
    assert "level-07 holds 3 messages" in told[0]
    assert "migrator.entry.v2.04 and 23 more;" in told[3]
    assert told[5].startswith("still bound to the delays: Sales")
    assert list(found.obstacles(even_if_bound=True)) == told[:5]


def test_bindings_of_others_are_told_from_the_delays_own() -> None:
    """By source, target, key and kind."""
    sales = BindingSpec(source=V2.exchanges[0], target="Sales", key="#.Sales", target_is_queue=True)
    assert others_bindings(V2, [*V2.bindings, sales]) == [sales]
