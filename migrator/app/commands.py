"""What the adoption of a ledger works with, and settling a failover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.app.app import App
from migrator.app.levels import level_access
from migrator.recovery.adoption import SqlAdoption
from migrator.recovery.failover import FailoverSettlement

if TYPE_CHECKING:  # only a rollback of what a kill cut off needs it
    pass


def new_adoption(app: App) -> SqlAdoption:
    """Return what decides about a ledger that is not where it was created."""
    return SqlAdoption(app.engine, app.tables, app.runs)


def new_settlement(app: App) -> FailoverSettlement:
    """Return what settles the window that a database lost when it failed over.

    Raises:
        PreflightRefused: The store is no SQL database.
        ConfigError: No broker is named.
    """
    return FailoverSettlement(
        failover=app.sql_side(wanted_for="settling a failover").failover,
        adoption=new_adoption(app),
        access=level_access(app.settings, app.ledger, app.broker, purpose="migrator rollback"),
        version=app.settings.broker.delays,
        mode=app.settings.handover.mode,
        cutoff=app.settings.handover.cutoff,
        leases=app.leases,
        lease_duration=app.settings.handover.lease,
        clock=app.clock,
        ledger_id=app.ledger_id,
        fault=app.fault,
    )
