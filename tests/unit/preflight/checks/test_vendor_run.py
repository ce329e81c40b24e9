"""Tests of ``migrator.preflight.checks.vendor_run``."""

from __future__ import annotations

import pytest

from migrator.errors import TargetUnavailable
from migrator.preflight.checks.vendor_run import STAGING_QUEUE, check
from migrator.preflight.findings import Level
from migrator.preflight.ports import QueueProbe
from tests.unit.preflight.checks.fakes import FakeBroker, FakeStore, levels


def test_no_trace_of_the_vendors_tool_is_fine() -> None:
    """One finding."""
    assert levels(list(check(FakeStore(), FakeBroker()))) == [Level.OK]


def test_traces_in_store_and_broker_are_refused() -> None:
    """Either is enough; even an empty staging queue belongs to a run."""
    broker = FakeBroker(probes={STAGING_QUEUE: QueueProbe(messages=0, consumers=0)})
    found = list(check(FakeStore(vendor_runs=["a run of 2024"]), broker))
    assert levels(found) == [Level.REFUSED, Level.REFUSED]
    assert (found[0].text, found[1].subject) == ("a run of 2024", STAGING_QUEUE)


def test_what_the_store_says_is_told_though_the_broker_is_gone() -> None:
    """It comes first."""
    findings = check(FakeStore(vendor_runs=["x"]), FakeBroker(failure=TargetUnavailable("gone")))
    assert next(findings).level is Level.REFUSED
    with pytest.raises(TargetUnavailable):
        next(findings)
