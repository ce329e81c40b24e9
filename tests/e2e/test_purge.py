"""A daemon that purges its ledger by itself, on real servers."""

from __future__ import annotations

from pathlib import Path

from dev.servers import wait_until
from tests.e2e.daemon import listen, noted, status
from tests.e2e.rig import Rig, row


def test_settled_rows_are_purged_and_the_books_stay(rig: Rig, tmp_path: Path) -> None:
    """Without a command; what waits in the levels stays there, and verify knows the difference."""
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_LEDGER__PURGE_AFTER": "1s",
        "MIGRATOR_LEDGER__PURGE_WHEN": "500ms",
        "MIGRATOR_DISPATCH__REMEMBER": "1s",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    rig.prepare()
    rows = [row(), row(), row(destination=None)]
    rig.insert(rows)
    process = rig.start("run", "--endpoint", "Sales")
    wait_until(lambda: bool(noted(rig, "ledger_purged")), seconds=30, what="a purge")
    assert sum(each["rows"] for each in noted(rig, "ledger_purged")) == 2
    (job,) = [job for job in status(rig)["jobs"] if job["job"] == "ledger-purge"]
    assert (job["when"], job["last"]["outcome"]) == ("500ms", "done")
    process.terminate()
    assert rig.finish(process, timeout=30).returncode == 5
    with rig.sql() as connection:
        left = connection.execute("SELECT state FROM migrator.timeout").fetchall()
        (books,) = connection.execute("SELECT sum(size), sum(purged) FROM migrator.batch")
    assert left == [("quarantined",)]
    assert books == (3, 2)
    assert len(rig.drain_levels()) == 2
