"""What may be removed once an endpoint's timeouts are gone, and what prevents it.

Facts go in, a plan comes out, which is filled again with what was done. An unknown count is never
taken for zero (``is_told`` says whether it is known), and an unexpected binding is never cut.
Source: reference ``timeout-manager.md`` sections 2, 3, 14 and 15;
docs/decommission.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from migrator.delays.routing import (
    DelaysVersion,
    delivery_binding_key,
    delivery_exchange,
    level_name,
)
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import BITS, BatchId, EndpointName, QueueName
from migrator.rabbitmq.entities import (
    Binding,
    Entity,
    Kind,
    QueueState,
    exchange_entity,
    queue_entity,
)
from migrator.text import counted

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
    "NServiceBus 5 always needs one: upgrade the endpoint first"
)
"""How an endpoint's own timeout manager is switched off, by version."""


# ── what is found ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whose things are to go, as the settings say it."""

    endpoint: StoreEndpoint
    queue: QueueName
    """Its input queue."""
    is_dispatched: bool = False
    """By the settings, migrator is its timeout manager."""
    forwarding: Sequence[EndpointName] = ()
    """Other endpoints in mode forward."""
    sharing: Sequence[EndpointName] = ()
    """Other endpoints of the same input queue or table."""

    @property
    def source(self) -> str:
        """The legacy table."""
        return self.endpoint.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an operator asks for beyond the broker's side."""

    drops_table: bool = False
    gives_up_recall: bool = False
    wait_s: float = 10.0
    """How long things stay unbound before they are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """What the broker has of an endpoint's timeout manager, and of migrator.

    What is ready in a queue, and who consumes it, is as it is now; the rest lags by some seconds.
    """

    satellites: Sequence[QueueState] = ()
    satellite_exchanges: Sequence[str] = ()
    retries: Sequence[QueueState] = ()
    """Retry queues that lead back to a satellite."""
    lanes: Sequence[QueueState] = ()
    """Staging and receipts queues of this ledger."""
    poison: Sequence[QueueState] = ()
    """The poison queue of this ledger, where there is one."""
    lane_exchanges: Sequence[str] = ()
    """Staging exchanges of this ledger."""
    shared: Sequence[str] = ()
    """Entry and router exchanges, which all ledgers of a virtual host share."""
    others: Sequence[str] = ()
    """Staging and receipts queues of other ledgers."""
    clients: Sequence[str] = ()
    """Connections of other migrators."""
    bindings: Sequence[Binding] = ()
    """All that have one of these entities at either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSnapshot:
    """What legacy store and ledger know of the endpoint, and of other processes."""

    rows: int | None = 0
    """The endpoint's, in the legacy table; None: there is no such table any more."""
    is_table_shared: bool = False
    """Endpoints share one table, which stays."""
    vendor_runs: Sequence[str] = ()
    """Unfinished runs of the vendor's tool, which keep rows elsewhere."""
    others_with_rows: Sequence[EndpointName] = ()
    """Other endpoints whose tables have rows."""
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
    unfinished: Sequence[Binding] = ()
    """What an earlier decommission that did not end may have unbound."""


# ── what is planned, and done ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing is removed, and what to do."""

    code: str
    text: str
    remedy: str


@dataclass(slots=True, kw_only=True)
class Plan:
    """What would be done, in this order; or, filled while it is done, what was.

    With a refusal nothing of it is done; one that comes late undoes what can be undone.
    """

    refusals: Sequence[Refusal] = ()
    unbind: Sequence[Binding] = ()
    """Bindings that go, whether cut singly or with their entity."""
    delete: Sequence[Entity] = ()
    keep: Mapping[Entity, str] = field(default_factory=dict)
    """What stays, with why."""
    bind_again: Sequence[Binding] = ()
    """What an unfinished decommission cut; and, once done, all that was bound again."""
    drops_table: bool = False
    """Whether there is a table that is to go, or went."""
    notes: Sequence[str] = ()
    is_done: bool = False

    @property
    def has_steps(self) -> bool:
        """Whether something is to be done: what was cut is bound again even when it is refused."""
        return not self.refusals or bool(self.bind_again)

    def without_steps(self) -> Plan:
        """Return what remains of a plan that is refused."""
        return replace(self, unbind=(), delete=(), drops_table=False)


def bindings_record(bindings: Iterable[Binding]) -> Sequence[Mapping[str, object]]:
    """Return *bindings* as JSON has them."""
    return [
        {
            "source": each.source,
            "target": each.target.name,
            "target_kind": str(each.target.kind),
            "key": each.key,
            "arguments": dict(each.arguments),
        }
        for each in bindings
    ]


def read_bindings(record: Iterable[Mapping[str, Any]]) -> tuple[Binding, ...]:
    """Return the bindings that ``bindings_record`` wrote."""
    return tuple(
        Binding(
            source=each["source"],
            target=Entity(kind=Kind(each["target_kind"]), name=each["target"]),
            key=each["key"],
            arguments=each["arguments"],
        )
        for each in record
    )


# ── planning ──────────────────────────────────────────────────────────────────────────────────────


def make_plan(
    target: Target, database: DatabaseSnapshot, broker: BrokerSnapshot | None, options: Options
) -> Plan:
    """Return what is to be done, by what is there now; *broker* is None without a management API.

    It is made twice more while ``remove`` works, from new snapshots, so a rule in here needs no
    other place.
    """
    plan = Plan(
        refusals=refusals(target, database, broker, options),
        drops_table=options.drops_table and database.rows is not None,
        notes=tuple(_notes(target, database, broker)),
    )
    if broker is not None:
        own, plan.keep = _own_entities(target, database, broker)
        plan.delete = (*satellite_entities(target.queue, broker), *own)
        plan.unbind = bindings_of(plan.delete, broker.bindings)
        plan.bind_again = unfinished_bindings(database.unfinished, broker)
    return plan


def _own_entities(
    target: Target, database: DatabaseSnapshot, look: BrokerSnapshot
) -> tuple[Sequence[Entity], Mapping[Entity, str]]:
    """Return what of migrator's own goes, and what stays and why.

    Staging, receipts and router are one: a receipt, or what was dead-lettered, goes from one
    to the other. Entry and router exchanges belong to all ledgers of the virtual host.
    """
    lanes = [exchange_entity(name) for name in look.lane_exchanges]
    lanes += [queue_entity(each.name) for each in look.lanes]
    poison = [queue_entity(each.name) for each in look.poison]
    shared = [exchange_entity(name) for name in look.shared]
    if why := "; ".join(_needs(target, database, look, lanes, {*lanes, *shared})):
        return (), dict.fromkeys((*lanes, *poison, *shared), why)
    whys = {each: "; ".join(_needed_by_others(look, each, {*lanes, *shared})) for each in shared}
    whys |= {
        queue_entity(each.name): "it keeps messages that were in migrator's queues and are not its"
        for each in look.poison
        if not each.is_calm
    }
    keep = {entity: why for entity, why in whys.items() if why}
    return [*lanes, *(entity for entity in (*poison, *shared) if entity not in keep)], keep


def _needs(
    target: Target,
    database: DatabaseSnapshot,
    look: BrokerSnapshot,
    lanes: Collection[Entity],
    ours: Collection[Entity],
) -> Iterator[str]:
    """Yield why all of migrator's own stays: a process works, or something of it is there."""
    elsewhere = counted(
        database.open_elsewhere, "batch of another endpoint is", "batches of other endpoints are"
    )
    reasons = {
        f"rows of {', '.join(database.others_with_rows)} are still in the store": (
            database.others_with_rows
        ),
        f"{', '.join(target.forwarding)} is in mode forward": target.forwarding,
        f"{elsewhere} not settled": database.open_elsewhere,
        f"a process works on {', '.join(database.lanes)}": database.lanes,
        f"another migrator is connected: {', '.join(look.clients)}": look.clients,
    }
    yield from (reason for reason, is_so in reasons.items() if is_so)
    for queue in look.lanes:
        if not queue.is_told:
            yield f"the broker does not report yet what is in {queue.name}"
        elif not queue.is_calm:
            consumers = counted(queue.consumers, "consumer")
            yield f"{queue.name} has {counted(queue.messages, 'message')} and {consumers}"
    for each in look.bindings:
        source = exchange_entity(each.source)
        if (source in lanes and each.target not in ours) or (
            each.target in lanes and source not in ours
        ):
            yield f"{each.source} is bound to {each.target.name}"


def _needed_by_others(
    look: BrokerSnapshot, entity: Entity, ours: Collection[Entity]
) -> Iterator[str]:
    if look.others:
        yield f"another ledger has {', '.join(sorted(look.others)[:3])}"
    for each in look.bindings:
        if each.target == entity:
            yield f"exchange {each.source} leads to it"
        elif each.touches(entity) and each.target not in ours and each.target not in _LEVELS:
            yield f"it leads to {each.target.name}"


def _notes(
    target: Target, database: DatabaseSnapshot, broker: BrokerSnapshot | None
) -> Iterator[str]:
    if database.recallable and database.last_due is not None:
        yield (
            f"{counted(database.recallable, 'handed-over timeout')} in the delay levels, the last "
            f"until {database.last_due:%Y-%m-%d %H:%M:%S} UTC; what is there arrives regardless of "
            "what is removed here, but without the table it cannot be recalled"
        )
    if target.is_dispatched:
        yield "[[endpoints]] still has it in mode dispatch or forward: remove it there"
    if database.rows is None:
        yield f"{target.source} no longer exists"
    elif database.is_table_shared:
        yield f"the table of {target.source} is shared by all endpoints of the store; it stays"
    if broker is not None and not broker.satellites and not broker.satellite_exchanges:
        timeouts, dispatcher = satellite_names(target.queue)
        yield (
            f"the broker has neither {timeouts} nor {dispatcher}; if the endpoint's input queue "
            "has another name, set `queue` in [[endpoints]]"
        )


# ── why not ─────────────────────────────────────────────────────────────────────────────────────


def refusals(
    target: Target, database: DatabaseSnapshot, broker: BrokerSnapshot | None, options: Options
) -> tuple[Refusal, ...]:
    """Return every reason against; empty: nothing prevents it."""
    no_api = (
        "management_missing",
        "unacknowledged and held-back messages, and bindings, are unknown",
        "set broker.management_url; deleting without knowing them could lose messages",
    )
    found = [*_of_store(target, database, options), *_of_ledger(database, options)]
    found += [no_api] if broker is None else _of_broker(target, broker)
    return tuple(Refusal(code=code, text=text, remedy=remedy) for code, text, remedy in found)


def _of_store(
    target: Target, database: DatabaseSnapshot, options: Options
) -> Iterator[tuple[str, str, str]]:
    """Yield code, reason and remedy of what store and settings have against it."""
    source = target.source
    reasons = (
        (
            database.rows,
            "rows_in_table",
            f"{source} still holds {counted(database.rows or 0, 'row')}",
            "migrate them (`migrator run --once --cutoff 0s`), or let the timeout manager send "
            "them first",
        ),
        (
            database.vendor_runs,
            "vendor_run",
            f"rows may be elsewhere: {'; '.join(database.vendor_runs)}",
            "resume or abort it with the vendor's tool",
        ),
        (
            target.sharing,
            "shared",
            "according to the settings, its queue or table is also that of "
            f"{', '.join(target.sharing)}",
            "correct [[endpoints]], or remove the endpoints that no longer exist",
        ),
        (
            options.drops_table and database.is_table_shared,
            "table_shared",
            f"the table of {source} is shared by all endpoints of the store",
            "omit --drop-table; when the last endpoint is gone, drop the table yourself",
        ),
    )
    yield from (reason[1:] for reason in reasons if reason[0])


def _of_ledger(database: DatabaseSnapshot, options: Options) -> Iterator[tuple[str, str, str]]:
    reasons = (
        (
            database.open_rows,
            "open_rows",
            f"{counted(database.open_rows, 'claimed row is', 'claimed rows are')} not settled",
            "`migrator run --once` settles them, `migrator rollback` puts them back",
        ),
        (
            database.doubtful,
            "doubtful_batches",
            f"batches {', '.join(map(str, database.doubtful))} are doubtful",
            "decide with `migrator db resolve`",
        ),
        (
            database.quarantined,
            "quarantined_rows",
            f"quarantine holds {counted(database.quarantined, 'row')}",
            "see `migrator quarantine list`, then retry the rows, or export and discard them; "
            "`migrator rollback` puts them back into the table",
        ),
        (
            database.dispatcher,
            "dispatcher_alive",
            f"migrator is its timeout manager now: {database.dispatcher}",
            "stop that `migrator run`",
        ),
        (
            database.is_running and database.lanes,
            "run_alive",
            f"its last run has not ended, and a process works on: {', '.join(database.lanes)}",
            "stop that `migrator run`; if it was killed, `migrator run --once` ends it",
        ),
        (
            options.drops_table and database.recallable and not options.gives_up_recall,
            "recallable",
            f"{counted(database.recallable, 'handed-over timeout')} still in the levels; without "
            "the table, none can be recalled any more",
            "wait until they are due, or add --give-up-recall",
        ),
    )
    yield from (reason[1:] for reason in reasons if reason[0])


def _of_broker(target: Target, look: BrokerSnapshot) -> Iterator[tuple[str, str, str]]:
    for queue in look.satellites:
        if queue.consumers:
            yield (
                "consumers",
                f"{queue.consumers} consume {queue.name}: a timeout manager still runs",
                f"switch it off. {HOW_TO_DISABLE}",
            )
    for queue in (*look.satellites, *look.retries):
        if queue.messages:
            yield (
                "messages",
                f"{queue.name} is not empty: {queue.ready} ready, {queue.unacked} "
                f"unacknowledged, {queue.held_back} held back",
                "start the timeout manager once more, or `migrator run` in mode dispatch or "
                "forward, until the queue is empty; counts lag by a few seconds",
            )
        elif not queue.is_told:
            yield (
                "counts_unknown",
                f"the broker does not report yet what is in {queue.name}",
                "try again in ten seconds; if this stays, broker.management_url belongs to "
                "another broker",
            )
    for binding in unexpected_bindings(target.queue, look):
        yield (
            "foreign_binding",
            f"exchange {binding.source} leads to {binding.target.kind} {binding.target.name} (key "
            f"{binding.key!r}), which NServiceBus does not declare",
            "find out what needs it, then remove it",
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


def unfinished_bindings(cut: Iterable[Binding], look: BrokerSnapshot) -> tuple[Binding, ...]:
    """Return those of *cut* that are not there, and whose ends are."""
    exchanges = {*look.satellite_exchanges, *look.lane_exchanges, *look.shared, *_DELIVERY}
    queues = {each.name for each in (*look.satellites, *look.retries, *look.lanes)}
    queues |= _LEVEL_QUEUES  # entry and router exchanges lead there; binding tells whether one is
    ends = {Kind.QUEUE: queues, Kind.EXCHANGE: exchanges}
    return tuple(
        each
        for each in cut
        if each not in look.bindings
        and each.source in exchanges
        and each.target.name in ends[each.target.kind]
    )


def still_whole(bindings: Iterable[Binding], gone: Collection[Entity]) -> tuple[Binding, ...]:
    """Return those of *bindings* neither end of which is *gone*."""
    return tuple(b for b in bindings if not any(b.touches(entity) for entity in gone))
