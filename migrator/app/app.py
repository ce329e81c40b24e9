"""The parts that a verb may need, together; a verb with a module of its own here does without."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from migrator.app import values
from migrator.app.ledger import Ledger

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from migrator.app.broker import Broker
    from migrator.app.handover import HandOverParts
    from migrator.app.stores import SqlBackend, StoreBackend
    from migrator.config import Settings
    from migrator.delays.broker import BrokerFacts
    from migrator.delays.destinations import Destinations
    from migrator.ledger.batches import SqlBatches, SqlRuns
    from migrator.ledger.clock import DatabaseClock
    from migrator.ledger.held_destinations import SqlHeldDestinations
    from migrator.ledger.leases import SqlLeases
    from migrator.ledger.parking import SqlParking
    from migrator.ledger.purge import SettledRows
    from migrator.ledger.queries import LedgerQueries, SqlHandOvers
    from migrator.ledger.run_terms import BrokerPlace
    from migrator.ledger.tables import LedgerTables
    from migrator.nservicebus.conversion import BrokerLimits
    from migrator.nservicebus.timeouts import EndpointName
    from migrator.preflight.queries import LedgerFacts
    from migrator.quarantine.rows import SqlQuarantine
    from migrator.rabbitmq.connection import ConnectionSettings
    from migrator.rabbitmq.management import ManagementApi
    from migrator.rabbitmq.publisher import WindowLimits
    from migrator.stores.due_times import DueTimeRules
    from migrator.stores.endpoints import Selection
    from migrator.stores.ports import Claims, Store


class App:
    """Everything assembled, each part made when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.fault = values.fault_point()

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger."""
        return Ledger(self.settings)

    @cached_property
    def broker(self) -> Broker:
        """The broker."""
        from migrator.app.broker import Broker

        return Broker(self.settings)

    @cached_property
    def side(self) -> StoreBackend:
        """All that the kind of legacy store brings."""
        from migrator.app.stores import new_backend

        return new_backend(self.settings, self.ledger, self.fault)

    @cached_property
    def handing_over(self) -> HandOverParts:
        """What hands rows over."""
        from migrator.app.handover import HandOverParts

        return HandOverParts(self.settings, self.ledger, self.broker, self.fault)

    def sql_side(self, *, wanted_for: str) -> SqlBackend:
        """Return the side of a SQL store; raises what ``demand_sql`` does."""
        from migrator.app.stores import demand_sql

        return demand_sql(self.side, self.settings, wanted_for=wanted_for)

    @cached_property
    def quarantine(self) -> SqlQuarantine:
        """Rows kept aside with a reason."""
        from migrator.quarantine.rows import SqlQuarantine

        return SqlQuarantine(self.ledger.engine, self.ledger.tables)

    @cached_property
    def settled_rows(self) -> SettledRows:
        """Rows of which nothing more is to be done."""
        from migrator.ledger.purge import SettledRows

        return SettledRows(self.ledger.engine, self.ledger.tables)

    def rules_of(self, endpoint: EndpointName) -> BrokerLimits:
        """Return what conversion has to know for rows and messages of *endpoint*."""
        return values.limits_of(self.settings, endpoint)

    def close(self) -> None:
        """Close what was opened."""
        for name in ("side", "ledger", "broker"):
            if (opened := self.__dict__.get(name)) is not None:
                opened.close()

    @property
    def selection(self) -> Selection:
        return values.selection(self.settings)

    @property
    def due_times(self) -> DueTimeRules:
        return values.due_time_rules(self.settings)

    @property
    def engine(self) -> Engine:
        return self.ledger.engine

    @property
    def tables(self) -> LedgerTables:
        return self.ledger.tables

    @property
    def clock(self) -> DatabaseClock:
        return self.ledger.clock

    @property
    def queries(self) -> LedgerQueries:
        return self.ledger.queries

    @property
    def hand_overs(self) -> SqlHandOvers:
        return self.ledger.hand_overs

    @property
    def batches(self) -> SqlBatches:
        return self.ledger.batches

    @property
    def parking(self) -> SqlParking:
        return self.ledger.parking

    @property
    def held_destinations(self) -> SqlHeldDestinations:
        return self.ledger.held_destinations

    @property
    def runs(self) -> SqlRuns:
        return self.ledger.runs

    @property
    def leases(self) -> SqlLeases:
        return self.ledger.leases

    @property
    def ledger_facts(self) -> LedgerFacts:
        return self.ledger.facts

    @property
    def ledger_id(self) -> str:
        return self.ledger.id

    @property
    def ledger_place(self) -> str:
        return self.ledger.place

    @property
    def connection(self) -> ConnectionSettings:
        return self.broker.connection

    @property
    def management(self) -> ManagementApi | None:
        return self.broker.management

    @property
    def named_place(self) -> BrokerPlace:
        return self.broker.named_place

    @property
    def broker_place(self) -> BrokerPlace:
        return self.broker.place

    @property
    def broker_facts(self) -> BrokerFacts:
        return self.broker.facts

    @property
    def window_limits(self) -> WindowLimits:
        return self.broker.window

    @property
    def store(self) -> Store:
        return self.side.store

    @property
    def claims(self) -> Claims:
        return self.side.claims

    @property
    def destinations(self) -> Destinations:
        return self.handing_over.destinations
