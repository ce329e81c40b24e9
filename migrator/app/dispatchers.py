"""Assembling dispatchers: one per endpoint whose stored or new timeouts we send ourselves."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from migrator.app.app import App
from migrator.config.work import EndpointMode, NearDue
from migrator.dispatcher.forward import Forwarding
from migrator.dispatcher.intake import Changes, Storing, TakeIn
from migrator.dispatcher.ledger import SqlDispatching
from migrator.dispatcher.link import open_satellite_link
from migrator.dispatcher.parts import DispatcherParts
from migrator.dispatcher.polling import Poller, PollRules
from migrator.dispatcher.ports import SatelliteLink
from migrator.dispatcher.retries import declare_retry_queues
from migrator.dispatcher.routes import RabbitRoutes
from migrator.dispatcher.sparingly import Sparingly
from migrator.dispatcher.trouble import Recoverability
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.ledger.states import Mode
from migrator.ledger.work import Background, Lease, StoreEndpoint
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName, RunId
from migrator.rabbitmq.admin import admin_session
from migrator.rabbitmq.names import retry_queue
from migrator.rabbitmq.publisher import WindowLimits
from migrator.stores.sql.intake import SqlIntake
from migrator.telemetry.ports import Tracer

_CONSUMING: Final = frozenset({EndpointMode.DISPATCH, EndpointMode.FORWARD})
_MOVING: Final = frozenset({EndpointMode.MIGRATE, EndpointMode.FORWARD})


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherPlan:
    """What one endpoint's dispatcher does, as plain values."""

    endpoint: StoreEndpoint
    mode: EndpointMode
    queue: QueueName
    """The endpoint's input queue."""
    error_queue: str
    finishes_only: bool
    """Nothing is to be dispatched any more; what an earlier process left open is finished."""

    @property
    def timeouts_queue(self) -> QueueName | None:
        """The queue whose messages are stored or forwarded; None: rows are sent, that is all."""
        return timeouts_queue(self.queue) if self.mode in _CONSUMING else None

    @property
    def control_queue(self) -> QueueName | None:
        """The queue of control messages, should it exist."""
        return dispatcher_queue(self.queue) if self.mode in _CONSUMING else None


class DispatcherWiring:
    """Makes the parts of dispatchers; each part is made when it is first asked for."""

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
        given = self._app.settings.endpoint(endpoint.name)
        return DispatcherPlan(
            endpoint=endpoint,
            mode=given.mode,
            queue=QueueName(given.input_queue),
            error_queue=given.error_queue or self._app.settings.dispatch.error_queue,
            finishes_only=finishes_only,
        )

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    @cached_property
    def dispatching(self) -> SqlDispatching:
        """What the ledger keeps for dispatchers."""
        return SqlDispatching(self._app.engine, self._app.tables)

    @cached_property
    def routes(self) -> RabbitRoutes:
        """How destinations are reached without a delay."""
        app = self._app
        find = app.management.bindings_from if app.management else None
        topology = app.settings.broker.topology
        return RabbitRoutes(app.connection, topology=topology, find_bindings=find)

    def parts(
        self,
        plan: DispatcherPlan,
        run: RunId,
        *,
        storing: Background,
        claiming: Background,
        sent: Callable[[float], None],
        settled: Callable[[int, float], None],
        tracer: Tracer,
    ) -> DispatcherParts:
        """Return what outlives the links of one dispatcher."""
        app, given = self._app, self._app.settings.dispatch
        poller = Poller(
            endpoint=plan.endpoint,
            run=run,
            claims=app.sql_side(wanted_for="dispatching").claims,
            batches=app.batches,
            dispatching=self.dispatching,
            held=SqlHeldDestinations(app.engine, app.tables),
            routes=self.routes,
            clock=app.clock,
            rules=PollRules(
                look_ahead=given.look_ahead,
                max_rows=given.batch_size,
                max_bytes=app.settings.handover.batch_bytes,
                remember=given.remember,
            ),
            conversion=app.rules_of(plan.endpoint.name),
            fault=app.fault,
            read_due_times=app.read_due_times,
        )
        return DispatcherParts(
            poller=poller,
            take_in=self._take_in(plan),
            timeouts_queue=plan.timeouts_queue,
            recoverability=Recoverability(
                retry_queues=self._retry_queues(plan),
                error_queue=plan.error_queue,
                endpoint=str(plan.endpoint.name),
                machine=socket.gethostname(),
                host_id=uuid.uuid5(uuid.NAMESPACE_DNS, socket.gethostname()).hex,
            ),
            version=app.plan.delays,
            clock=app.clock,
            storing=storing,
            claiming=claiming,
            prefetch=given.prefetch,
            poll_every=given.poll_interval,
            fault=app.fault,
            sparingly=Sparingly(app.clock.monotonic_s),
            sent=sent,
            settled=settled,
            tracer=tracer,
        )

    def _take_in(self, plan: DispatcherPlan) -> TakeIn | None:
        app = self._app
        if plan.timeouts_queue is None:
            return None
        store = app.sql_side(wanted_for="taking timeouts in").store
        intake = SqlIntake(app.engine, app.tables, store)
        changes = Changes(intake, plan.endpoint, app.fault)
        rules = app.rules_of(plan.endpoint.name)
        if plan.mode is EndpointMode.FORWARD:
            return Forwarding(
                changes=changes, destinations=app.destinations, clock=app.clock, rules=rules
            )
        return Storing(changes=changes, routes=self.routes, clock=app.clock, rules=rules)

    # ── the broker ──────────────────────────────────────────────────────────────────────────

    def open_link(
        self, plan: DispatcherPlan, lease: Lease, guard: Callable[[], None]
    ) -> SatelliteLink:
        """Declare the retry queues and connect; *guard* raises when publishing must end.

        Raises:
            AccessRefused, EntityMismatch: A retry queue may not be declared, or differs.
            TargetUnavailable: Nobody answers.
        """
        app, given = self._app, self._app.settings
        if plan.timeouts_queue is not None:
            with admin_session(app.connection, purpose="declare retry queues") as admin:
                declare_retry_queues(admin, plan.timeouts_queue, self._retry_delays_s)
        return open_satellite_link(
            app.connection,
            endpoint=str(plan.endpoint.name),
            owner=lease.owner.split("/")[0],
            limits=WindowLimits(
                messages=given.handover.window,
                body_bytes=given.handover.window_bytes,
                confirm_deadline_s=given.broker.confirm_deadline.total_seconds(),
            ),
            guard=guard,
        )

    def existing_queues(self, plan: DispatcherPlan) -> frozenset[QueueName]:
        """Return which of the satellites' queues exist now."""
        wanted = [queue for queue in (plan.timeouts_queue, plan.control_queue) if queue is not None]
        if not wanted:
            return frozenset()
        with admin_session(self._app.connection, purpose="look for satellites") as admin:
            return frozenset(queue for queue in wanted if admin.queue(queue) is not None)

    @property
    def _retry_delays_s(self) -> Sequence[int]:
        return [int(delay.total_seconds()) for delay in self._app.settings.dispatch.retry_delays]

    def _retry_queues(self, plan: DispatcherPlan) -> Sequence[str]:
        if plan.timeouts_queue is None:
            return ()
        return [retry_queue(plan.timeouts_queue, delay_s) for delay_s in self._retry_delays_s]
