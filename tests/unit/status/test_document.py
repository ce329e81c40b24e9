"""Tests of ``migrator.status.document``: the names in the documents are public."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from migrator.reports import json_bytes
from migrator.status.document import daemon_document
from migrator.throttle.reasons import Signal
from tests.support.documents import check_document
from tests.support.panel import NOW, SALES, MemoryPanel, hold, some_snapshot

FOUND: dict[str, Any] = json.loads(
    json_bytes("daemon", daemon_document(some_snapshot(holds=[hold(Signal.PAUSED, SALES)])))
)
LEDGER, LEVELS = FOUND["ledger"], FOUND["levels"]


def test_the_values_are_json() -> None:
    """Times as ISO 8601, spans in seconds, null for what is not known; none more and none less."""
    check_document(FOUND)
    check_document(json.loads(json_bytes("status", MemoryPanel().ledger() or {})))
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
    assert daemon_document(replace(some_snapshot(), levels=None))["levels"] is None
