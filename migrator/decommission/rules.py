"""What may be removed once an endpoint's timeouts are gone, and what prevents it.

Facts go in, a plan comes out. A count that nobody can tell is never taken for zero, and a binding
nobody expected is never cut. Source: reference ``timeout-manager.md`` sections 2, 3, 14 and 15;
docs/decommission.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from migrator.decommission.report import (
    BrokerSnapshot,
    Facts,
    Options,
    Plan,
    QueueSnapshot,
    Refusal,
    Retained,
)
from migrator.delays.routing import (
    DelaysVersion,
    delivery_binding_key,
    delivery_exchange,
    level_name,
)
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import BITS, QueueName
from migrator.rabbitmq.entities import Binding, Entity, Kind, exchange_entity, queue_entity

_DELIVERY: Final = frozenset(delivery_exchange(version) for version in DelaysVersion)
_LEVEL_QUEUES: Final = frozenset(
    level_name(version, level) for version in DelaysVersion for level in range(BITS)
)
"""Of both generations, whether they are there or not."""
_LEVELS: Final = frozenset(map(queue_entity, _LEVEL_QUEUES))
HOW_TO_DISABLE = (
    "NServiceBus 6: endpointConfiguration.UseTransport<RabbitMQTransport>()"
    ".DelayedDelivery().DisableTimeoutManager(); "
    "NServiceBus 7: remove EnableTimeoutManager(); "
    "NServiceBus 5 cannot do without one: convert the endpoint first"
)
"""How an endpoint's own timeout manager is switched off, by version."""


def make_plan(facts: Facts, options: Options) -> Plan:
    """Return what is to be done, by what is there now."""
    against = refusals(facts, options)
    notes = tuple(_notes(facts))
    drops_table = options.drops_table and facts.rows is not None
    if facts.broker is None:
        return Plan(refusals=against, drops_table=drops_table, notes=notes)
    own, keep = _own_entities(facts, facts.broker)
    delete = (*satellite_entities(facts.target.queue, facts.broker), *own)
    return Plan(
        refusals=against,
        unbind=bindings_of(delete, facts.broker.bindings),
        delete=delete,
        keep=keep,
        bind_again=unfinished_bindings(facts),
        drops_table=drops_table,
        notes=notes,
    )


def _own_entities(
    facts: Facts, look: BrokerSnapshot
) -> tuple[Sequence[Entity], Sequence[Retained]]:
    """Return what of migrator's own goes, and what stays.

    Staging, receipts and router are one: a receipt, or what was dead-lettered, goes from one
    to the other. Entry and router exchanges belong to all ledgers of the virtual host.
    """
    lanes = [exchange_entity(name) for name in look.own.exchanges]
    lanes += [queue_entity(each.name) for each in look.own.queues]
    shared = [exchange_entity(name) for name in look.own.shared]
    why = "; ".join((*_needs(facts, look), *_in_use(look), *_strange(look, lanes, {*shared})))
    if why:
        return (), [Retained(entity=entity, why=why) for entity in (*lanes, *shared)]
    goes, keep = list(lanes), list[Retained]()
    for entity in shared:
        others = "; ".join(_needed_by_others(look, entity, {*lanes, *shared}))
        if others:
            keep.append(Retained(entity=entity, why=others))
        else:
            goes.append(entity)
    return goes, keep


def _needs(facts: Facts, look: BrokerSnapshot) -> Iterator[str]:
    target, ledger = facts.target, facts.ledger
    if facts.others_with_rows:
        yield f"rows of {', '.join(facts.others_with_rows)} are still in the store"
    if target.forwarding:
        yield f"{', '.join(target.forwarding)} is in mode forward"
    if ledger.open_elsewhere:
        yield f"{ledger.open_elsewhere} batches of other endpoints are not settled"
    if ledger.lanes:
        yield f"somebody works: {', '.join(ledger.lanes)}"
    if look.own.clients:
        yield f"another migrator is connected: {', '.join(look.own.clients)}"


def _in_use(look: BrokerSnapshot) -> Iterator[str]:
    for queue in look.own.queues:
        if not queue.is_calm:
            yield _why_not_calm(queue)


def _why_not_calm(queue: QueueSnapshot) -> str:
    if not queue.is_told:
        return f"the broker does not tell yet what is in {queue.name}"
    return f"{queue.name} has {queue.messages} messages and {queue.consumers} consumers"


def _strange(
    look: BrokerSnapshot, lanes: Collection[Entity], shared: Collection[Entity]
) -> Iterator[str]:
    """Yield what is bound to a lane's entities and is none of ours."""
    ours = {*lanes, *shared}
    for each in look.bindings:
        source = exchange_entity(each.source)
        if (source in lanes and each.target not in ours) or (
            each.target in lanes and source not in ours
        ):
            yield f"{each.source} is bound to {each.target.name}"


def _needed_by_others(
    look: BrokerSnapshot, entity: Entity, ours: Collection[Entity]
) -> Iterator[str]:
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
    if facts.target.is_dispatched:
        yield "[[endpoints]] still has it in mode dispatch or forward: take it out"
    if facts.is_table_shared and facts.rows is not None:
        yield f"the table of {facts.source} is shared by all endpoints of the store; it stays"
    if facts.rows is None:
        yield f"{facts.source} is not there any more"
    if broker is not None and not broker.satellites and not broker.satellite_exchanges:
        timeouts, dispatcher = satellite_names(facts.target.queue)
        yield (
            f"the broker has neither {timeouts} nor {dispatcher}; if the endpoint's input queue "
            "has another name, set `queue` in [[endpoints]]"
        )


# ── why not ─────────────────────────────────────────────────────────────────────────────────────


def refusals(facts: Facts, options: Options) -> tuple[Refusal, ...]:
    """Return every reason against; empty: nothing prevents it."""
    found = [*_of_store(facts, options), *_of_ledger(facts), *_of_recall(facts, options)]
    if facts.broker is None:
        text = "unacknowledged and held-back messages, and bindings, are unknown"
        remedy = "set broker.management_url; deleting without knowing is losing"
        found.append(Refusal(code="management_missing", text=text, remedy=remedy))
    else:
        found += _of_broker(facts, facts.broker)
    return tuple(found)


def _of_store(facts: Facts, options: Options) -> Iterator[Refusal]:
    if facts.rows:
        yield Refusal(
            code="rows_in_table",
            text=f"{facts.rows} rows are in {facts.source}",
            remedy="migrate them (`migrator run --once --cutoff 0s`), or have them sent first",
        )
    for run in facts.vendor_runs:
        yield Refusal(
            code="vendor_run",
            text=f"rows may be elsewhere: {run}",
            remedy="resume or abort it with the vendor's tool",
        )
    if facts.target.sharing:
        yield Refusal(
            code="shared",
            text="by the settings, its queue or its table is also that of "
            + ", ".join(facts.target.sharing),
            remedy="correct [[endpoints]], or take those out that are gone",
        )
    if options.drops_table and facts.is_table_shared:
        yield Refusal(
            code="table_shared",
            text=f"the table of {facts.source} is shared by all endpoints of the store",
            remedy="leave --drop-table out; when the last endpoint is gone, drop it yourself",
        )


def _of_ledger(facts: Facts) -> Iterator[Refusal]:
    ledger = facts.ledger
    if ledger.open_rows:
        yield Refusal(
            code="open_rows",
            text=f"{ledger.open_rows} claimed rows are not settled",
            remedy="`migrator run --once` settles them, `migrator rollback` puts them back",
        )
    if ledger.doubtful:
        yield Refusal(
            code="doubtful_batches",
            text=f"batches {', '.join(map(str, ledger.doubtful))} are doubtful",
            remedy="decide with `migrator batch resolve`",
        )
    if ledger.quarantined:
        yield Refusal(
            code="quarantined_rows",
            text=f"{ledger.quarantined} rows are in quarantine",
            remedy="look with `migrator quarantine list`, then retry or export them; "
            "`migrator rollback` puts them back into the table",
        )
    if ledger.dispatcher is not None:
        yield Refusal(
            code="dispatcher_alive",
            text=f"migrator is its timeout manager now: {ledger.dispatcher}",
            remedy="stop that `migrator run`",
        )
    if ledger.is_running and ledger.lanes:
        yield Refusal(
            code="run_alive",
            text="its last run has not ended, and somebody works: " + ", ".join(ledger.lanes),
            remedy="stop that `migrator run`; if it was killed, `migrator run --once` ends it",
        )


def _of_recall(facts: Facts, options: Options) -> Iterator[Refusal]:
    if options.drops_table and facts.ledger.recallable and not options.gives_up_recall:
        yield Refusal(
            code="recallable",
            text=f"{facts.ledger.recallable} handed-over timeouts wait in the levels; without "
            "the table they cannot be recalled any more",
            remedy="wait until they are due, or add --give-up-recall",
        )


def _of_broker(facts: Facts, look: BrokerSnapshot) -> Iterator[Refusal]:
    for queue in look.satellites:
        if queue.consumers:
            yield Refusal(
                code="consumers",
                text=f"{queue.consumers} consume {queue.name}: a timeout manager still runs",
                remedy=f"switch it off. {HOW_TO_DISABLE}",
            )
    for queue in (*look.satellites, *look.retries):
        yield from _of_queue(queue)
    for binding in unexpected_bindings(facts.target.queue, look):
        yield Refusal(
            code="foreign_binding",
            text=f"exchange {binding.source} leads to {binding.target.kind} "
            f"{binding.target.name} (key {binding.key!r}), which NServiceBus does not do",
            remedy="find out who needs it, and remove it",
        )


def _of_queue(queue: QueueSnapshot) -> Iterator[Refusal]:
    if queue.messages:
        yield Refusal(
            code="messages",
            text=f"{queue.name} is not empty: {queue.ready} ready, {queue.unacked} "
            f"unacknowledged, {queue.held_back} held back",
            remedy="start the timeout manager once more, or `migrator run` in mode dispatch or "
            "forward, until it is; counts lag by some seconds",
        )
    elif not queue.is_told:
        yield Refusal(
            code="counts_unknown",
            text=f"the broker does not tell yet what is in {queue.name}",
            remedy="try again in ten seconds; if it stays so, broker.management_url is of another "
            "broker",
        )


# ── what belongs together ───────────────────────────────────────────────────────────────────────


def satellite_names(queue: QueueName) -> tuple[QueueName, QueueName]:
    """Return the queues of the timeout manager of the endpoint whose input queue is *queue*."""
    return timeouts_queue(queue), dispatcher_queue(queue)


def satellite_entities(queue: QueueName, look: BrokerSnapshot) -> Iterator[Entity]:
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


def unexpected_bindings(queue: QueueName, look: BrokerSnapshot) -> Iterator[Binding]:
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
    name, is_queue = binding.target.name, binding.target_is_queue
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
    queues |= _LEVEL_QUEUES  # entry and router exchanges lead there; binding tells whether one is
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
