"""What may be removed once an endpoint's timeouts are gone, and what speaks against it.

Everything here is a value or a rule over values: facts go in, a plan comes out. A count that
nobody can tell is never taken for zero, and a binding nobody expected is never cut.
Source: reference ``timeout-manager.md`` sections 2, 3, 14 and 15; docs/decommission.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from migrator.delays.routing import (
    DelaysVersion,
    delivery_binding_key,
    delivery_exchange,
    level_name,
)
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import BITS, BatchId, EndpointName, QueueName
from migrator.rabbitmq.entities import Binding, Entity, Kind, exchange_entity, queue_entity

_DELIVERY = frozenset(delivery_exchange(version) for version in DelaysVersion)
LEVEL_QUEUES = frozenset(
    level_name(version, level) for version in DelaysVersion for level in range(BITS)
)
"""Of both generations, whether they are there or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """What is in a queue, and who takes it out."""

    name: str
    is_told: bool = True
    """False: nobody tells what is unacknowledged or held back."""
    ready: int = 0
    unacked: int = 0
    held_back: int = 0
    consumers: int = 0

    @property
    def is_calm(self) -> bool:
        """Whether it is surely empty, and nobody consumes it."""
        return self.is_told and not self.messages and not self.consumers

    @property
    def messages(self) -> int:
        """All messages, whatever is done with them."""
        return self.ready + self.unacked + self.held_back


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLook:
    """Entities of migrator itself."""

    queues: Sequence[QueueLook] = ()
    """Staging and receipts queues of this ledger."""
    exchanges: Sequence[str] = ()
    """Staging exchanges of this ledger."""
    shared: Sequence[str] = ()
    """Entry and router exchanges, which all ledgers of a virtual host share."""
    others: Sequence[str] = ()
    """Staging and receipts queues of other ledgers."""
    clients: Sequence[str] = ()
    """Connections of other migrators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLook:
    """What the broker has of an endpoint's timeout manager, and of migrator."""

    satellites: Sequence[QueueLook] = ()
    satellite_exchanges: Sequence[str] = ()
    retries: Sequence[QueueLook] = ()
    """Retry queues that lead back to a satellite."""
    own: OwnLook = field(default_factory=OwnLook)
    bindings: Sequence[Binding] = ()
    """All that have one of these at either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLook:
    """What the ledger knows of the endpoint, and of whoever else works."""

    open_rows: int = 0
    """In batches that are claimed and not settled."""
    doubtful: Sequence[BatchId] = ()
    quarantined: int = 0
    is_running: bool = False
    """The endpoint's last run has not ended, as far as the ledger knows."""
    dispatcher: str | None = None
    """Owner of the lease of the endpoint's dispatcher, while it runs."""
    lanes: Sequence[str] = ()
    """Every running lease, each as lane and owner."""
    open_elsewhere: int = 0
    """Batches of other endpoints that are open or doubtful."""
    recallable: int = 0
    """Handed-over timeouts that are not due yet."""
    last_due: datetime | None = None
    """When the last of them is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Other endpoints, as far as they need what might be removed."""

    with_rows: Sequence[EndpointName] = ()
    forwarding: Sequence[EndpointName] = ()
    """In mode forward by the settings."""
    sharing: Sequence[EndpointName] = ()
    """Of the same input queue or table by the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a plan is made from."""

    queue: QueueName
    """The endpoint's input queue."""
    source: str
    rows: int | None
    """The endpoint's, in the legacy table; None: there is no such table any more."""
    is_table_shared: bool = False
    """Endpoints share one table, which stays."""
    vendor_runs: Sequence[str] = ()
    is_dispatched: bool = False
    """By the settings, migrator is its timeout manager."""
    ledger: LedgerLook = field(default_factory=LedgerLook)
    neighbours: Neighbours = field(default_factory=Neighbours)
    broker: BrokerLook | None = None
    """None: there is no management API, so nobody can tell."""
    unfinished: Sequence[Binding] = ()
    """What an earlier decommission that did not end may have unbound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an operator asks for beyond the broker's side."""

    drops_table: bool = False
    gives_up_recall: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing is removed, and what to do."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An entity that stays, and why."""

    entity: Entity
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done, in this order; with a refusal nothing of it is."""

    refusals: Sequence[Refusal] = ()
    unbind: Sequence[Binding] = ()
    """Bindings that go, whether cut singly or with their entity."""
    delete: Sequence[Entity] = ()
    keep: Sequence[Kept] = ()
    bind_again: Sequence[Binding] = ()
    """What an unfinished decommission cut; bound again when this one is refused."""
    drops_table: bool = False
    """Whether there is a table that is to go."""
    notes: Sequence[str] = ()


def satellite_names(queue: QueueName) -> tuple[QueueName, QueueName]:
    """Return the queues of the timeout manager of the endpoint whose input queue is *queue*."""
    return timeouts_queue(queue), dispatcher_queue(queue)


def satellite_entities(queue: QueueName, look: BrokerLook) -> Iterator[Entity]:
    """Yield what goes of the timeout manager, in the order in which it goes.

    A satellite's exchange goes right behind its queue: a sender is told that an exchange is
    absent, but not always that one leads nowhere.
    """
    yield from (queue_entity(each.name) for each in look.retries)
    queues = {each.name for each in look.satellites}
    for name in satellite_names(queue):
        if name in queues:
            yield queue_entity(name)
        if name in look.satellite_exchanges:
            yield exchange_entity(name)


def bindings_of(entities: Collection[Entity], bindings: Iterable[Binding]) -> tuple[Binding, ...]:
    """Return those of *bindings* that go with *entities*; what leads to a satellite comes first.

    So the way in is cut before what is behind it, and made again in the opposite order.
    """
    found = [each for each in bindings if any(each.touches(entity) for entity in entities)]
    return tuple(sorted(found, key=lambda each: each.source not in _DELIVERY))


def unexpected_bindings(queue: QueueName, look: BrokerLook) -> Iterator[Binding]:
    """Yield bindings of satellites and retry queues that no version of NServiceBus makes."""
    names = satellite_names(queue)
    of_satellites = {queue_entity(name) for name in names} | {exchange_entity(n) for n in names}
    retries = {queue_entity(each.name) for each in look.retries}
    for each in look.bindings:
        if any(each.touches(retry) for retry in retries) or (
            any(each.touches(entity) for entity in of_satellites) and not _is_usual(each)
        ):
            yield each


def _is_usual(binding: Binding) -> bool:
    """Return whether an installer makes it: source, key and, for the fanout, the target's kind."""
    name, is_queue = binding.target.name, binding.target.kind is Kind.QUEUE
    if binding.arguments:
        return False
    if binding.source in _DELIVERY:
        return binding.key == delivery_binding_key(QueueName(name))
    return is_queue and binding.source == name and not binding.key


def unfinished_bindings(facts: Facts) -> tuple[Binding, ...]:
    """Return what an earlier decommission cut and whose ends are still there."""
    if facts.broker is None:
        return ()
    look = facts.broker
    exchanges = {*look.satellite_exchanges, *look.own.exchanges, *look.own.shared, *_DELIVERY}
    queues = {each.name for each in (*look.satellites, *look.retries, *look.own.queues)}
    queues |= LEVEL_QUEUES  # entry and router exchanges lead there; binding tells whether one is
    ends = {Kind.QUEUE: queues, Kind.EXCHANGE: exchanges}
    return tuple(
        each
        for each in facts.unfinished
        if each not in look.bindings
        and each.source in exchanges
        and each.target.name in ends[each.target.kind]
    )


def still_whole(bindings: Iterable[Binding], gone: Collection[Entity]) -> tuple[Binding, ...]:
    """Return those of *bindings* neither end of which is *gone*."""
    return tuple(b for b in bindings if not any(b.touches(entity) for entity in gone))
