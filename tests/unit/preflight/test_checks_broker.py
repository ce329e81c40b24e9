"""Tests of ``migrator.preflight.checks_broker``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.errors import AccessRefused, TargetError, TargetUnavailable
from migrator.ledger.states import Mode
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.broker import Policy
from migrator.preflight.checks_broker import FACTOR, HARMFUL, OVERHEAD_BYTES
from migrator.preflight.context import DISPATCH
from migrator.preflight.findings import Finding, Level
from migrator.rabbitmq.entities import Room
from migrator.stores.endpoints import EndpointPreview
from tests.unit.preflight.fakes import (
    NO_API,
    OWN_QUEUES,
    RETRY,
    SATELLITES,
    FakeBroker,
    found,
    found_of_delays,
    levels,
    preview,
    queue,
)

V1, V2 = DelaysVersion.V1, DelaysVersion.V2
DISPATCHING: dict[str, Any] = {
    "endpoint_names": ("Sales",),
    "modes": {"Sales": DISPATCH},
    "satellites": (SATELLITES,),
}
"""One endpoint, dispatched with retries."""


# ── alarms, and the broker itself ───────────────────────────────────────────────────────────────


def test_each_alarm_is_a_warning() -> None:
    """It goes away, and migrator waits for that; what nobody saw is not the same as fine."""
    assert levels(found("broker-alarms")) == [Level.OK]
    broker = FakeBroker(alarm_texts=["memory alarm on a", "disk alarm on b"])
    _, disk = alarms = found("broker-alarms", broker)
    assert levels(alarms) == [Level.WARNING] * 2
    assert "disk alarm on b" in disk.text
    (unseen,) = found("broker-alarms", FakeBroker(alarm_texts=NO_API))
    assert (unseen.level, unseen.text) == (Level.NOT_CHECKED, NO_API.reason)


def test_a_broker_that_answers_is_named() -> None:
    """With its version."""
    (finding,) = found("broker-reachable")
    assert (finding.level, finding.text) == (Level.OK, "RabbitMQ 3.12.4 answers")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (AccessRefused("wrong password"), "does not let us in: wrong password"),
        (TargetUnavailable("timed out"), "cannot be reached: timed out"),
        (TargetError("bad certificate"), "cannot be reached: bad certificate"),
    ],
)
def test_network_and_authentication_are_different_findings(failure: TargetError, text: str) -> None:
    """A person does different things about them."""
    (finding,) = found("broker-reachable", FakeBroker(failure=failure))
    assert finding.level is Level.REFUSED
    assert text in finding.text
    assert finding.remedy


# ── rights ──────────────────────────────────────────────────────────────────────────────────────


def test_staged_is_refused_where_our_queues_may_not_be_made() -> None:
    """Each queue is named, with the command that prints the grants and the other mode."""
    (finding,) = found("broker-rights", FakeBroker(forbidden={OWN_QUEUES[0]: "access refused"}))
    assert (finding.level, finding.subject) == (Level.REFUSED, OWN_QUEUES[0])
    assert "access refused" in finding.text
    assert "migrator broker grants" in finding.remedy
    assert "--mode direct" in finding.remedy


@pytest.mark.parametrize(
    ("mode", "own_queues", "expected"),
    [
        (Mode.DIRECT, ["q"], Level.OK),
        (Mode.STAGED, [], Level.NOT_CHECKED),  # without a ledger nobody knows their names
        (Mode.STAGED, ["r"], Level.OK),
    ],
)
def test_what_need_not_be_made_is_not_asked(
    mode: Mode, own_queues: Sequence[str], expected: Level
) -> None:
    """Direct needs no queue."""
    broker = FakeBroker(forbidden={"q": "access refused"})
    assert levels(found("broker-rights", broker, mode=mode, own_queues=own_queues)) == [expected]


def test_retries_are_refused_where_their_queues_may_not_be_made() -> None:
    """Whatever the hand-over needs; without retries there is nothing to make."""
    broker = FakeBroker(forbidden={RETRY: "access refused"})
    (finding,) = found("broker-rights", broker, **DISPATCHING)
    assert (finding.level, finding.subject) == (Level.REFUSED, RETRY)
    assert "set dispatch.retry_delays = []" in finding.remedy
    both = found("broker-rights", broker, satellites=(SATELLITES,))
    assert levels(both) == [Level.OK, Level.REFUSED]
    alone = found("broker-rights", broker, **{**DISPATCHING, "satellites": ()})
    assert levels(alone) == [Level.OK]


def test_destinations_that_may_not_be_bound_are_refused_in_one_finding() -> None:
    """With the right that is missing; only a hand-over binds, and only what it is told to."""
    names = [QueueName(f"Q{n}") for n in range(5)]
    broker = FakeBroker(unbindable=dict.fromkeys(names, "no"))
    rows = [preview(destinations=dict.fromkeys([*names, "Fine"], 1))]
    usual, finding = found("broker-rights", broker, previews=rows, version=V1)
    assert (usual.level, finding.level, finding.subject) == (Level.OK, Level.REFUSED, "broker user")
    assert finding.text == "may not bind 5 of 6 destinations: Q0: no; Q1: no; Q2: no; and 2 more"
    assert "`read` on nsb.delay-delivery" in finding.remedy
    assert "set_permissions" in finding.remedy
    fine = [preview(destinations={"Fine": 1})]
    assert levels(found("broker-rights", broker, previews=fine)) == [Level.OK] * 2
    assert levels(found("broker-rights", broker, previews=rows, may_bind=False)) == [Level.OK]
    sent = {**DISPATCHING, "satellites": (), "previews": rows}
    assert levels(found("broker-rights", broker, **sent)) == [Level.OK]


# ── version ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 10, 8), (3, 13, 0), (4, 1, 2)])
def test_a_fit_broker_is_fine(version: tuple[int, int, int]) -> None:
    """From 3.10 on; a flag that newer brokers no longer list has become part of them."""
    for flags in ({}, {"quorum_queue": True}):
        (finding,) = found("broker-version", FakeBroker(version, flags))
        assert (finding.level, finding.text) == (Level.OK, "fit for delays v2 and mode staged")


@pytest.mark.parametrize(
    ("delays", "mode", "expected"),
    [
        (V2, Mode.STAGED, Level.REFUSED),
        (V2, Mode.DIRECT, Level.REFUSED),
        (V1, Mode.STAGED, Level.REFUSED),
        (V1, Mode.DIRECT, Level.OK),
    ],
)
def test_an_old_broker_can_do_the_old_way_only(
    delays: DelaysVersion, mode: Mode, expected: Level
) -> None:
    """Staging needs quorum queues even when the delays do not."""
    broker = FakeBroker(version=(3, 9, 29), flags=NO_API)
    assert levels(found("broker-version", broker, version=delays, mode=mode)) == [expected]


def test_a_flag_that_is_off_is_refused_by_name() -> None:
    """With the command that switches it on."""
    broker = FakeBroker(flags={"stream_queue": False, "quorum_queue": True})
    (finding,) = found("broker-version", broker)
    assert finding.level is Level.REFUSED
    assert finding.remedy == "rabbitmqctl enable_feature_flag stream_queue"


@pytest.mark.parametrize("broker", [FakeBroker(flags=NO_API), FakeBroker(version=(0, 0, 0))])
def test_what_cannot_be_read_is_neither_old_nor_fit(broker: FakeBroker) -> None:
    """Flags without the management API, or the version."""
    assert levels(found("broker-version", broker)) == [Level.NOT_CHECKED]


def test_a_dispatcher_without_retries_can_do_with_any_version() -> None:
    """With them it needs queues in which messages expire."""
    old = FakeBroker(version=(3, 9, 29), flags=NO_API)
    (finding,) = found("broker-version", old, **{**DISPATCHING, "satellites": ()})
    assert (finding.level, finding.text) == (Level.OK, "any version will do for a dispatcher")
    (finding,) = found("broker-version", old, **DISPATCHING)
    assert finding.text == "dispatch.retry_delays need version 3.10 or newer"
    assert finding.remedy == "upgrade the broker, or set dispatch.retry_delays = []"
    (finding,) = found_of_delays("broker-version", old)
    assert finding.remedy == "upgrade the broker, or use --delays v1 --mode direct"


# ── room ────────────────────────────────────────────────────────────────────────────────────────

ROWS = preview(destinations={"Sales": 1000}, size=10**6)
NEEDED = FACTOR * (10**6 + 1000 * OVERHEAD_BYTES)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (NEEDED - 1, Level.REFUSED),
        (NEEDED, Level.WARNING),
        (2 * NEEDED - 1, Level.WARNING),
        (2 * NEEDED, Level.OK),
    ],
)
def test_the_estimate_is_compared_with_what_is_left(left: int, expected: Level) -> None:
    """Above the broker's own limit, below which it stops publishers."""
    broker = FakeBroker(left=Room(disk_free_bytes=left + 50, disk_limit_bytes=50))
    assert levels(found("capacity", broker, previews=[ROWS])) == [expected]


def test_without_the_management_api_the_need_is_told_all_the_same() -> None:
    """A person can compare."""
    (finding,) = found("capacity", FakeBroker(left=NO_API), previews=[ROWS])
    assert finding.level is Level.NOT_CHECKED
    assert "1000 messages need about 3 MiB" in finding.text


@pytest.mark.parametrize(
    "previews", [[ROWS, preview(destinations={"Sales": 1}, is_complete=False)], None]
)
def test_part_of_the_rows_is_no_estimate(previews: Sequence[EndpointPreview] | None) -> None:
    """Neither is none of them."""
    assert levels(found("capacity", previews=previews)) == [Level.NOT_CHECKED]


# ── policies ────────────────────────────────────────────────────────────────────────────────────


def test_all_levels_and_our_own_queues_are_asked_for() -> None:
    """Whether they exist or not."""
    broker = FakeBroker()
    assert levels(found("policies", broker)) == [Level.OK]
    assert len(broker.policies_asked) == 30
    assert set(OWN_QUEUES) < set(broker.policies_asked)


@pytest.mark.parametrize("key", sorted(HARMFUL))
def test_whatever_changes_what_the_queues_do_is_refused(key: str) -> None:
    """A policy beats a queue's own arguments."""
    policy = Policy(name="blanket", definition={key: 1, "ha-mode": "all"})
    (finding,) = found("policies", FakeBroker(rules={"nsb.v2.delay-level-03": [policy]}))
    assert (finding.level, finding.subject) == (Level.REFUSED, "policy blanket")
    assert finding.text == f"it sets {key} on nsb.v2.delay-level-03"


def test_a_blanket_policy_is_one_finding() -> None:
    """Not one per queue."""
    policy = Policy(name="ttl", definition={"message-ttl": 5, "overflow": "drop-head"})
    (finding,) = found("policies", FakeBroker(rules={"b": [policy], "a": [policy], "c": []}))
    assert finding.text == "it sets message-ttl, overflow on a and 1 more"


@pytest.mark.parametrize(
    "definition",
    [{"queue-leader-locator": "balanced"}, {"delivery-limit": 100_000}, {"delivery-limit": -1}],
)
def test_harmless_policies_are_fine(definition: dict[str, object]) -> None:
    """Such as where leaders live, or what takes the place of RabbitMQ 4's own delivery limit."""
    policy = Policy(name="harmless", definition=definition)
    assert levels(found("policies", FakeBroker(rules={"a": [policy]}))) == [Level.OK]


@pytest.mark.parametrize("broker", [FakeBroker(rules=NO_API), FakeBroker(alternates=NO_API)])
def test_policies_that_nobody_saw_are_not_fine(broker: FakeBroker) -> None:
    """Without the management API."""
    assert levels(found("policies", broker)) == [Level.NOT_CHECKED]


def test_exchanges_that_divert_are_refused() -> None:
    """Levels, delivery and our own are asked for; one finding for each that does it."""
    diverting = {
        "nsb.v2.delay-delivery": ["policy all", "its own argument"],
        "migrator.router.v2": ["policy all"],
    }
    broker = FakeBroker(alternates=diverting)
    its_own, policy = found("policies", broker)
    assert (its_own.level, policy.level) == (Level.REFUSED, Level.REFUSED)
    assert "by its own argument, what nsb.v2.delay-delivery cannot route" in its_own.text
    assert "by policy all, what migrator.router.v2 and 1 more cannot route" in policy.text
    # of a lane, the staging exchange has the name of its queue
    assert len(broker.diverting_asked) == 28 + 1 + 1 + len(OWN_QUEUES)
    assert diverting.keys() < set(broker.diverting_asked)


# ── the queues of timeout managers ──────────────────────────────────────────────────────────────

STORE, CONTROL, ERROR = "Sales.Timeouts", "Sales.TimeoutsDispatcher", "error"


def satellites(**consumers: int | None) -> Mapping[str, Finding]:
    """Return what is found, by queue; *consumers* of each queue, None: it does not exist."""
    names = {"store": STORE, "control": CONTROL, "error": ERROR}
    there = {name: consumers.get(key, 0) for key, name in names.items()}
    probes = {name: queue(n, ready=7) for name, n in there.items() if n is not None}
    findings = found("satellite-queues", FakeBroker(probes=probes), satellites=[SATELLITES])
    return {finding.subject: finding for finding in findings}


def test_queues_that_nobody_consumes_are_fine() -> None:
    """It is told how many messages wait for us."""
    findings = satellites()
    assert {f.level for f in findings.values()} == {Level.OK}
    assert findings[STORE].text == "nobody else consumes it; 7 messages wait"


def test_a_missing_store_queue_or_error_queue_is_refused() -> None:
    """The endpoint sends its timeouts elsewhere; a message that fails could go nowhere."""
    finding = satellites(store=None)[STORE]
    assert finding.level is Level.REFUSED
    assert "queue in [[endpoints]]" in finding.remedy
    finding = satellites(error=None)[ERROR]
    assert finding.level is Level.REFUSED
    assert "dispatch.error_queue" in finding.remedy


def test_a_missing_control_queue_is_fine() -> None:
    """Then there are no control messages to be read."""
    finding = satellites(control=None)[CONTROL]
    assert (finding.level, finding.remedy) == (Level.OK, "")
    assert "no control messages are read" in finding.text


@pytest.mark.parametrize(("limit", "is_low"), [(20, True), (100_000, False), (-1, False)])
def test_a_low_delivery_limit_is_told(limit: int, is_low: bool) -> None:
    """The broker would drop what lost connections bring back too often."""
    probes = {name: queue() for name in (STORE, CONTROL, ERROR)}
    policy = Policy(name="limits", definition={"delivery-limit": limit})
    broker = FakeBroker(probes=probes, rules={STORE: [policy]})
    findings = found("satellite-queues", broker, satellites=[SATELLITES])
    warned = [f for f in findings if f.level is Level.WARNING]
    assert [f.subject for f in warned] == ([STORE] if is_low else [])


@pytest.mark.parametrize(
    ("which", "expected"), [("store", STORE), ("control", CONTROL), ("error", None)]
)
def test_another_consumer_is_warned_of(which: str, expected: str | None) -> None:
    """A timeout manager, or another migrator; a monitoring tool may read the error queue."""
    warned = [f for f in satellites(**{which: 2}).values() if f.level is Level.WARNING]
    assert [f.subject for f in warned] == ([expected] if expected else [])
    assert all("timeout manager" in f.text and "another migrator" in f.text for f in warned)


@pytest.mark.parametrize(
    ("consumers", "expected"), [(0, Level.OK), (1, Level.WARNING), (None, Level.OK)]
)
def test_two_must_not_send_what_is_nearly_due(consumers: int | None, expected: Level) -> None:
    """The endpoint's timeout manager and our dispatcher would both take such rows."""
    broker = FakeBroker(probes={} if consumers is None else {CONTROL: queue(consumers)})
    (finding,) = found(
        "satellite-queues",
        broker,
        endpoint_names=["Sales"],
        sends_near_due=True,
        cutoff=timedelta(minutes=1),
    )
    assert finding.level is expected
    assert ("--near-due leave" in finding.remedy) is (expected is Level.WARNING)


def test_without_a_dispatcher_no_queue_is_asked_for() -> None:
    """The check says so."""
    (finding,) = found("satellite-queues")
    assert finding.level is Level.OK
    assert "not needed" in finding.text
