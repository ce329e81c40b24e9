"""Checks of the broker: version, rights, alarms, disk, policies, queues of a timeout manager.

Sources: reference ``native-delays.md`` section 6, ``timeout-manager.md`` sections 2, 7, 10 and 12;
design sections 5.2, 8 and 10 (measured).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Final, TypeVar

from migrator.delays.routing import DelaysVersion, delivery_exchange, level_name
from migrator.errors import AccessRefused, NotChecked, TargetError
from migrator.ledger.states import Mode
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import BITS, QueueName
from migrator.preflight.context import (
    MIGRATE,
    MOVING,
    Context,
    DelaysContext,
    Finding,
    Protection,
    Satellites,
    destination_rows,
    hidden,
    not_checked,
    ok,
    refused,
    warning,
)
from migrator.rabbitmq.releases import ADVISED, Release, known_bugs, support_ended
from migrator.text import counted, grouped, listed

if TYPE_CHECKING:
    from migrator.delays.broker import BrokerFacts
    from migrator.rabbitmq.entities import PolicyRule, QueueFacts

T = TypeVar("T", str, tuple[str, str])

OLDEST: Final = (3, 10)
"""The first with at-least-once dead-lettering and message expiry in quorum queues."""
FLAGS: Final = ("quorum_queue", "stream_queue")
OVERHEAD_BYTES: Final = 500
"""Per message: routing key, properties, and what the queue itself writes."""
FACTOR: Final = 2
"""A message is written to staging and to its level; old segments are freed late."""
HARMFUL: Final = frozenset(
    {
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delivery-limit",
        "expires",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
    }
)
_LIMIT: Final = "delivery-limit"
_HIGH_LIMIT: Final = 100_000
_LOW_LIMIT: Final = 1000
"""Connections lost in the life of a message; endpoints themselves set 100 000."""
_NAMED: Final = 3
_USER: Final = "broker user"
_POISON: Final = "poison queue"
_USE_V1: Final = "use --delays v1 --mode direct"


def broker_alarms(context: DelaysContext) -> Iterator[Finding]:
    """Does the broker block publishers?

    Warn of memory and disk alarms: the broker accepts no message while one is in force.
    """
    alarms = context.broker.alarms()
    for alarm in alarms:
        yield warning(
            "resource alarm",
            f"{alarm}: the broker blocks all publishers",
            "free memory or disk on that node; migrator waits meanwhile",
        )
    if not alarms:
        yield ok("resource alarms", "none in force")


def broker_reachable(context: DelaysContext) -> Iterator[Finding]:
    """Can the broker be reached, and does it accept the user? Two different findings.

    Connect as the daemon will.
    """
    try:
        server = context.broker.server()
    except AccessRefused as exc:
        yield refused(
            "broker",
            f"it answers, but refuses the connection: {exc}",
            "check user, password, virtual host and permissions (`migrator db grants --broker`)",
        )
    except TargetError as exc:
        yield refused(
            "broker",
            f"it cannot be reached: {exc}",
            "check broker.url, the network, and whether the broker is running",
        )
    else:
        yield ok("broker", f"{server.product} {server.version} answers")


_UNPROTECTED: Final = {
    Protection.NONE: "the connection to {} is not encrypted, or only if the server wants it: "
    "anyone who can read the network can read the timeouts, and may get the password",
    Protection.ENCRYPTED: "the certificate of {} is not verified: another machine on the "
    "network can impersonate it and get the password",
}


def encryption(context: Context) -> Iterator[Finding]:
    """Can others on the network read passwords and timeouts, or impersonate a server?

    Warn of connections to other machines without TLS, or whose certificate is not verified.
    """
    if not context.connections:
        yield ok("connections", "none to another machine is known")
    for each in context.connections:
        if text := _UNPROTECTED.get(each.protection):
            yield warning(each.subject, text.format(each.host), each.remedy)
        else:
            yield ok(each.subject, f"encrypted, and the certificate of {each.host} is verified")


# ── rights ──────────────────────────────────────────────────────────────────────────────────────


def broker_rights(context: Context) -> Iterator[Finding]:
    """May the user declare the queues for staging and retries, and bind destinations to the delays?

    Refuse a user that may not declare migrator's queues, or may bind none of the destinations; warn
    of single destinations that may not be bound: their rows wait.

    The broker is asked without declaring or binding anything. Without the rights to its own queues,
    a daemon would claim rows and then restart again and again.
    """
    if context.mode is not None:
        yield from _staging(context, context.mode)
        if context.may_bind:
            yield from _binding(context, destination_rows(context.previews_of(*MOVING) or ()))
    if context.retry_queues:
        otherwise = "set dispatch.retry_delays = []"
        yield from _making(context, context.retry_queues, whose="retries have", otherwise=otherwise)
    elif context.mode is None:
        yield ok(_USER, "nothing has to be declared")


def _staging(context: Context, mode: Mode) -> Iterator[Finding]:
    if mode is not Mode.STAGED:
        yield ok(_USER, f"mode {mode} needs only the native exchanges")
    elif not context.own_queues:
        yield not_checked(_USER, "without a ledger, the names of migrator's queues are not known")
    else:
        names = context.own_queues
        yield from _making(context, names, whose="mode staged has", otherwise="use --mode direct")


def stray_messages(context: Context) -> Iterator[Finding]:
    """Were there foreign messages in migrator's own queues?

    Warn of messages in the poison queue: they were moved there, and an operator has to inspect
    them.
    """
    name = context.poison_queue
    if not name:
        yield not_checked(_POISON, "without a ledger, its name is not known")
        return
    queue = context.broker.queues([name])[name]
    if queue is not None and queue.is_hidden:
        yield hidden(name, "what it contains is unknown")
    elif queue is not None and queue.ready:
        yield warning(
            name,
            f"it contains {counted(queue.ready, 'message')} that were in migrator's own queues and "
            "are not migrator's",
            "find out who sent them (the log has strays_moved), and take them out of the queue",
        )
    else:
        yield ok(_POISON, "nothing is in it")


def _binding(context: Context, names: Collection[QueueName]) -> Iterator[Finding]:
    if not names:
        return
    unbindable = context.broker.not_bindable(context.version, sorted(names))
    of_all = counted(len(names), "destination")
    if not unbindable:
        yield ok(_USER, f"may bind the {of_all} of the rows to the delays")
        return
    shown = [f"{name}: {text}" for name, text in sorted(unbindable.items())[:_NAMED]]
    shown += [f"and {len(unbindable) - _NAMED} more"] if len(unbindable) > _NAMED else []
    finding = refused if len(unbindable) == len(names) else warning
    yield finding(
        _USER,
        f"may not bind {len(unbindable)} of {of_all}, whose rows would wait: {'; '.join(shown)}",
        f"grant it `write` on each destination and `read` on {delivery_exchange(context.version)} "
        "(`migrator db grants --broker` prints the `rabbitmqctl set_permissions`), or, if all "
        "endpoints bind themselves, set broker.all_endpoints_support_delayed_delivery = true",
    )


def _making(
    context: Context, names: Sequence[str], *, whose: str, otherwise: str
) -> Iterator[Finding]:
    forbidden = context.broker.not_configurable(names)
    for name, text in sorted(forbidden.items()):
        yield refused(
            name,
            f"{whose} to declare it, and may not: {text}",
            f"let `migrator db grants --broker` print what the user needs, or {otherwise}",
        )
    if not forbidden:
        yield ok(_USER, f"{whose} to declare {counted(len(names), 'queue')}, and may")


# ── version ─────────────────────────────────────────────────────────────────────────────────────


def broker_version(context: DelaysContext) -> Iterator[Finding]:
    """Can this broker do what was chosen?

    Refuse a broker that is too old, or whose feature flags are off, for what was chosen; warn of
    one with known bugs that concern delay levels, or without upstream support.

    Version 2 of the delays, and staging with either version, need quorum queues with at-least-once
    dead-lettering. Retries need quorum queues in which messages expire.
    """
    needs = [f"delays {context.delays}"] if context.delays is DelaysVersion.V2 else []
    needs += [f"mode {context.mode}"] if context.mode is Mode.STAGED else []
    needs += ["dispatch.retry_delays"] if context.retry_queues else []
    server = context.broker.server()
    subject = f"{server.product} {server.version}"
    if not needs:
        chosen = [f"delays {context.delays}"] if context.delays is not None else []
        chosen += [f"mode {context.mode}"] if context.mode is not None else []
        yield ok(subject, f"any version is enough for {' in '.join(chosen) or 'a dispatcher'}")
        return
    wanted = " and ".join(needs)
    if not server.release:
        yield not_checked(subject, f"its version cannot be read; {wanted} need 3.10 or newer")
    elif server.release < OLDEST:
        only_retries = len(needs) == bool(context.retry_queues)
        other = "set dispatch.retry_delays = []" if only_retries else _USE_V1
        text = f"{wanted} need version 3.10 or newer"
        yield refused(subject, text, f"upgrade the broker, or {other}")
    else:
        flags = context.broker.flags(server)
        # a flag that a newer broker no longer lists has become part of it
        off = [flag for flag in FLAGS if flags.get(flag) is False]
        for flag in off:
            yield refused(
                f"feature flag {flag}",
                f"it is not enabled, but {wanted} need it",
                f"rabbitmqctl enable_feature_flag {flag}",
            )
        if not off:
            yield ok(subject, f"it supports {wanted}")
        if server.product == "RabbitMQ":
            yield from _known_of(subject, server.release)


def _known_of(subject: str, release: Release) -> Iterator[Finding]:
    ended, bugs = support_ended(release), known_bugs(release)
    advisories = [] if ended is None else [f"upstream support ended: {ended}"]
    advisories += [f"{bug.text} ({bug.issue})" for bug in bugs]
    if advisories:
        advised = ".".join(map(str, ADVISED))
        yield warning(subject, "; ".join(advisories), f"upgrade to RabbitMQ {advised} or later")


# ── room ────────────────────────────────────────────────────────────────────────────────────────


def capacity(context: Context) -> Iterator[Finding]:
    """Has the broker enough disk space for the messages?

    Compare a cautious estimate of the bytes on disk with the free space of the fullest node.
    """
    previews = context.previews_of(*MOVING)
    if previews is None:
        yield not_checked("disk", "the rows were not checked")
        return
    if not all(preview.is_complete for preview in previews):
        yield not_checked("disk", "not all rows were checked")
        return
    if unmeasured := sum(preview.unmeasured for preview in previews):
        yield not_checked("disk", f"the body size of {counted(unmeasured, 'row')} is not known")
        return
    messages = sum(preview.to_hand_over for preview in previews)
    payload = sum(preview.bytes for preview in previews)
    needed = FACTOR * (payload + messages * OVERHEAD_BYTES)
    needing = f"{counted(messages, 'message')} need about {_mib(needed)}"
    try:
        left = context.broker.bytes_left()
    except NotChecked as exc:
        yield not_checked("disk", f"{needing}; {exc}")
        return
    facts = f"{needing} of the {_mib(left)} left on disk"
    if needed > left:
        yield refused("disk", facts, "make room, or take fewer rows with --horizon")
    elif 2 * needed > left:
        yield warning("disk", facts, "watch the disk while migrating")
    else:
        yield ok("disk", facts)


def _mib(count: int) -> str:
    return f"{grouped(round(count / 2**20))} MiB"


# ── policies ────────────────────────────────────────────────────────────────────────────────────


def policies(context: DelaysContext) -> Iterator[Finding]:
    """Does a policy change what the queues must do?

    Refuse policies that change expiry, limits or dead-lettering of levels or migrator's queues.

    A policy overrides a queue's own arguments: a blanket ``overflow: drop-head`` silently deleted
    messages in a level, and a delivery limit on ``.*`` dead-letters staged messages singly. A limit
    as high as migrator's is harmless, and replaces RabbitMQ 4's own limit of 20. An alternate
    exchange takes what an exchange cannot route: the broker confirms such a message, and it arrives
    in another queue instead of being returned.
    """
    levels = (
        []
        if context.delays is None
        else [level_name(context.delays, level) for level in range(BITS)]
    )
    found = context.broker.policies([*levels, *context.our_queues])
    harmful = _grouped(
        ((policy.name, keys), queue)
        for queue, policies in found.items()
        for policy in policies
        if (keys := ", ".join(sorted(_harmful_keys(policy))))
    )
    for (policy, keys), queues in harmful:
        remedy = "narrow its pattern so that it leaves these queues alone"
        yield refused(f"policy {policy}", f"it sets {keys} on {listed(queues, 1)}", remedy)
    delivery = [] if context.delays is None else [delivery_exchange(context.delays)]
    diverting = context.broker.diverting([*levels, *delivery, *context.our_exchanges])
    for why, names in _grouped(
        (why, name) for name, reasons in diverting.items() for why in reasons
    ):
        text = (
            f"by {why}, messages that {listed(names, 1)} cannot route go to an alternate exchange: "
            "they would count as handed over, but be in another queue"
        )
        yield refused("alternate-exchange", text, "remove it from these exchanges")
    if not harmful and not diverting:
        yield ok("policies", "none affects the queues and exchanges that migrator needs")


def _grouped(pairs: Iterable[tuple[T, str]]) -> Sequence[tuple[T, Sequence[str]]]:
    found: defaultdict[T, list[str]] = defaultdict(list)
    for key, name in sorted(pairs):
        found[key].append(name)
    return list(found.items())


def _harmful_keys(policy: PolicyRule) -> Set[str]:
    found = HARMFUL & policy.definition.keys()
    limit = policy.definition.get(_LIMIT)
    is_high = isinstance(limit, int) and (limit < 0 or limit >= _HIGH_LIMIT)  # below 0: none
    return found - {_LIMIT} if is_high else found


# ── the queues of timeout managers ──────────────────────────────────────────────────────────────


def satellite_queues(context: Context) -> Iterator[Finding]:
    """Do the queues of a timeout manager exist, and does no other consumer work on them?

    Refuse queues that are missing; warn of a timeout manager that still runs.
    """
    near_due = _near_due_queues(context)
    if not context.satellites and not near_due:
        yield ok("satellites", "not needed: no chosen endpoint is dispatched")
        return
    for each in context.satellites:
        yield from _satellites(context.broker, each)
    for queue in near_due:
        yield _near_due(context.broker, dispatcher_queue(QueueName(queue)))


def _near_due_queues(context: Context) -> Sequence[str]:
    if not context.sends_near_due:
        return ()
    migrated = [name for name in context.names if context.mode_of(name) == MIGRATE]
    return [context.queues.get(name, name) for name in migrated]


def _satellites(broker: BrokerFacts, wanted: Satellites) -> Iterator[Finding]:
    queue = QueueName(wanted.queue)
    store, dispatcher = timeouts_queue(queue), dispatcher_queue(queue)
    found = broker.queues([store, dispatcher, wanted.error_queue])
    if (timeouts := found[store]) is not None and timeouts.is_hidden:
        yield refused(
            store,
            "migrator has to consume it, and this user has no right on it",
            "let `migrator db grants --broker` print what the user needs",
            endpoint=wanted.endpoint,
        )
    else:
        yield _alone(store, timeouts) or refused(
            store,
            f"it does not exist: {wanted.endpoint} sends no timeouts there",
            "name its input queue as queue in [[endpoints]], or use mode migrate",
            endpoint=wanted.endpoint,
        )
    yield _alone(dispatcher, found[dispatcher]) or ok(
        dispatcher, "it does not exist: no control messages are read"
    )
    yield from _limits(broker, [store, dispatcher])
    error_queue = found[wanted.error_queue]
    if error_queue is not None and error_queue.is_hidden:
        yield hidden(wanted.error_queue, "whether the error queue exists is unknown")
    elif error_queue is None:
        yield refused(
            wanted.error_queue,
            f"the error queue of {wanted.endpoint} does not exist",
            "create it, or set the right name: dispatch.error_queue, or error_queue in "
            "[[endpoints]]",
            endpoint=wanted.endpoint,
        )
    else:
        yield ok(wanted.error_queue, f"the error queue of {wanted.endpoint} exists")


def _alone(name: str, queue: QueueFacts | None) -> Finding | None:
    """None: the queue does not exist."""
    if queue is None:
        return None
    if queue.is_hidden:
        return hidden(name, "whether it exists, and who consumes it, is unknown")
    if queue.consumers:
        return warning(
            name,
            f"it already has {counted(queue.consumers, 'consumer')}: the endpoint's own timeout "
            "manager, which would share the work and may send a timeout twice, or another "
            "migrator, which is harmless",
            "disable the endpoint's timeout manager; if it is another migrator, this one stands by",
        )
    return ok(name, f"no other consumer; {counted(queue.ready, 'message')} ready")


def _limits(broker: BrokerFacts, names: Sequence[str]) -> Iterator[Finding]:
    try:
        found = broker.policies(names)
    except NotChecked:  # the check of policies says so
        return
    for name in names:
        for policy in found.get(name, ()):
            limit = policy.definition.get(_LIMIT)
            if isinstance(limit, int) and 0 <= limit < _LOW_LIMIT:
                yield warning(
                    name,
                    f"policy {policy.name!r} drops a message after {limit} redeliveries; each lost "
                    "connection of migrator redelivers its unacknowledged messages",
                    "raise its delivery-limit, or exempt the queue from it",
                )


def _near_due(broker: BrokerFacts, name: str) -> Finding:
    queue = broker.queues([name])[name]
    if queue is not None and queue.is_hidden:
        return hidden(name, "whether a timeout manager sends rows due soon as well is unknown")
    if queue is not None and queue.consumers:
        return warning(
            name,
            f"it has {counted(queue.consumers, 'consumer')}: the endpoint's own timeout manager "
            "runs, and sends rows due soon as well; a timeout may be sent twice",
            "use --near-due leave while it runs",
        )
    return ok(name, "no timeout manager sends rows due soon")
