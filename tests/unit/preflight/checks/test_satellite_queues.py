"""Tests of ``migrator.preflight.checks.satellite_queues``."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from migrator.preflight.checks.satellite_queues import check
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import Policy, QueueProbe
from tests.unit.preflight.checks.fakes import SATELLITES, FakeBroker

STORE, CONTROL, ERROR = "Sales.Timeouts", "Sales.TimeoutsDispatcher", "error"


def found(**consumers: int | None) -> Mapping[str, Finding]:
    """Return what is found, by queue; *consumers* of each queue, None: it does not exist."""
    probes = {
        name: QueueProbe(messages=7, consumers=count)
        for name, count in {
            STORE: consumers.get("store", 0),
            CONTROL: consumers.get("control", 0),
            ERROR: consumers.get("error", 0),
        }.items()
        if count is not None
    }
    findings = check(FakeBroker(probes=probes), [SATELLITES], near_due_queues=())
    return {finding.subject: finding for finding in findings}


def test_queues_that_nobody_consumes_are_fine() -> None:
    """It is told how many messages wait for us."""
    findings = found()
    assert {f.level for f in findings.values()} == {Level.OK}
    assert findings[STORE].text == "nobody else consumes it; 7 messages wait"


def test_a_missing_store_queue_is_refused() -> None:
    """The endpoint sends its timeouts elsewhere; the remedy names the setting."""
    finding = found(store=None)[STORE]
    assert finding.level is Level.REFUSED
    assert "queue in [[endpoints]]" in finding.remedy


@pytest.mark.parametrize(("limit", "is_low"), [(20, True), (100_000, False), (-1, False)])
def test_a_low_delivery_limit_is_told(limit: int, is_low: bool) -> None:
    """The broker would drop what lost connections bring back too often."""
    probes = {name: QueueProbe(messages=0, consumers=0) for name in (STORE, CONTROL, ERROR)}
    policy = Policy(name="limits", definition={"delivery-limit": limit})
    broker = FakeBroker(probes=probes, rules={STORE: [policy]})
    findings = list(check(broker, [SATELLITES], near_due_queues=()))
    warned = [f for f in findings if f.level is Level.WARNING]
    assert [f.subject for f in warned] == ([STORE] if is_low else [])


def test_a_missing_control_queue_is_fine() -> None:
    """Then there are no control messages to be read."""
    finding = found(control=None)[CONTROL]
    assert (finding.level, finding.remedy) == (Level.OK, "")
    assert "no control messages are read" in finding.text


def test_a_missing_error_queue_is_refused() -> None:
    """A message that fails for good could go nowhere."""
    finding = found(error=None)[ERROR]
    assert finding.level is Level.REFUSED
    assert "dispatch.error_queue" in finding.remedy


@pytest.mark.parametrize(("which", "queue"), [("store", STORE), ("control", CONTROL)])
def test_another_consumer_is_warned_of(which: str, queue: str) -> None:
    """Most likely the endpoint's own timeout manager; another migrator looks the same."""
    findings = found(**{which: 2})
    warned = [f for f in findings.values() if f.level is Level.WARNING]
    assert [f.subject for f in warned] == [queue]
    assert "timeout manager" in warned[0].text
    assert "another migrator" in warned[0].text


def test_whoever_consumes_the_error_queue_is_none_of_ours() -> None:
    """A monitoring tool usually does."""
    assert found(error=1)[ERROR].level is Level.OK


@pytest.mark.parametrize(
    ("consumers", "expected"), [(0, Level.OK), (1, Level.WARNING), (None, Level.OK)]
)
def test_two_must_not_send_what_is_nearly_due(consumers: int | None, expected: Level) -> None:
    """The endpoint's timeout manager and our dispatcher would both take such rows."""
    probe = None if consumers is None else QueueProbe(messages=0, consumers=consumers)
    broker = FakeBroker(probes={CONTROL: probe} if probe else {})
    (finding,) = check(broker, (), near_due_queues=["Sales"])
    assert finding.level is expected
    assert ("--near-due leave" in finding.remedy) is (expected is Level.WARNING)


def test_without_a_dispatcher_no_queue_is_asked_for() -> None:
    """The check says so."""
    (finding,) = check(FakeBroker(), (), near_due_queues=())
    assert finding.level is Level.OK
    assert "not needed" in finding.text
