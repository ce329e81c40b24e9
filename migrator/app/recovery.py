"""What adopting a ledger, recovering from a failover and resolving batches need."""

from __future__ import annotations

from collections.abc import Sequence

from migrator.app.app import App
from migrator.app.levels import level_access
from migrator.app.preflight import satellites
from migrator.config import EndpointMode
from migrator.ledger.version import check_head
from migrator.nservicebus.satellites import timeouts_queue
from migrator.nservicebus.timeouts import Lane, QueueName
from migrator.recovery.adoption import (
    LedgerLocation,
    MovedContents,
    MovePlan,
    SqlAdoption,
    owners_on_broker,
    plan_move,
)
from migrator.recovery.failover import FailoverRecovery
from migrator.recovery.resolve import Resolver, UnresolvedBatches


def open_adoption(app: App) -> SqlAdoption:
    """Return what decides about a ledger that is not where it was created.

    Raises:
        LedgerMissing: It is at a schema version this release does not support.
    """
    check_head(app.engine, app.tables)
    return SqlAdoption(app.engine, app.tables, app.runs)


def move_plan(app: App, location: LedgerLocation) -> MovePlan:
    """Return whether a moved ledger can continue at its *location*."""
    owners = owners_on_broker(
        app.broker_facts, location.ledger_id, _lanes(app, location), _timeouts_queues(app)
    )
    return plan_move(location, _contents(app), owners)


def open_failover(app: App) -> FailoverRecovery | None:
    """Return what recovers from a failover of the ledger's database; None: there was none.

    Raises:
        LedgerMissing, LedgerCloned: The ledger cannot be used.
        PreflightRefused: The store is no SQL database.
        ConfigError: No broker is named.
    """
    adoption = open_adoption(app)
    app.accept_failover()
    if adoption.failover_reason() is None:
        return None
    window = app.sql_side(wanted_for="settling a failover").lost_window
    location = adoption.locate()
    given = app.settings
    dispatched = {e.name for e in given.endpoints if e.mode is EndpointMode.DISPATCH}
    return FailoverRecovery(
        window=window,
        location=location,
        broker=app.broker_facts,
        access=level_access(app.settings, app.ledger, app.broker, purpose="migrator rollback"),
        version=given.broker.delays,
        mode=given.handover.mode,
        cutoff=given.handover.cutoff,
        # a dispatcher sends the rows of its endpoints itself
        endpoints=[each for each in app.store.endpoints() if each.name not in dispatched],
        lanes=_lanes(app, location),
        timeouts_queues=_timeouts_queues(app),
        leases=app.leases,
        lease_duration=given.handover.lease,
        clock=app.clock,
        ledger_id=app.ledger_id,
        fault=app.fault,
    )


def open_resolver(app: App, *, is_store_lost: bool) -> Resolver:
    """Return what records an operator's decisions about unresolved batches."""
    return Resolver(
        queries=app.queries,
        batches=app.batches,
        unresolved=UnresolvedBatches(app.engine, app.tables),
        runs=app.runs,
        documents=app.document_side,
        store_kind=str(app.settings.store.kind),
        is_store_lost=is_store_lost,
    )


def _contents(app: App) -> MovedContents:
    verifications = app.side.verifications
    incomplete, gaps = verifications.gaps((), at_most=1)
    first_incomplete = gaps[0].batch if gaps else None
    if app.settings.store.kind.has_own_ledger:  # a document store stays where it is
        return MovedContents(incomplete_batches=incomplete, first_incomplete=first_incomplete)
    in_both, first = verifications.in_both_places((), at_most=1)
    balances = verifications.balances()
    return MovedContents(
        incomplete_batches=incomplete,
        first_incomplete=first_incomplete,
        missing_tables=[(each.source, each.endpoint) for each in balances if each.in_store is None],
        in_both_places=in_both,
        first_in_both=first[0].timeout_id if first else None,
    )


def _lanes(app: App, location: LedgerLocation) -> Sequence[Lane]:
    """Return the lanes that a process may own: the ledger's, and those of the settings."""
    return sorted({*location.lanes, *map(Lane, range(app.settings.handover.lanes))})


def _timeouts_queues(app: App) -> Sequence[str]:
    return [timeouts_queue(QueueName(each.queue)) for each in satellites(app.settings, ())]
