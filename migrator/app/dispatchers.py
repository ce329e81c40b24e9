"""What dispatchers are made of."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from migrator.app.handover import HandOverParts
from migrator.app.servers import Servers
from migrator.app.values import limits_of
from migrator.config.work import EndpointMode, NearDue, OnCritical
from migrator.dispatcher.due import Poller
from migrator.dispatcher.failures import Recoverability
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.dispatcher.link import RabbitRoutes
from migrator.dispatcher.loop import Dispatcher, DispatcherPlan
from migrator.dispatcher.receive import DelayedMessageHandler, Forwarding, Storing
from migrator.handover.sources import FailingSources
from migrator.ledger.held_destinations import HeldDestinations
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName, RunId
from migrator.rabbitmq.names import retry_queue
from migrator.service.dispatchers import DispatcherThread
from migrator.service.worker import WorkerContext, one_by_one
from migrator.stores.due_times import DueTimeReader
from migrator.stores.sql.intake import SqlIntake
from migrator.web.metrics import Instruments


def new_dispatchers(
    servers: Servers,
    parts: HandOverParts,
    due_times: DueTimeReader,
    runs: Sequence[tuple[StoreEndpoint, RunId]],
    context: WorkerContext,
    *,
    ends: ExitStack,
    instruments: Instruments,
    failing: FailingSources,
) -> Iterator[DispatcherThread]:
    """Yield a thread for each endpoint whose stored or new timeouts we send ourselves.

    An endpoint that is no longer dispatched may have rows that a kill left in flight; what was
    parked by the other kind of work is taken over. *ends* ends the threads that a dispatcher works
    with; *instruments* count what is sent; *failing* knows which endpoints a check refuses.
    """
    given, ledger, broker = servers.settings, servers.ledger, servers.broker
    routes = RabbitRoutes(
        broker.connection,
        topology=given.broker.topology,
        find_bindings=broker.find_bindings,
    )
    open_batches = ledger.queries.open_batches()
    left_open = {each.source for each in open_batches if each.mode is Mode.DISPATCH}
    for endpoint, run in runs:
        is_consumed = given.endpoint(endpoint.name).mode is not EndpointMode.MIGRATE
        is_wanted = is_consumed or given.handover.near_due is NearDue.DISPATCH
        if not is_wanted:
            parts.parking.take_over([endpoint.source], given.handover.mode)
        elif given.endpoint(endpoint.name).mode is EndpointMode.DISPATCH:
            parts.parking.take_over([endpoint.source], Mode.DISPATCH)
        if not is_wanted and endpoint.source not in left_open:
            continue
        name, mode = str(endpoint.name), str(Mode.DISPATCH)
        dispatcher = Dispatcher(
            plan=_plan(servers, endpoint, is_consumed=is_consumed, finishes_only=not is_wanted),
            poller=_poller(servers, parts, endpoint, run, routes, due_times),
            handler=_handler(servers, parts, endpoint, routes) if is_consumed else None,
            connection=broker.connection,
            clock=ledger.clock,
            fault=servers.fault,
            storing=one_by_one(ends, "storing"),
            claiming=one_by_one(ends, "dispatching"),
            sent=partial(instruments.sent, name),
            completed=partial(instruments.batch_settled, name, mode),
        )
        yield DispatcherThread(
            dispatcher,
            context,
            failing=failing,
            critical_s=given.dispatch.critical_after.total_seconds(),
            exits=given.dispatch.on_critical is OnCritical.EXIT,
        )


def _plan(
    servers: Servers, endpoint: StoreEndpoint, *, is_consumed: bool, finishes_only: bool
) -> DispatcherPlan:
    given, own = servers.settings.dispatch, servers.settings.endpoint(endpoint.name)
    queue = QueueName(own.input_queue)
    consumed = timeouts_queue(queue) if is_consumed else None
    delays_s = [int(delay.total_seconds()) for delay in given.retry_delays]
    machine = socket.gethostname()
    return DispatcherPlan(
        endpoint=endpoint,
        timeouts_queue=consumed,
        control_queue=dispatcher_queue(queue) if consumed else None,
        recoverability=Recoverability(
            retry_queues=[retry_queue(consumed, each) for each in delays_s] if consumed else (),
            error_queue=own.error_queue or given.error_queue,
            endpoint=str(endpoint.name),
            machine=machine,
            host_id=uuid.uuid5(uuid.NAMESPACE_DNS, machine).hex,
        ),
        retry_delays_s=delays_s,
        prefetch=given.prefetch,
        version=servers.broker.version,
        limits=servers.broker.window,
        finishes_only=finishes_only,
    )


def _poller(
    servers: Servers,
    parts: HandOverParts,
    endpoint: StoreEndpoint,
    run: RunId,
    routes: RabbitRoutes,
    due_times: DueTimeReader,
) -> Poller:
    """Return what claims and settles stored rows of *endpoint* in *run*."""
    given, ledger = servers.settings.dispatch, servers.ledger
    return Poller(
        endpoint=endpoint,
        run=run,
        claims=servers.sql_backend(wanted_for="dispatching").claims,
        batches=ledger.batches,
        dispatched=DispatchedBatches(ledger.engine, ledger.tables),
        held=HeldDestinations(
            parts.held_destinations,
            parts.parking,
            endpoint,
            is_dispatched=True,
            fault=servers.fault,
        ),
        routes=routes,
        clock=ledger.clock,
        interval=given.poll_interval,
        look_ahead=given.look_ahead,
        max_rows=given.batch_size,
        max_bytes=servers.settings.handover.batch_bytes,
        remember=given.remember,
        conversion=limits_of(servers.settings, endpoint.name),
        fault=servers.fault,
        due_times=due_times,
    )


def _handler(
    servers: Servers, parts: HandOverParts, endpoint: StoreEndpoint, routes: RabbitRoutes
) -> DelayedMessageHandler:
    """Return what stores or forwards what comes in."""
    store = servers.sql_backend(wanted_for="storing timeouts").store
    intake = SqlIntake(servers.ledger.engine, servers.ledger.tables, store.legacy_table)
    rules = limits_of(servers.settings, endpoint.name)
    if servers.settings.endpoint(endpoint.name).mode is EndpointMode.FORWARD:
        return Forwarding(
            intake=intake,
            endpoint=endpoint,
            destinations=parts.destinations,
            clock=servers.ledger.clock,
            rules=rules,
            fault=servers.fault,
        )
    return Storing(
        intake=intake,
        endpoint=endpoint,
        routes=routes,
        clock=servers.ledger.clock,
        rules=rules,
        fault=servers.fault,
    )
