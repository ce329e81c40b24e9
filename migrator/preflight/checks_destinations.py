"""Checks of where rows would go: destinations, names that also receive them, replies, unsent rows.

A message for an unbound destination is lost in version 1. In version 2, 32 such messages freeze a
level for all senders. Source: reference ``native-delays.md`` section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from migrator.delays.routing import suffix_collisions as colliding
from migrator.delays.targets import UNFIT_KINDS
from migrator.errors import NotChecked
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks_delays import NOT_NEEDED
from migrator.preflight.context import (
    DISPATCH,
    MIGRATE,
    MOVING,
    Context,
    Finding,
    Level,
    destination_rows,
    hidden,
    not_checked,
    ok,
    warning,
)
from migrator.stores.endpoints import EndpointPreview
from migrator.text import counted, grouped, listed

if TYPE_CHECKING:
    pass

_NAMED: Final = 5
_PARKED_NAMED: Final = 20
_REPLY_QUEUES_NAMED: Final = 20
_REPLY_REMEDY: Final = (
    "a reply would fail, and the receiver would retry the message: create the queue and its "
    "exchange, and keep them until these rows have arrived; for rows of version 5 without an "
    "address, set the endpoint's queue in [[endpoints]]"
)


def destinations(context: Context) -> Iterator[Finding]:
    """Would messages reach their destinations?

    Check each destination's queue and, for rows that enter the delays, its binding.

    Rows for an unreachable destination are parked. An endpoint is refused if none of its
    destinations exists: that is the wrong virtual host. Parked destinations, which a run has seen
    missing beside others, do not count. Rows of dispatched endpoints, which are sent when due, wait
    as well.
    """
    moved, dispatched = context.previews_of(*MOVING), context.previews_of(DISPATCH)
    if moved is None or dispatched is None:
        yield not_checked("destinations", "the rows were not read")
        return
    delayed, sent = destination_rows(moved), destination_rows(dispatched)
    queues = context.broker.queues(sorted({*delayed, *sent}))
    unknown = {name for name, queue in queues.items() if queue is None}
    for each in (*moved, *dispatched):
        names = sorted(each.destinations)
        if names and all(n in unknown and n not in context.held for n in names):
            finding = warning(each.endpoint, *_elsewhere(names, context.vhost))
            is_moved = each in moved
            level = Level.REFUSED if is_moved else Level.WARNING
            yield replace(finding, level=level, endpoint=each.endpoint if is_moved else None)
    silent = {name for name, queue in queues.items() if queue is not None and queue.is_silent}
    shown = {name for name, queue in queues.items() if queue is None or not queue.is_hidden}
    for name in sorted(queues.keys() - shown):
        rows = counted(delayed[QueueName(name)] + sent[QueueName(name)], "row")
        yield hidden(name, f"whether it exists is unknown, and {rows} will wait until it is known")
    if delayed := Counter({name: rows for name, rows in delayed.items() if name in shown}):
        yield from _delayed(context, delayed, unknown, silent)
    for name, count in sorted(sent.items()):
        if name not in shown:
            continue
        if name in silent:
            yield _silent(name, count)
        elif name in unknown:
            text = f"it has no queue: {counted(count, 'row')} would wait until it has"
            yield warning(name, text, "create it")
        else:
            yield ok(name, f"{counted(count, 'row')}; sent to it when due")


def _elsewhere(names: Sequence[str], vhost: str) -> tuple[str, str]:
    return (
        f"virtual host {vhost!r} has a queue for none of its destinations: {listed(names, _NAMED)}",
        "check that broker.url names the receivers' broker and virtual host; if it does, create "
        "the queues by starting the receivers, or rename them with --map old=new",
    )


def _silent(name: str, rows: int) -> Finding:
    return warning(
        name,
        f"its queue does not answer, although the broker does: {counted(rows, 'row')} will wait "
        "until it does",
        "check that it has a leader and that its node runs",
    )


def _delayed(
    context: Context,
    rows: Mapping[QueueName, int],
    unknown: Container[str],
    silent: Container[str],
) -> Iterator[Finding]:
    bound, gap = _bound(context)
    for name, count in sorted(rows.items()):
        if name in silent:
            yield _silent(name, count)
        elif name in unknown:
            yield warning(
                name,
                f"it has no queue: {counted(count, 'row')} will wait in the ledger until it has",
                f"create it, or rename it with --map {name}=…",
            )
        elif gap:
            yield not_checked(name, f"its queue exists; binding: {gap}")
        elif name in bound:
            yield ok(name, f"{counted(count, 'row')}; bound to the delays")
        elif context.may_bind:
            yield ok(name, f"{counted(count, 'row')}; not bound yet; `migrator run` binds it")
        else:
            yield warning(
                name,
                f"it is not bound to the delays: {counted(count, 'row')} will wait in the ledger "
                "until it is",
                "start that endpoint once, or set "
                "broker.all_endpoints_support_delayed_delivery = false",
            )


def _bound(context: Context) -> tuple[frozenset[QueueName], str]:
    try:
        return context.broker.bound_names(context.version), ""
    except NotChecked as exc:
        return frozenset(), str(exc)


def reply_queues(context: Context) -> Iterator[Finding]:
    """Could receivers reply to the messages of these rows?

    Check that the queues exist that replies would go to; warn of missing ones.

    A reply to a missing queue is refused with 404, which closes the receiver's publishing channel:
    its other messages in progress are retried. Measured with transport 11, where the header of a
    callback queue of version 5 wins over the usual reply address.
    """
    if context.previews is None:
        yield not_checked("replies", "the rows were not read")
        return
    rows: Counter[str] = Counter()
    for preview in context.previews:
        rows.update(preview.reply_queues)
    at_least = "at least " if any(preview.sample for preview in context.previews) else ""
    queues = context.broker.queues(sorted(rows))
    gone = [(name, count) for name, count in rows.most_common() if queues[name] is None]
    for name, count in gone[:_REPLY_QUEUES_NAMED]:
        yield warning(
            name,
            f"replies to {at_least}{counted(count, 'row')} would go there, and there is no such "
            "queue",
            _REPLY_REMEDY,
        )
    if more := gone[_REPLY_QUEUES_NAMED:]:
        of_rows = f"{at_least}{counted(sum(n for _, n in more), 'row')}"
        text = f"{len(more)} more of these queues do not exist, for {of_rows}"
        yield warning("replies", text, _REPLY_REMEDY)
    unseen = [name for name, queue in queues.items() if queue is not None and queue.is_hidden]
    for name in unseen[:_REPLY_QUEUES_NAMED]:
        yield hidden(name, "whether there is a queue for replies is unknown")
    if not gone and not unseen:
        yield ok("replies", f"replies would go to {counted(len(rows), 'queue')}, and each exists")


def suffix_collisions(context: Context) -> Iterator[Finding]:
    """Would a message also reach a second queue?

    Warn of destinations whose messages another bound name would also receive: their rows wait,
    unless that is accepted.

    ``#.Sales`` also matches keys that end in ``.My.Sales``: both queues get the message.
    """
    previews = context.previews_of(*MOVING)
    if context.delays is None:
        yield NOT_NEEDED
    elif previews is None:
        yield not_checked("destinations", "the rows were not read")
    else:
        for finding in collisions_among(context, frozenset(destination_rows(previews))):
            if finding.level is not Level.REFUSED:
                yield finding
                continue
            for each in previews:  # those without rows for it go on
                if finding.subject in each.destinations:
                    yield replace(finding, endpoint=each.endpoint)


def collisions_among(context: Context, ours: frozenset[QueueName]) -> Iterator[Finding]:
    bound, gap = _bound(context)
    if gap:
        yield not_checked("names of other bindings", f"not known: {gap}")
    pairs = [pair for pair in colliding(ours | bound) if pair[1] in ours]
    for catcher, caught in pairs:
        text = f"messages for it also reach {catcher}"
        if context.accepts_suffix_collisions:
            yield warning(caught, text)
        else:
            reason = Reason.SUFFIX_COLLISION
            yield warning(caught, f"{text}: its rows wait ({reason})", reason.remedy)
    if not pairs:
        yield ok("destinations", "no known name is a suffix of another")


def parked_destinations(context: Context) -> Iterator[Finding]:
    """Do rows wait for destinations that an earlier run could not reach?

    Warn of them, with the reason. A run tries them again, and sends their rows when they work.
    """
    remedies = {str(reason): reason.remedy for reason in Reason}
    for each in context.parked[:_PARKED_NAMED]:
        yield warning(
            each.destination,
            f"rows of {each.endpoint} wait for it since {each.since:%Y-%m-%d %H:%M} UTC: "
            f"{each.reason}: {each.detail}",
            remedies.get(each.reason, ""),
        )
    if (more := len(context.parked) - _PARKED_NAMED) > 0:
        yield warning("destinations", f"rows wait for {grouped(more)} more")
    if not context.parked:
        yield ok("destinations", "none is parked")


def full_queues(context: Context) -> Iterator[Finding]:
    """Does a destination's queue reject messages when it is full?

    Name each such queue with its depth; warn if it is full, or has less room than there are rows
    for it.

    A message whose delay is over stays in its level until the queue has room. With 32 of them, the
    level stands still for all senders. While a queue is full, its rows wait in the store.
    """
    previews = context.previews_of(*MOVING)
    if previews is None:
        yield not_checked("destinations", "the rows were not read")
        return
    rows = destination_rows(previews)
    limits = context.broker.reject_limits(sorted(rows))
    for each in limits:
        count = counted(rows[QueueName(each.queue)], "row")
        text = f"it rejects messages when it is full, and has {each.text}; there are {count} for it"
        if each.is_reached:
            text += ", which wait until it has room"
        is_tight = each.unit == "messages" and (
            rows[QueueName(each.queue)] > each.limit - each.ready
        )
        if each.is_reached or is_tight:
            remedy = "have its endpoint process them, or raise its limit (max-length, overflow)"
            yield warning(each.queue, text, remedy)
        else:
            yield ok(each.queue, text)
    if not limits:
        yield ok("destinations", "none of their queues rejects messages when it is full")


def exchange_types(context: Context) -> Iterator[Finding]:
    """Does the exchange of each destination's name lead to its queue?

    Warn of exchanges that are not fanout: rows for them wait.
    """
    previews = context.previews_of(*MOVING)
    if context.delays is None:
        yield NOT_NEEDED
        return
    if previews is None:
        yield not_checked("destinations", "the rows were not read")
        return
    kinds = context.broker.exchange_kinds(sorted(destination_rows(previews)))
    unfit = {name: kind for name, kind in kinds.items() if kind in UNFIT_KINDS}
    for name, kind in sorted(unfit.items()):
        text = f"its exchange is of type {kind}, not fanout: its rows may wait"
        yield warning(name, text, Reason.EXCHANGE_TYPE.remedy)
    if not unfit:
        yield ok("destinations", "no exchange of their names is of an unfit type")


def unattended_rows(context: Context) -> Iterator[Finding]:
    """Are there rows that no process will send?

    Warn when rows are left to a timeout manager that does not run; they stay, none is lost.

    With a cutoff, the timeout manager sends rows that are overdue or due soon. Without one they
    would stay for ever, unless migrator's dispatcher sends them.
    """
    previews = context.previews_of(MIGRATE)
    if context.sends_near_due or (previews is not None and not previews):
        yield ok("rows due soon", "migrator itself sends them")
    elif not context.cutoff:
        yield ok("cutoff", "it is 0s: overdue rows are sent by migrator itself")
    elif previews is None:
        yield not_checked("rows due soon", "the rows were not read")
    else:
        for preview in previews:
            yield _unsent(context, preview)


def _unsent(context: Context, preview: EndpointPreview) -> Finding:
    queue, runs = context.broker.timeout_manager(context.queues, preview.endpoint)
    if runs is None:
        return hidden(queue, "whether the timeout manager runs is unknown")
    if runs:
        text = (
            f"its timeout manager runs and sends the {counted(preview.left, 'row')} due before the "
            "cutoff"
        )
        return ok(preview.endpoint, text)
    idle = f"nothing consumes {queue}"
    if preview.left:
        return warning(
            preview.endpoint,
            f"{counted(preview.left, 'row')} overdue or due soon would stay in the store: {idle}",
            "start its timeout manager, or use --cutoff 0s or --near-due dispatch",
        )
    return warning(
        preview.endpoint,
        f"{idle}: rows that pass the cutoff while migrator is down would stay",
        "use --cutoff 0s or --near-due dispatch once no timeout manager runs any more",
    )
