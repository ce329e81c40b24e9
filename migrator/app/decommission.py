"""What ``migrator decommission`` works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from migrator.app.servers import open_servers
from migrator.config.work import EndpointMode
from migrator.decommission.broker import DecommissionBroker
from migrator.decommission.queries import DecommissionDatabase
from migrator.decommission.remove import Decommission
from migrator.decommission.rules import Options, Target
from migrator.errors import UnknownEndpoint
from migrator.ledger.lease_keeper import current_owner
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, QueueName

if TYPE_CHECKING:
    from migrator.config import Settings
    from migrator.stores.sql.store import TableStore


@contextmanager
def open_decommission(settings: Settings, name: str, options: Options) -> Iterator[Decommission]:
    """Open what removes the things of the endpoint called *name*.

    Raises:
        UnknownEndpoint: It has no table, and never had one that was dropped here.
        PreflightRefused: The store is no SQL database, or there is no ledger that can be used.
    """
    with open_servers(settings) as servers:
        ledger, broker = servers.ledger, servers.broker
        tables = servers.sql_backend(wanted_for="decommissioning").store
        database = DecommissionDatabase(ledger.engine, ledger.tables, tables)
        yield Decommission(
            target=_target(settings, tables, _find(tables, database, name)),
            options=options,
            broker=DecommissionBroker(broker.connection, broker.management, ledger_id=ledger.id),
            database=database,
            runs=ledger.runs,
            leases=ledger.leases,
            lease=settings.handover.lease,
            owner=current_owner(),
            fault=servers.fault,
        )


def _find(tables: TableStore, database: DecommissionDatabase, name: str) -> StoreEndpoint:
    try:
        return tables.find(name)
    except UnknownEndpoint:
        endpoint = StoreEndpoint(name=EndpointName(name), source=tables.source_of(name))
        if not database.was_begun(endpoint.source):
            raise
        return endpoint


def _target(settings: Settings, tables: TableStore, endpoint: StoreEndpoint) -> Target:
    """Return what is removed, and what other endpoints of the settings share with it."""
    own = settings.endpoint(endpoint.name)
    others = {EndpointName(e.name): e for e in settings.endpoints if e.name != endpoint.name}
    return Target(
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
