"""What ``migrator db purge`` does to the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.app.ledger import open_ledger
from migrator.ledger.purge import SettledRows

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from migrator.config import Settings
    from migrator.nservicebus.timeouts import RunId


def purge_ledger(settings: Settings, age: timedelta, run: RunId | None) -> tuple[datetime, int]:
    """Delete content of rows settled longer ago than *age*; return before when, and how many.

    Only those of *run*, if there is one.
    """
    with open_ledger(settings) as ledger:
        before = ledger.clock.now() - age
        count = SettledRows(ledger.engine, ledger.tables).purge(before=before, run=run)
        detail = {"before": before.isoformat(), "run": run, "rows": count}
        ledger.runs.record("ledger_purged", detail=detail, batch=None)
        return before, count
