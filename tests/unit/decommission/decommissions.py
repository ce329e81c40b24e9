"""An endpoint whose timeouts are gone, as facts; each test changes what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from migrator.decommission.report import BrokerSnapshot, Facts, OwnEntities, QueueSnapshot, Target
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.headers import CONFIRMATION_ID
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity, exchange_entity, queue_entity

TIMEOUTS, DISPATCHER, RETRY = "Sales.Timeouts", "Sales.TimeoutsDispatcher", "migrator.retry.x.10"
STAGING, RECEIPTS = "migrator.staging.abc.0", "migrator.receipts.abc.0"
ROUTER, ENTRY = "migrator.router.v2", "migrator.entry.v2.03"
DELIVERY = "nsb.v2.delay-delivery"
TARGET = Target(
    endpoint=StoreEndpoint(name=EndpointName("Sales"), source="public.Sales_TimeoutData"),
    queue=QueueName("Sales"),
)


def queue_binding(source: str, queue: str, key: str = "", **arguments: object) -> Binding:
    """Return a binding to a queue."""
    return Binding(source=source, target=queue_entity(queue), key=key, arguments=arguments)


def exchange_binding(source: str, exchange: str, key: str = "") -> Binding:
    """Return a binding to an exchange."""
    return Binding(source=source, target=exchange_entity(exchange), key=key)


SATELLITE_BINDINGS = (
    queue_binding(TIMEOUTS, TIMEOUTS),
    exchange_binding(DELIVERY, TIMEOUTS, f"#.{TIMEOUTS}"),
    queue_binding(DISPATCHER, DISPATCHER),
    exchange_binding(DELIVERY, DISPATCHER, f"#.{DISPATCHER}"),
)
OWN_BINDINGS = (
    queue_binding(STAGING, STAGING),
    queue_binding(ROUTER, RECEIPTS, **{"x-match": "all", CONFIRMATION_ID: "receipt.abc.0"}),
    queue_binding(ROUTER, "nsb.v2.delay-level-03", **{CONFIRMATION_ID: "3"}),
    queue_binding(ENTRY, "nsb.v2.delay-level-03"),
)


def own(**changes: Any) -> OwnEntities:
    """Return migrator's own entities after a staged hand-over."""
    look = OwnEntities(
        queues=[QueueSnapshot(name=STAGING), QueueSnapshot(name=RECEIPTS)],
        exchanges=[STAGING],
        shared=[ENTRY, ROUTER],
    )
    return replace(look, **changes)


def broker(*more: Binding, **changes: Any) -> BrokerSnapshot:
    """Return a conventional endpoint's satellites, empty, with a retry queue."""
    look = BrokerSnapshot(
        satellites=[QueueSnapshot(name=TIMEOUTS), QueueSnapshot(name=DISPATCHER)],
        satellite_exchanges=[TIMEOUTS, DISPATCHER],
        retries=[QueueSnapshot(name=RETRY)],
        own=own(),
        bindings=[*SATELLITE_BINDINGS, *OWN_BINDINGS, *more],
    )
    return replace(look, **changes)


def facts(**changes: Any) -> Facts:
    """Return facts that nothing prevents."""
    usual = Facts(target=TARGET, rows=0, broker=broker())
    return replace(usual, **changes)


def names(entities: Sequence[Entity]) -> list[str]:
    """Return what entities are called, with their kind's first letter."""
    return [f"{entity.kind[0]}:{entity.name}" for entity in entities]
