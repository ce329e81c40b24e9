"""Tests of ``migrator.preflight.checks.policies``."""

from __future__ import annotations

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.preflight.checks.policies import HARMFUL, check
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import Policy
from tests.unit.preflight.checks.fakes import NO_API, FakeBroker

OURS = ("migrator.staging.a1.0", "migrator.receipts.a1.0")


def found(broker: FakeBroker) -> list[Finding]:
    """Return what the check finds."""
    return list(check(broker, version=DelaysVersion.V2, own_queues=OURS))


def test_all_levels_and_our_own_queues_are_asked_for() -> None:
    """Whether they exist or not."""
    broker = FakeBroker()
    assert [f.level for f in found(broker)] == [Level.OK]
    assert len(broker.policies_asked) == 30
    assert set(OURS) < set(broker.policies_asked)


@pytest.mark.parametrize("key", sorted(HARMFUL))
def test_whatever_changes_what_the_queues_do_is_refused(key: str) -> None:
    """A policy beats a queue's own arguments."""
    policy = Policy(name="blanket", definition={key: 1, "ha-mode": "all"})
    (finding,) = found(FakeBroker(rules={"nsb.v2.delay-level-03": [policy]}))
    assert (finding.level, finding.subject) == (Level.REFUSED, "policy blanket")
    assert finding.text == f"it sets {key} on nsb.v2.delay-level-03"


def test_a_blanket_policy_is_one_finding() -> None:
    """Not one per queue."""
    policy = Policy(name="ttl", definition={"message-ttl": 5, "overflow": "drop-head"})
    (finding,) = found(FakeBroker(rules={"b": [policy], "a": [policy], "c": []}))
    assert finding.text == "it sets message-ttl, overflow on a and 1 more"


@pytest.mark.parametrize(
    "definition",
    [{"queue-leader-locator": "balanced"}, {"delivery-limit": 100_000}, {"delivery-limit": -1}],
)
def test_harmless_policies_are_fine(definition: dict[str, object]) -> None:
    """Such as where leaders live, or what takes the place of RabbitMQ 4's own delivery limit."""
    policy = Policy(name="harmless", definition=definition)
    (finding,) = found(FakeBroker(rules={"a": [policy]}))
    assert finding.level is Level.OK


def test_policies_that_nobody_saw_are_not_fine() -> None:
    """Without the management API."""
    for broker in (FakeBroker(rules=NO_API), FakeBroker(alternates=NO_API)):
        (finding,) = found(broker)
        assert finding.level is Level.NOT_CHECKED


def test_exchanges_that_divert_are_refused() -> None:
    """Levels, delivery and our own are asked for; one finding for each that does it."""
    diverting = {
        "nsb.v2.delay-delivery": ["policy all", "its own argument"],
        "migrator.router.v2": ["policy all"],
    }
    broker = FakeBroker(alternates=diverting)
    its_own, policy = check(
        broker, version=DelaysVersion.V2, own_queues=OURS, own_exchanges=["migrator.router.v2"]
    )
    assert (its_own.level, policy.level) == (Level.REFUSED, Level.REFUSED)
    assert "by its own argument, what nsb.v2.delay-delivery cannot route" in its_own.text
    assert "by policy all, what migrator.router.v2 and 1 more cannot route" in policy.text
    assert len(broker.diverting_asked) == 28 + 1 + 1
    assert diverting.keys() < set(broker.diverting_asked)
