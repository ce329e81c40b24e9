"""The whole life of a migration with timeouts in MariaDB, through the real program."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.e2e.rig import Rig, row


@pytest.mark.slow
def test_looked_at_migrated_verified_and_taken_back(mariadb_rig: Rig) -> None:
    """Every verb an operator needs; at the end each row is in the table as it was."""
    rig = mariadb_rig
    rig.prepare()
    rows = [row(timedelta(days=3, seconds=n), body=bytes(range(n % 256))) for n in range(300)]
    rig.insert(rows)
    before = rig.stored()
    assert "Sales" in rig.must("endpoints")
    rig.must("check", "--endpoint", "Sales")
    preview = json.loads(rig.must("preview", "--endpoint", "Sales", "--json"))
    assert rig.stored() == before
    assert "300" in json.dumps(preview)
    rig.migrate()
    assert rig.stored() == {}
    rig.must("verify", "--scan")
    rig.must("rollback", "--yes")
    assert rig.stored() == before
    rig.must("verify", "--scan")
    assert rig.drain_levels() == []
