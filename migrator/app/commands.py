"""What commands assemble and a daemon never needs: recall, rollback, failover, verify."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from migrator.app.app import App
from migrator.delays.access import LevelAccess
from migrator.delays.scan import utc_now
from migrator.failover.settle import FailoverSettlement
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import staging_name
from migrator.recall.recall import Recall
from migrator.recall.rollback import Rollback
from migrator.verify.levels import Parts
from migrator.verify.verify import Verify


def level_access(app: App, *, purpose: str, now: Callable[[], datetime] = utc_now) -> LevelAccess:
    """Return how the levels are reached; *purpose* is what the broker calls the connections.

    Raises:
        ConfigError: No broker is named.
    """

    def staging_queues() -> Sequence[str]:
        lanes = {status.lane for status in app.books.progress().lanes}
        lanes |= {Lane(number) for number in range(app.settings.handover.lanes)}
        return [staging_name(app.plan.delays, app.ledger_id, lane) for lane in sorted(lanes)]

    return LevelAccess(
        app.connection,
        app.management,
        purpose=purpose,
        staging_queues=staging_queues,
        now=now,
    )


def new_recall(app: App) -> Recall:
    """Return what brings handed-over timeouts back; raises what ``level_access`` does."""
    return Recall(
        recalls=app.side.recalls,
        access=level_access(app, purpose="migrator recall"),
        version=app.plan.delays,
        leases=app.leases,
        lease_duration=app.plan.lease,
        books=app.books,
        runs=app.runs,
        clock=app.clock,
        ledger_id=app.ledger_id,
        fault=app.fault,
    )


def new_rollback(app: App) -> Rollback:
    """Return what undoes a migration."""
    return Rollback(
        claims=app.claims,
        leases=app.leases,
        lease_duration=app.plan.lease,
        batches=app.batches,
        books=app.books,
        runs=app.runs,
        recalls=app.side.recalls,
        clock=app.clock,
        new_recall=lambda: new_recall(app),
        held=SqlHeldDestinations(app.engine, app.tables),
    )


def new_settlement(app: App) -> FailoverSettlement:
    """Return what settles the window that a database lost when it failed over.

    Raises:
        PreflightRefused: The store is no SQL database.
        ConfigError: No broker is named.
    """
    return FailoverSettlement(
        failover=app.sql_side(wanted_for="settling a failover").failover,
        adoption=app.adoption,
        access=level_access(app, purpose="migrator recall"),
        version=app.plan.delays,
        mode=app.plan.mode,
        cutoff=app.settings.handover.cutoff,
        leases=app.leases,
        lease_duration=app.plan.lease,
        clock=app.clock,
        ledger_id=app.ledger_id,
        fault=app.fault,
    )


def new_verify(app: App, progress: Callable[[str, int], None]) -> Verify:
    """Return what compares store, ledger and broker; *progress* is told how far it is."""
    parts = Parts(
        books=app.side.verifications,
        ledger=app.books,
        ledger_id=app.ledger_id,
        access=level_access(app, purpose="migrator verify", now=app.clock.now),
        clock=app.clock,
        wait=time.sleep,
        fault=app.fault,
        progress=progress,
    )
    return Verify(
        parts=parts,
        store=app.store,
        leases=app.leases,
        lease_duration=app.plan.lease,
        runs=app.runs,
    )
