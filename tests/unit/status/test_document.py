"""Tests of ``migrator.status.document``: the names in the documents are public."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from migrator.reports import json_bytes
from migrator.status.document import snapshot_document
from migrator.throttle.reasons import Signal
from tests.support.panel import NOW, SALES, hold, some_snapshot

FOUND: Mapping[str, Any] = json.loads(
    json_bytes("daemon", snapshot_document(some_snapshot(holds=[hold(Signal.PAUSED, SALES)])))
)
LEDGER, LEVELS = FOUND["ledger"], FOUND["levels"]


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (
            FOUND,
            "schema taken_at age_s version owner title system uptime_s throughput settings holds "
            "working_on ledger levels due events jobs not_known",
        ),
        (
            FOUND["working_on"][0],
            "endpoint mode state in_store to_move left overdue later sent_by cutoff_s percent "
            "rate_per_s eta_s text holds",
        ),
        (FOUND["events"][0], "id at kind batch endpoint actor detail"),
        (FOUND["jobs"][1], "job when runs missed last"),
        (FOUND["jobs"][1]["last"], "at outcome is_fine text detail"),
        (LEDGER, "taken_at endpoints quarantine doubtful held oldest_open_age_s lanes"),
        (
            LEDGER["endpoints"][0],
            "endpoint claimed_total in_flight parked handed_over dispatched quarantined doubtful "
            "released rows",
        ),
        (LEDGER["quarantine"][0], "endpoint reason rows"),
        (LEDGER["doubtful"][0], "batch endpoint lane mode attempt size since"),
        (
            LEDGER["held"][0],
            "endpoint source destination reason detail tries since next_try_at rows",
        ),
        (LEDGER["lanes"][0], "lane serves owner doing is_alive until renewed_at open_batches"),
        (LEVELS, "delays not_known levels total"),
        (
            LEVELS["levels"][0],
            "level queue exists wait_s longest_delay_s ready unacknowledged held consumers",
        ),
        (LEVELS["total"], "ready unacknowledged held consumers"),
    ],
)
def test_the_names_are_those_that_programs_read(found: Mapping[str, Any], names: str) -> None:
    """None more and none less: a field of a value that is in a document is in the document."""
    assert set(found) == set(names.split())


def test_the_values_are_json() -> None:
    """Times as ISO 8601, spans in seconds, null for what is not known."""
    assert FOUND["schema"] == "migrator/daemon/1"
    assert (FOUND["taken_at"], FOUND["age_s"]) == (NOW.isoformat(), 1.5)
    expected = {
        "signal": "paused",
        "endpoint": "Sales",
        "observed": "what was seen",
        "limit": "",
        "since": NOW.isoformat(),
        "text": "paused: what was seen",
    }
    assert FOUND["holds"] == FOUND["working_on"][0]["holds"] == [expected]
    assert FOUND["working_on"][1]["in_store"] is FOUND["jobs"][0]["last"] is None
    assert (LEDGER["oldest_open_age_s"], LEDGER["doubtful"][0]["batch"]) == (300, 7)
    assert LEVELS["levels"][24]["ready"] == 12
    assert FOUND["due"] == [{"due": "up to 1h", "rows": 11}, {"due": "later", "rows": 22}]
    assert FOUND["events"][0]["detail"] == {"at": NOW.isoformat()}
    assert FOUND["not_known"] == ["the management API did not answer"]
    assert snapshot_document(replace(some_snapshot(), levels=None))["levels"] is None
