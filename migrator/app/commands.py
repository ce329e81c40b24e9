"""What commands need and a daemon does not: recall, rollback, failover, verify, decommission."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from migrator.app.app import App
from migrator.config import EndpointMode
from migrator.decommission.broker import DecommissionBroker
from migrator.decommission.queries import DecommissionDatabase
from migrator.decommission.remove import Decommission
from migrator.decommission.rules import Options, Target
from migrator.delays.scan import utc_now
from migrator.delays.walk import LevelAccess
from migrator.errors import UnknownEndpoint
from migrator.ledger.lease_keeper import current_owner
from migrator.ledger.run_terms import RunTerms
from migrator.ledger.states import BatchState
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, Lane, QueueName
from migrator.rabbitmq.names import staging_name
from migrator.rabbitmq.server import find_queues
from migrator.recall.recall import Recall
from migrator.recall.rollback import Rollback
from migrator.recovery.adoption import SqlAdoption
from migrator.recovery.failover import FailoverSettlement
from migrator.verify.verify import Verify

if TYPE_CHECKING:  # only a rollback of what a kill cut off needs it
    from migrator.handover.runs import HandOver
    from migrator.handover.settle import Settlement
    from migrator.ledger.work import Batch


def level_access(app: App, *, purpose: str, now: Callable[[], datetime] = utc_now) -> LevelAccess:
    """Return how the levels are reached; *purpose* is what the broker calls the connections.

    Raises:
        ConfigError: No broker is named.
    """

    def staging_queues() -> Sequence[str]:
        version = app.settings.broker.delays
        return [staging_name(version, app.ledger_id, lane) for lane in _lanes(app)]

    return LevelAccess(
        connection=app.connection,
        management=app.management,
        purpose=purpose,
        staging_queues=staging_queues,
        now=now,
    )


def _lanes(app: App) -> Sequence[Lane]:
    """Return the lanes that may have a staging queue, ascending."""
    lanes = {status.lane for status in app.queries.progress().lanes}
    return sorted(lanes | {Lane(number) for number in range(app.settings.handover.lanes)})


def new_recall(app: App) -> Recall:
    """Return what brings handed-over timeouts back; raises what ``level_access`` does."""
    return Recall(
        recalls=app.side.recalls,
        access=level_access(app, purpose="migrator rollback"),
        version=app.settings.broker.delays,
        leases=app.leases,
        lease_duration=app.settings.handover.lease,
        queries=app.queries,
        runs=app.runs,
        clock=app.clock,
        ledger_id=app.ledger_id,
        fault=app.fault,
    )


def _new_settlement(app: App) -> Settlement:
    """Return what settles the lanes that nobody works on; raises what ``App.connection`` does."""
    from migrator.handover.settle import Settlement

    version = app.settings.broker.delays

    def left_in() -> Mapping[Lane, int]:
        lanes = {staging_name(version, app.ledger_id, lane): lane for lane in _lanes(app)}
        found = find_queues(app.connection, lanes)
        return {lanes[name]: facts.ready for name, facts in found.items() if facts is not None}

    def publishing(batch: Batch) -> HandOver:
        terms = RunTerms.read(app.runs.options_of(batch.run), app.terms_of(batch.endpoint))
        return app.new_hand_over(terms)

    return Settlement(
        batches=app.batches,
        leases=app.leases,
        lease_duration=app.settings.handover.lease,
        clock=app.clock,
        receipt_deadline_s=app.settings.handover.receipt_deadline.total_seconds(),
        open_link=app.open_lane,
        left_in=left_in,
        staged_for_others=lambda: {
            each.batch
            for each in app.queries.batches_of_others(app.broker_place, BatchState.COMMITTING)
        },
        publishing=publishing,
        fault=app.fault,
    )


def new_rollback(app: App) -> Rollback:
    """Return what undoes a migration."""
    has_broker = app.settings.broker.url is not None
    return Rollback(
        settle=(lambda *given: _new_settlement(app).settle(*given)) if has_broker else None,
        place=app.named_place,
        claims=app.claims,
        leases=app.leases,
        batches=app.batches,
        lease_duration=app.settings.handover.lease,
        queries=app.queries,
        runs=app.runs,
        recalls=app.side.recalls,
        clock=app.clock,
        new_recall=lambda: new_recall(app),
        held=app.held_destinations,
        parking=app.parking,
    )


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
        access=level_access(app, purpose="migrator rollback"),
        version=app.settings.broker.delays,
        mode=app.settings.handover.mode,
        cutoff=app.settings.handover.cutoff,
        leases=app.leases,
        lease_duration=app.settings.handover.lease,
        clock=app.clock,
        ledger_id=app.ledger_id,
        fault=app.fault,
    )


def new_verify(app: App, progress: Callable[[str, int], None]) -> Verify:
    """Return what compares store, ledger and broker; *progress* is told how far it is."""
    return Verify(
        queries=app.side.verifications,
        ledger=app.queries,
        ledger_id=app.ledger_id,
        access=level_access(app, purpose="migrator verify", now=app.clock.now),
        clock=app.clock,
        wait=time.sleep,
        fault=app.fault,
        progress=progress,
        store=app.store,
        leases=app.leases,
        lease_duration=app.settings.handover.lease,
        runs=app.runs,
    )


def new_decommission(app: App, name: str, options: Options) -> Decommission:
    """Return what removes the things of the endpoint called *name*.

    Raises:
        UnknownEndpoint: It has no table, and never had one that was dropped here.
        PreflightRefused: The store is no SQL database.
    """
    tables = app.sql_side(wanted_for="decommissioning").store
    database = DecommissionDatabase(app.engine, app.tables, tables)
    try:
        endpoint = tables.find(name)
    except UnknownEndpoint:
        endpoint = StoreEndpoint(name=EndpointName(name), source=tables.source_of(name))
        if not database.was_begun(endpoint.source):
            raise
    own = app.settings.endpoint(name)
    others = {EndpointName(e.name): e for e in app.settings.endpoints if e.name != name}
    target = Target(
        endpoint=endpoint,
        queue=QueueName(own.input_queue),
        is_dispatched=own.mode is not EndpointMode.MIGRATE,
        forwarding=[n for n, each in others.items() if each.mode is EndpointMode.FORWARD],
        sharing=[
            n
            for n, each in others.items()
            if each.input_queue == own.input_queue or tables.source_of(n) == endpoint.source
        ],
    )
    return Decommission(
        target=target,
        options=options,
        broker=DecommissionBroker(app.connection, app.management, ledger_id=app.ledger_id),
        database=database,
        runs=app.runs,
        leases=app.leases,
        lease=app.settings.handover.lease,
        owner=current_owner(),
        fault=app.fault,
    )
