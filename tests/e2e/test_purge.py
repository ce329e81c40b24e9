"""A daemon that purges its ledger by itself, on real servers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from dev.servers import wait_until
from tests.e2e.daemon import jobs, listen, noted
from tests.e2e.rig import Rig
from tests.e2e.rows import row


def test_settled_rows_are_purged_and_progress_stays(rig: Rig, tmp_path: Path) -> None:
    """Without a command; what still waits in the levels stays in the ledger as well."""
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_LEDGER__PURGE_AFTER": "1s",
        "MIGRATOR_LEDGER__PURGE_WHEN": "500ms",
        "MIGRATOR_DISPATCH__REMEMBER": "1s",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
        "MIGRATOR_HANDOVER__CUTOFF": "0s",
    }
    rig.prepare()
    soon, later = timedelta(seconds=2), row()
    rig.insert([row(soon), row(soon), later, row(destination=None)])
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: _purged(rig) == 2, what="a purge of both")
    wait_until(lambda: jobs(rig)["ledger-purge"]["last"] is not None, what="its report")
    job = jobs(rig)["ledger-purge"]
    assert (job["when"], job["last"]["outcome"]) == ("500ms", "done")
    process.terminate()
    assert rig.finish(process).returncode == 5
    query = "SELECT store_id, state FROM migrator.timeout WHERE state IS NULL OR state <> %s"
    assert rig.query(query, "quarantined") == [(later.id, None)]
    assert rig.query("SELECT sum(size), sum(purged) FROM migrator.batch") == [(4, 2)]
    assert len(rig.drain_levels()) == 1


def _purged(rig: Rig) -> int:
    return sum(each["rows"] for each in noted(rig, "ledger_purged"))
