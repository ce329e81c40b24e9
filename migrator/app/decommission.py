"""Assembling a decommission: broker, store and ledger, and whose things are to go."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

from migrator.app.app import App
from migrator.config.work import Endpoint, EndpointMode
from migrator.decommission.broker import RabbitDecommission
from migrator.decommission.plan import make_plan
from migrator.decommission.queries import SqlDecommissionLedger
from migrator.decommission.rules import Plan, Wishes
from migrator.decommission.store import SqlDecommissionStore
from migrator.decommission.work import Decommission, Subject, Surveyor
from migrator.errors import UnknownEndpoint
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.stores.sql.tables import TableStore


class DecommissionWiring:
    """Makes the parts of a decommission."""

    def __init__(self, app: App, wishes: Wishes, *, ignoring: Callable[[str], bool]) -> None:
        """Assemble from what *app* has; leases of owners that *ignoring* means do not count."""
        self._app = app
        self._wishes = wishes
        self._ignoring = ignoring

    @cached_property
    def store(self) -> SqlDecommissionStore:
        """The legacy tables."""
        return SqlDecommissionStore(self._app.engine, self._tables)

    def subject(self, name: str) -> Subject:
        """Return what settings, store and ledger know of the endpoint called *name*.

        Raises:
            UnknownEndpoint: It has no table, and never had one that was dropped here.
        """
        app = self._app
        given = app.settings.endpoints
        own = app.settings.endpoint(name)
        others = [each for each in given if each.name != name]
        endpoint = self._endpoint(name)
        return Subject(
            endpoint=endpoint,
            queue=QueueName(own.input_queue),
            is_dispatched=own.mode is not EndpointMode.MIGRATE,
            forwarding=[_name(each) for each in others if each.mode is EndpointMode.FORWARD],
            sharing=[
                _name(each)
                for each in others
                if each.input_queue == own.input_queue
                or self._tables.source_of(each.name) == endpoint.source
            ],
        )

    def plan(self, subject: Subject) -> Plan:
        """Return what would be done now; changes nothing."""
        return make_plan(self._surveyor.facts(subject), self._wishes)

    def decommission(self, *, wait_s: float, guard: Callable[[], None]) -> Decommission:
        """Return what carries a plan out; *guard* raises when the leases are lost."""
        return Decommission(
            surveyor=self._surveyor,
            broker=self._broker,
            store=self.store,
            runs=self._app.runs,
            wishes=self._wishes,
            wait_s=wait_s,
            pause=time.sleep,
            fault=self._app.fault,
            guard=guard,
        )

    @cached_property
    def _tables(self) -> TableStore:
        return self._app.sql_side(wanted_for="decommissioning").store

    @cached_property
    def _broker(self) -> RabbitDecommission:
        app = self._app
        return RabbitDecommission(app.connection, app.management, ledger_id=app.ledger_id)

    @cached_property
    def _ledger(self) -> SqlDecommissionLedger:
        return SqlDecommissionLedger(self._app.engine, self._app.tables)

    @cached_property
    def _surveyor(self) -> Surveyor:
        return Surveyor(
            broker=self._broker,
            store=self.store,
            ledger=self._ledger,
            vendor_runs=self._tables.unfinished_vendor_runs,
            ignoring=self._ignoring,
        )

    def _endpoint(self, name: str) -> StoreEndpoint:
        try:
            return self._tables.find(name)
        except UnknownEndpoint:
            source = self._tables.source_of(name)
            if not self._ledger.knows(source):
                raise
            return StoreEndpoint(name=EndpointName(name), source=source)


def _name(endpoint: Endpoint) -> EndpointName:
    return EndpointName(endpoint.name)
