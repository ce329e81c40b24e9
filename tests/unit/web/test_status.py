"""Tests of ``migrator.web.status``; the ledger's part is tested with ``migrator status``."""

from __future__ import annotations

import json
from dataclasses import replace

from migrator.ledger.pause_reasons import Signal
from migrator.reports.documents import json_bytes
from migrator.web.status import snapshot_document
from tests.support.panel import NOW, SALES, hold, some_snapshot


def test_a_look_is_one_document() -> None:
    """Everything in it, in JSON's own values."""
    waiting = some_snapshot(holds=[hold(Signal.PAUSED, SALES)])
    found = json.loads(json_bytes("daemon", snapshot_document(waiting)))
    assert found["schema"] == "migrator/daemon/1"
    assert (found["taken_at"], found["age_s"]) == (NOW.isoformat(), 1.5)
    expected = {
        "signal": "paused",
        "endpoint": "Sales",
        "observed": "what was seen",
        "limit": "",
        "since": NOW.isoformat(),
        "text": "paused: what was seen",
    }
    assert found["holds"] == found["working_on"][0]["holds"] == [expected]
    assert found["working_on"][1]["in_store"] is None
    assert found["ledger"]["oldest_open_age_s"] == 300
    assert found["ledger"]["doubtful"][0]["batch"] == 7
    assert found["levels"]["levels"][24]["ready"] == 12
    assert found["due"] == [{"due": "up to 1h", "rows": 11}, {"due": "later", "rows": 22}]
    assert found["events"][0]["detail"] == {"at": NOW.isoformat()}
    sweep, canary = found["jobs"]
    assert (sweep["job"], sweep["when"], sweep["missed"], sweep["last"]) == ("sweep", "1s", 2, None)
    assert (canary["last"]["outcome"], canary["last"]["is_fine"]) == ("late", False)
    assert found["not_known"] == ["the management API did not answer"]


def test_levels_that_were_not_looked_at_are_null() -> None:
    """Not an empty ladder."""
    assert snapshot_document(replace(some_snapshot(), ladder=None))["levels"] is None
