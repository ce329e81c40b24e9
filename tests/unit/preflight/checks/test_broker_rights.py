"""Tests of ``migrator.preflight.checks.broker_rights``."""

from __future__ import annotations

from migrator.delays.routing import DelaysVersion
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.broker_rights import check
from migrator.preflight.findings import Level
from tests.unit.preflight.checks.fakes import RETRY, FakeBroker, levels


def test_staged_is_refused_where_our_queues_may_not_be_made() -> None:
    """Each queue is named, with the command that prints the grants and the other mode."""
    broker = FakeBroker(forbidden={"migrator.staging.x.0": "access refused"})
    names = ["migrator.staging.x.0", "migrator.receipts.x.0"]
    (found,) = check(broker, mode=Mode.STAGED, own_queues=names)
    assert (found.level, found.subject) == (Level.REFUSED, "migrator.staging.x.0")
    assert "access refused" in found.text
    assert "migrator broker grants" in found.remedy
    assert "--mode direct" in found.remedy


def test_what_need_not_be_made_is_not_asked() -> None:
    """Direct needs no queue; without a ledger nobody knows their names."""
    broker = FakeBroker(forbidden={"q": "access refused"})
    assert levels(list(check(broker, mode=Mode.DIRECT, own_queues=["q"]))) == [Level.OK]
    assert levels(list(check(broker, mode=Mode.STAGED, own_queues=[]))) == [Level.NOT_CHECKED]
    assert levels(list(check(broker, mode=Mode.STAGED, own_queues=["r"]))) == [Level.OK]


def test_retries_are_refused_where_their_queues_may_not_be_made() -> None:
    """Whatever the hand-over needs; without retries there is nothing to make."""
    broker = FakeBroker(forbidden={RETRY: "access refused"})
    (found,) = check(broker, mode=None, own_queues=["q"], retry_queues=[RETRY])
    assert (found.level, found.subject) == (Level.REFUSED, RETRY)
    assert "set dispatch.retry_delays = []" in found.remedy
    both = check(broker, mode=Mode.STAGED, own_queues=["q"], retry_queues=[RETRY])
    assert levels(list(both)) == [Level.OK, Level.REFUSED]
    assert levels(list(check(broker, mode=None, own_queues=["q"]))) == [Level.OK]


def test_destinations_that_may_not_be_bound_are_refused_in_one_finding() -> None:
    """With the right that is missing; only a hand-over binds, and only what it is told to."""
    names = [QueueName(f"Q{n}") for n in range(5)]
    broker = FakeBroker(unbindable=dict.fromkeys(names, "no"))
    usual, found = check(
        broker,
        mode=Mode.STAGED,
        own_queues=["q"],
        version=DelaysVersion.V1,
        bound=[*names, QueueName("Fine")],
    )
    assert (usual.level, found.level, found.subject) == (Level.OK, Level.REFUSED, "broker user")
    assert found.text == "may not bind 5 of 6 destinations: Q0: no; Q1: no; Q2: no; and 2 more"
    assert "`read` on nsb.delay-delivery" in found.remedy
    assert "set_permissions" in found.remedy
    assert levels(list(check(broker, mode=Mode.DIRECT, own_queues=()))) == [Level.OK]
    fine = check(broker, mode=Mode.DIRECT, own_queues=(), bound=[QueueName("Fine")])
    assert levels(list(fine)) == [Level.OK, Level.OK]
    assert levels(list(check(broker, mode=None, own_queues=(), bound=names))) == [Level.OK]
