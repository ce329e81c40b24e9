"""An endpoint whose timeouts are gone, as facts; each test changes what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from migrator.decommission.rules import BrokerSnapshot, Target
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.headers import CONFIRMATION_ID
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity, QueueState, exchange_entity, queue_entity

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


def queue(name: str, **counts: Any) -> QueueState:
    """Return a queue; empty, and known to be, unless *counts* say else."""
    return QueueState(name=name, kind="classic", **counts)


def broker(*more: Binding, **changes: Any) -> BrokerSnapshot:
    """Return a conventional endpoint's satellites, empty, a retry queue, and ours of a lane."""
    look = BrokerSnapshot(
        satellites=[queue(TIMEOUTS), queue(DISPATCHER)],
        satellite_exchanges=[TIMEOUTS, DISPATCHER],
        retries=[queue(RETRY)],
        lanes=[queue(STAGING), queue(RECEIPTS)],
        lane_exchanges=[STAGING],
        shared=[ENTRY, ROUTER],
        bindings=[*SATELLITE_BINDINGS, *OWN_BINDINGS, *more],
    )
    return replace(look, **changes)


def names(entities: Sequence[Entity]) -> list[str]:
    """Return what entities are called, with their kind's first letter."""
    return [f"{entity.kind[0]}:{entity.name}" for entity in entities]
