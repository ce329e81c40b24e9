"""Assembling dispatchers: one per endpoint whose stored or new timeouts we send ourselves."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from migrator.app.app import App
from migrator.config.work import EndpointMode, NearDue
from migrator.dispatcher.due import Poller
from migrator.dispatcher.failures import Recoverability
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.dispatcher.link import RabbitRoutes
from migrator.dispatcher.loop import DispatcherPlan
from migrator.dispatcher.receive import DelayedMessageHandler, Forwarding, Storing
from migrator.ledger.held_destinations import HeldDestinations, SqlHeldDestinations
from migrator.ledger.states import Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName, RunId
from migrator.rabbitmq.names import retry_queue
from migrator.stores.sql.intake import SqlIntake

_CONSUMING: Final = frozenset({EndpointMode.DISPATCH, EndpointMode.FORWARD})
_MOVING: Final = frozenset({EndpointMode.MIGRATE, EndpointMode.FORWARD})


class DispatcherWiring:
    """Makes dispatchers of what *app* has."""

    def __init__(self, app: App) -> None:
        """Assemble from what *app* has."""
        self._app = app

    def moved(self, endpoints: Sequence[StoreEndpoint]) -> Sequence[StoreEndpoint]:
        """Return those of *endpoints* whose stored rows go into the native delays."""
        return [e for e in endpoints if self._app.settings.endpoint(e.name).mode in _MOVING]

    def plans(self, endpoints: Sequence[StoreEndpoint]) -> Sequence[DispatcherPlan]:
        """Return what is to be dispatched for *endpoints*, one plan each, where anything is.

        An endpoint that is no longer dispatched may have rows that a kill left in flight.
        """
        near_due = self._app.settings.handover.near_due is NearDue.DISPATCH
        open_batches = self._app.books.open_batches()
        left_open = {each.source for each in open_batches if each.mode is Mode.DISPATCH}
        found = []
        for each in endpoints:
            wanted = near_due or self._app.settings.endpoint(each.name).mode in _CONSUMING
            if wanted or each.source in left_open:
                found.append(self._plan(each, finishes_only=not wanted))
        return found

    def _plan(self, endpoint: StoreEndpoint, *, finishes_only: bool) -> DispatcherPlan:
        given = self._app.settings
        own = given.endpoint(endpoint.name)
        queue = QueueName(own.input_queue)
        consumed = timeouts_queue(queue) if own.mode in _CONSUMING else None
        delays_s = [int(delay.total_seconds()) for delay in given.dispatch.retry_delays]
        machine = socket.gethostname()
        return DispatcherPlan(
            endpoint=endpoint,
            timeouts_queue=consumed,
            control_queue=dispatcher_queue(queue) if consumed else None,
            recoverability=Recoverability(
                retry_queues=[retry_queue(consumed, each) for each in delays_s] if consumed else (),
                error_queue=own.error_queue or given.dispatch.error_queue,
                endpoint=str(endpoint.name),
                machine=machine,
                host_id=uuid.uuid5(uuid.NAMESPACE_DNS, machine).hex,
            ),
            retry_delays_s=delays_s,
            prefetch=given.dispatch.prefetch,
            version=self._app.settings.broker.delays,
            limits=self._app.window_limits,
            finishes_only=finishes_only,
        )

    @cached_property
    def _routes(self) -> RabbitRoutes:
        app = self._app
        find = app.management.bindings_from if app.management else None
        topology = app.settings.broker.topology
        return RabbitRoutes(app.connection, topology=topology, find_bindings=find)

    def poller(self, endpoint: StoreEndpoint, run: RunId) -> Poller:
        """Return what claims and settles stored rows of *endpoint* in *run*."""
        app, given = self._app, self._app.settings.dispatch
        return Poller(
            endpoint=endpoint,
            run=run,
            claims=app.sql_side(wanted_for="dispatching").claims,
            batches=app.batches,
            dispatched=DispatchedBatches(app.engine, app.tables),
            held=HeldDestinations(SqlHeldDestinations(app.engine, app.tables), endpoint),
            routes=self._routes,
            clock=app.clock,
            every=given.poll_interval,
            look_ahead=given.look_ahead,
            max_rows=given.batch_size,
            max_bytes=app.settings.handover.batch_bytes,
            remember=given.remember,
            conversion=app.rules_of(endpoint.name),
            fault=app.fault,
            read_due_times=app.read_due_times,
        )

    def handler(self, plan: DispatcherPlan) -> DelayedMessageHandler | None:
        """Return what stores or forwards what comes in; None: nothing is consumed."""
        app, endpoint = self._app, plan.endpoint
        if plan.timeouts_queue is None:
            return None
        store = app.sql_side(wanted_for="taking timeouts in").store
        intake = SqlIntake(app.engine, app.tables, store.legacy_table)
        rules = app.rules_of(endpoint.name)
        if app.settings.endpoint(endpoint.name).mode is EndpointMode.FORWARD:
            return Forwarding(
                intake=intake,
                endpoint=endpoint,
                destinations=app.destinations,
                clock=app.clock,
                rules=rules,
                fault=app.fault,
            )
        return Storing(
            intake=intake,
            endpoint=endpoint,
            routes=self._routes,
            clock=app.clock,
            rules=rules,
            fault=app.fault,
        )
