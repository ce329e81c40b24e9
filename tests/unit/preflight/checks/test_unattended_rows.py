"""Tests of ``migrator.preflight.checks.unattended_rows``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from migrator.preflight.checks.unattended_rows import check
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import QueueProbe
from migrator.stores.endpoints import EndpointPreview
from tests.unit.preflight.checks.fakes import FakeBroker, preview

MINUTE = timedelta(minutes=1)


def found(
    previews: Sequence[EndpointPreview] | None,
    *,
    cutoff: timedelta = MINUTE,
    consumers: Mapping[str, int] | None = None,
) -> Finding:
    """Return the one finding; *consumers* by endpoint of its dispatcher queue."""
    probes = {
        f"{name}.TimeoutsDispatcher": QueueProbe(messages=0, consumers=count)
        for name, count in (consumers or {}).items()
    }
    (finding,) = check(FakeBroker(probes=probes), previews, cutoff=cutoff)
    return finding


def test_without_a_cutoff_nothing_is_left() -> None:
    """Overdue rows are sent by migrator itself."""
    assert found([preview(left=5)], cutoff=timedelta(0)).level is Level.OK


def test_a_running_timeout_manager_sends_what_is_left() -> None:
    """Its dispatcher queue has a consumer."""
    finding = found([preview(left=5)], consumers={"Sales": 1})
    assert finding.level is Level.OK
    assert "5 rows" in finding.text


def test_a_discovered_endpoint_may_have_dots() -> None:
    """Its table shows them as underscores."""
    broker = FakeBroker(
        probes={"Sales.Orders.TimeoutsDispatcher": QueueProbe(messages=0, consumers=2)}
    )
    (finding,) = check(broker, [preview(left=1, endpoint="Sales_Orders")], cutoff=MINUTE)
    assert finding.level is Level.OK


@pytest.mark.parametrize("consumers", [{}, {"Sales": 0}])
def test_rows_that_nobody_will_send_are_warned_of(consumers: dict[str, int]) -> None:
    """They are not lost, but they lie there for ever."""
    finding = found([preview(left=5)], consumers=consumers)
    assert finding.level is Level.WARNING
    assert "5 rows are overdue or due soon" in finding.text
    assert "--cutoff 0s" in finding.remedy


def test_the_danger_is_told_before_there_are_such_rows() -> None:
    """They would come whenever migrator is down for longer than the cutoff."""
    finding = found([preview(destinations={"Sales": 1})])
    assert finding.level is Level.WARNING
    assert "while migrator is down" in finding.text


def test_without_rows_nobody_can_tell() -> None:
    """That is not the same as fine."""
    assert found(None).level is Level.NOT_CHECKED


@pytest.mark.parametrize(
    ("previews", "sends_near_due"), [([preview(left=5)], True), ([], False), (None, True)]
)
def test_rows_that_our_dispatcher_sends_are_attended(
    previews: Sequence[EndpointPreview] | None, sends_near_due: bool
) -> None:
    """By choice, or because no chosen endpoint is migrated; no timeout manager is looked for."""
    (finding,) = check(FakeBroker(), previews, cutoff=MINUTE, sends_near_due=sends_near_due)
    assert finding.level is Level.OK


def test_the_timeout_manager_is_looked_for_at_the_endpoints_queue() -> None:
    """Which may have another name than the endpoint."""
    broker = FakeBroker(probes={"In.TimeoutsDispatcher": QueueProbe(messages=0, consumers=1)})
    rows = [preview(left=5)]
    (finding,) = check(broker, rows, cutoff=MINUTE, queues={"Sales": "In"})
    assert finding.level is Level.OK
    (finding,) = check(broker, rows, cutoff=MINUTE, queues={"Sales": "Out"})
    assert "nobody consumes Out.TimeoutsDispatcher" in finding.text
