"""Tests of ``migrator.preview.report``."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import MAX_DELAY_S, EndpointName, QueueName
from migrator.preview.report import Preview, preview_document, span_of
from migrator.stores.endpoints import EndpointPreview, Quarantinable
from tests.unit.nservicebus.samples import NOW

ENDPOINT = EndpointPreview(
    endpoint=EndpointName("Sales"),
    source="public.Sales_TimeoutData",
    is_complete=True,
    stored=12,
    in_ledger=1,
    without_due_time=1,
    left=2,
    beyond_horizon=1,
    to_migrate=7,
    overdue=1,
    quarantine={Reason.NO_DESTINATION: Quarantinable(count=2, examples=["a", "b"], detail="none")},
    destinations={QueueName("Sales"): 4, QueueName("Billing"): 1},
    due={"overdue": 1, "1d": 10},
    zone_offsets={timedelta(hours=-2): 3},
    bytes=4096,
    entry_levels={16: 4, 3: 1},
)
PREVIEW = Preview(
    taken_at=NOW,
    cutoff=timedelta(minutes=1),
    horizon=None,
    version=DelaysVersion.V2,
    rate_per_s=2.0,
    endpoints=(ENDPOINT,),
)


@pytest.mark.parametrize(
    ("until_due", "expected"),
    [
        (-timedelta(days=9), "overdue"),
        (timedelta(0), "overdue"),
        (timedelta(microseconds=1), "1m"),
        (timedelta(minutes=1), "1m"),
        (timedelta(minutes=1, microseconds=1), "1h"),
        (timedelta(days=1), "1d"),
        (timedelta(days=7), "1w"),
        (timedelta(days=30), "30d"),
        (timedelta(days=365), "1y"),
        (timedelta(seconds=MAX_DELAY_S), "8.5y"),
        (timedelta(seconds=MAX_DELAY_S, microseconds=1), "beyond"),
    ],
)
def test_steps_of_the_histogram_end_inclusively(until_due: timedelta, expected: str) -> None:
    """A row due in exactly a minute belongs to the first minute."""
    assert span_of(until_due) == expected


def test_sums_follow_from_the_counts() -> None:
    """What is handed over is what is migrated without what is quarantined."""
    assert (ENDPOINT.quarantined, ENDPOINT.to_hand_over) == (2, 5)
    assert PREVIEW.estimated == timedelta(seconds=2.5)


def test_the_document_is_plain_json() -> None:
    """The public form holds every count under its documented name."""
    document = json.loads(json.dumps(preview_document(PREVIEW)))
    assert document["horizon_s"] is None
    assert document["estimated_s"] == 2.5
    (endpoint,) = document["endpoints"]
    assert endpoint["quarantine"] == [
        {"reason": "no-destination", "count": 2, "examples": ["a", "b"], "detail": "none"}
    ]
    assert list(endpoint["destinations"]) == ["Billing", "Sales"]
    assert endpoint["due"]["beyond"] == 0
    assert endpoint["zone_offsets_min"] == {"-120": 3}
    assert endpoint["entry_levels"] == {"3": 1, "16": 4}
    whole = replace(PREVIEW, horizon=timedelta(days=30))
    assert preview_document(whole)["horizon_s"] == 2_592_000.0
