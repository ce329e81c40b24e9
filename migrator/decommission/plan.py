"""Making the plan: what goes, what stays and why, and what to know beforehand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from migrator.decommission.refusals import refusals
from migrator.decommission.rules import (
    LEVEL_QUEUES,
    BrokerLook,
    Facts,
    Kept,
    Plan,
    QueueLook,
    Wishes,
    bindings_of,
    satellite_entities,
    satellite_names,
    unfinished_bindings,
)
from migrator.rabbitmq.entities import Entity, exchange_entity, queue_entity

_LEVELS = frozenset(map(queue_entity, LEVEL_QUEUES))


def make_plan(facts: Facts, wishes: Wishes) -> Plan:
    """Return what is to be done, by what is there now."""
    against = refusals(facts, wishes)
    notes = tuple(_notes(facts))
    drops_table = wishes.drops_table and facts.rows is not None
    if facts.broker is None:
        return Plan(refusals=against, drops_table=drops_table, notes=notes)
    own, keep = _own_entities(facts, facts.broker)
    delete = (*satellite_entities(facts.queue, facts.broker), *own)
    return Plan(
        refusals=against,
        unbind=bindings_of(delete, facts.broker.bindings),
        delete=delete,
        keep=keep,
        bind_again=unfinished_bindings(facts),
        drops_table=drops_table,
        notes=notes,
    )


def _own_entities(facts: Facts, look: BrokerLook) -> tuple[Sequence[Entity], Sequence[Kept]]:
    """Return what of migrator's own goes, and what stays.

    Staging, receipts and router are one: a receipt, or what was dead-lettered, goes from one
    to the other. Entry and router exchanges belong to all ledgers of the virtual host.
    """
    lanes = [exchange_entity(name) for name in look.own.exchanges]
    lanes += [queue_entity(each.name) for each in look.own.queues]
    shared = [exchange_entity(name) for name in look.own.shared]
    why = "; ".join((*_needs(facts, look), *_in_use(look), *_strange(look, lanes, {*shared})))
    if why:
        return (), [Kept(entity=entity, why=why) for entity in (*lanes, *shared)]
    goes, keep = list(lanes), list[Kept]()
    for entity in shared:
        others = "; ".join(_needed_by_others(look, entity, {*lanes, *shared}))
        if others:
            keep.append(Kept(entity=entity, why=others))
        else:
            goes.append(entity)
    return goes, keep


def _needs(facts: Facts, look: BrokerLook) -> Iterator[str]:
    others, ledger = facts.neighbours, facts.ledger
    if others.with_rows:
        yield f"rows of {', '.join(others.with_rows)} are still in the store"
    if others.forwarding:
        yield f"{', '.join(others.forwarding)} is in mode forward"
    if ledger.open_elsewhere:
        yield f"{ledger.open_elsewhere} batches of other endpoints are not settled"
    if ledger.lanes:
        yield f"somebody works: {', '.join(ledger.lanes)}"
    if look.own.clients:
        yield f"another migrator is connected: {', '.join(look.own.clients)}"


def _in_use(look: BrokerLook) -> Iterator[str]:
    for queue in look.own.queues:
        if not queue.is_calm:
            yield _why_not_calm(queue)


def _why_not_calm(queue: QueueLook) -> str:
    if not queue.is_told:
        return f"the broker does not tell yet what is in {queue.name}"
    return f"{queue.name} has {queue.messages} messages and {queue.consumers} consumers"


def _strange(
    look: BrokerLook, lanes: Collection[Entity], shared: Collection[Entity]
) -> Iterator[str]:
    """Yield what is bound to a lane's entities and is none of ours."""
    ours = {*lanes, *shared}
    for each in look.bindings:
        source = exchange_entity(each.source)
        if (source in lanes and each.target not in ours) or (
            each.target in lanes and source not in ours
        ):
            yield f"{each.source} is bound to {each.target.name}"


def _needed_by_others(look: BrokerLook, entity: Entity, ours: Collection[Entity]) -> Iterator[str]:
    if look.own.others:
        yield f"another ledger has {', '.join(sorted(look.own.others)[:3])}"
    for each in look.bindings:
        if not each.touches(entity):
            continue
        if each.target == entity:
            yield f"exchange {each.source} leads to it"
        elif each.target not in ours and each.target not in _LEVELS:
            yield f"it leads to {each.target.name}"


def _notes(facts: Facts) -> Iterator[str]:
    ledger, broker = facts.ledger, facts.broker
    if ledger.recallable and ledger.last_due is not None:
        yield (
            f"{ledger.recallable} handed-over timeouts wait in the delay levels, the last until "
            f"{ledger.last_due:%Y-%m-%d %H:%M:%S} UTC; they arrive whatever is removed here, but "
            "without the table they cannot be recalled"
        )
    if facts.is_dispatched:
        yield "[[endpoints]] still has it in mode dispatch or forward: take it out"
    if facts.is_table_shared and facts.rows is not None:
        yield f"the table of {facts.source} is shared by all endpoints of the store; it stays"
    if facts.rows is None:
        yield f"{facts.source} is not there any more"
    if broker is not None and not broker.satellites and not broker.satellite_exchanges:
        timeouts, dispatcher = satellite_names(facts.queue)
        yield (
            f"the broker has neither {timeouts} nor {dispatcher}; if the endpoint's input queue "
            "has another name, set `queue` in [[endpoints]]"
        )
