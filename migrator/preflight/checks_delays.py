"""Checks of the native delays: are they complete, are messages stuck, can messages leave?

A message for a destination that is not bound any more is lost in version 1. Version 2 keeps it and
tries again every three minutes. From 32 such messages on, no other message leaves that level.
Source: reference ``native-delays.md`` section 5 (measured).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import FREEZING
from migrator.delays.destination_bindings import DestinationBinding
from migrator.delays.routing import (
    JUST_DUE,
    DelaysVersion,
    delivery_exchange,
    level_name,
    suffix_collisions,
)
from migrator.errors import MigratorError, NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.context import DelaysContext, Finding, not_checked, ok, refused, warning
from migrator.rabbitmq.entities import QueueMembers
from migrator.text import counted, listed, span_words

if TYPE_CHECKING:
    from migrator.ledger.queries import HandedOver, SqlHandOvers
    from migrator.preflight.queries import KnownHandOvers

NOT_NEEDED: Final = ok("native delays", "not needed: every chosen endpoint is in mode dispatch")
_SAMPLE_INTERVAL_S: Final = 2.0
_ELECTION_S: Final = 3.0
_SHOWN: Final = 3
_BLAMED: Final = 3

Stuck = Mapping[int, int]


def bound_names(context: DelaysContext) -> Iterator[Finding]:
    """Does one bound name also receive messages for another?

    Refuse pairs of bound names of which one is a suffix of the other, unless accepted.

    ``#.Sales`` also matches keys that end in ``.My.Sales``: both queues get every such message.
    """
    bound = context.broker.bound_names(context.version)
    pairs = suffix_collisions(bound)
    for catcher, caught in pairs:
        yield (warning if context.accepts_suffix_collisions else refused)(
            caught,
            f"delayed messages for it also reach {catcher}",
            f"give one of the two another name; if no sender delays messages to {catcher}, "
            f"remove the binding #.{catcher} of exchange {delivery_exchange(context.version)}",
        )
    if not pairs:
        yield ok("bound names", f"none of {len(bound)} is a suffix of another")


def delay_entities(context: DelaysContext) -> Iterator[Finding]:
    """Do the native delays exist, with the arguments they must have? Migrator creates none unasked.

    Refuse when an entity is missing or different.
    """
    if context.delays is None:
        yield NOT_NEEDED
        return
    report, subject = context.broker.delay_entities(context.version), f"delays {context.version}"
    if report.missing:
        yield refused(
            subject,
            f"missing: {listed(report.missing, _SHOWN)}",
            f"migrator delays create --delays {context.version}",
        )
    for name, text in sorted(report.different.items()):
        yield refused(
            name,
            f"it exists with other arguments: {text}",
            "find out what created it; while it is empty, delete it and create it again",
        )
    if report.not_checked:
        more = len(report.not_checked) - 1
        yield not_checked(subject, report.not_checked[0] + (f"; and {more} more" if more else ""))
    if not (report.missing or report.different or report.not_checked):
        yield ok(subject, "complete, with the arguments they must have")


def level_leaders(context: DelaysContext) -> Iterator[Finding]:
    """Does each level have a leader, and do all of its members run?

    Refuse levels without a leader: no message enters or leaves them. Warn of members that do not
    run.

    A level without a leader is checked a second time, after an election may have ended.
    """
    if context.delays is None:
        yield NOT_NEEDED
        return
    found = context.broker.level_members(context.version)
    if not all(each.is_led for each in found):
        context.wait(_ELECTION_S)
        found = context.broker.level_members(context.version)
    incomplete = defaultdict[tuple[bool, tuple[str, ...], tuple[str, ...]], list[QueueMembers]](
        list
    )
    for each in found:
        if each.offline or not each.is_led:
            incomplete[each.is_led, tuple(each.members), tuple(each.online)].append(each)
    for (is_led, members, online), queues in sorted(incomplete.items()):
        names = listed([queue.queue for queue in queues], _SHOWN)
        places = f"members: {', '.join(members)}; running: {', '.join(online) or 'none'}"
        if is_led:
            yield warning(names, f"not all of their members run; {places}", _restart(queues))
        else:
            text = f"no leader, so no message enters or leaves; {places}"
            yield refused(names, text, _restart(queues))
    if not incomplete:
        yield ok("levels", _leaders(context.version, found))


def _restart(queues: Sequence[QueueMembers]) -> str:
    where = ", ".join(queues[0].offline or queues[0].members)
    processes = ", ".join(queue.process for queue in queues)
    return (
        f"start {where}; if the node is up, run there: rabbitmqctl eval "
        f'"[ra:restart_server(quorum_queues, {{P, node()}}) || P <- [{processes}]]."'
    )


def _leaders(version: DelaysVersion, found: Sequence[QueueMembers]) -> str:
    if not found:
        return f"delays {version} have no quorum queues, so no leaders"
    leaders = sorted(Counter(each.leader for each in found).items())
    sizes = sorted({len(each.members) for each in found})
    size = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    led = ", ".join(f"{node} leads {count}" for node, count in leaders)
    return f"{led}; members of each: {size}, all running"


def stuck_levels(context: DelaysContext) -> Iterator[Finding]:
    """Are messages stuck in a level because their destination is missing?

    Warn of expired messages that have not left, above all where they may block a level.

    One sample cannot distinguish them from messages that are just leaving, so it never refuses.
    """
    if context.delays is None:
        yield NOT_NEEDED
        return
    stuck = context.broker.stuck(context.version)
    for level, count in sorted(stuck.items()):
        freezes = "; if they stay, the level freezes for every endpoint"
        yield warning(
            level_name(context.version, level),
            counted(count, "expired message is", "expired messages are")
            + " still in the level"
            + (freezes if count >= FREEZING else ""),
            "`migrator delays show` checks again, and names the missing destination",
        )
    if not stuck:
        yield ok("levels", "no message is stuck in them")


def frozen_levels(context: DelaysContext) -> Iterator[Finding]:
    """Do expired messages stay in a level, so that it is frozen?

    Refuse levels in which expired messages stay; name the destinations that cause it.

    Takes ``watch_s``, unless the first sample finds no such message.
    """
    samples = _samples(context)
    stayed = {
        level: min(counts)
        for level in sorted(samples[0])
        if min(counts := [sample.get(level, 0) for sample in samples])
    }
    if not stayed:
        yield ok("levels", "no expired message stays in them")
        return
    remedy = _remedy(context)
    for level, count in stayed.items():
        is_certain = count >= FREEZING or all(s[level] >= samples[0][level] for s in samples)
        finding = refused if is_certain else warning
        yield finding(level_name(context.version, level), _stayed(count, context.watch_s), remedy)


def _samples(context: DelaysContext) -> Sequence[Stuck]:
    samples: list[Stuck] = [context.broker.stuck(context.version)]
    count = max(1, math.ceil(context.watch_s / _SAMPLE_INTERVAL_S)) if samples[0] else 0
    for _ in range(count):
        context.wait(context.watch_s / count)
        samples.append(context.broker.stuck(context.version))
    return samples


def _stayed(count: int, span_s: float) -> str:
    stuck = counted(count, "expired message")
    text = f"at least {stuck} stayed in the level for {span_words(span_s)}, and no queue takes them"
    if count >= FREEZING:
        return f"{text}; the level is frozen for every endpoint"
    return f"{text}; from {FREEZING} on the level is frozen for every endpoint"


def _remedy(context: DelaysContext) -> str:
    try:
        fixes = _fixes(context)
    except MigratorError:  # ways-out says what could not be asked
        fixes = ()
    return "; ".join(fixes) or (
        "find the queue that was deleted or never bound; create it, then bind exchange "
        f"{delivery_exchange(context.version)} to it with key #.<its name>"
    )


def _fixes(context: DelaysContext) -> Sequence[str]:
    if context.hand_overs is None:
        return ()
    now = context.wall_clock()
    rows = context.hand_overs.handed_over(due_from=now - JUST_DUE, due_until=now)
    bindings = context.broker.destination_bindings(
        context.version, [each.destination for each in rows]
    )
    blamed = [each for each in rows if not bindings[each.destination].is_open]
    return [
        f"{counted(each.rows, 'timeout')} for {each.destination} became due in the past hour, "
        f"and {bindings[each.destination].problem}: {bindings[each.destination].remedy}"
        for each in sorted(blamed, key=lambda each: (-each.rows, each.destination))[:_BLAMED]
    ]


def destination_bindings(context: DelaysContext) -> Iterator[Finding]:
    """Can every message in the delays reach its destination?

    Refuse destinations of handed-over timeouts that no binding leads to; warn of other dead ends.
    """
    return binding_findings(context, context.hand_overs)


def binding_findings(
    context: DelaysContext, hand_overs: SqlHandOvers | KnownHandOvers | None
) -> Iterator[Finding]:
    bound = context.broker.bound_names(context.version)
    rows: Mapping[QueueName, HandedOver] = {}
    try:
        rows = _waiting(context, hand_overs)
    except MigratorError as exc:  # the levels are checked all the same
        yield not_checked("handed-over timeouts", str(exc))
    bindings = context.broker.destination_bindings(context.version, sorted({*bound, *rows}))
    missing = [binding for _, binding in sorted(bindings.items()) if not binding.is_open]
    for binding in missing:
        yield _unreachable(binding, rows.get(binding.destination))
    if not missing:
        yield ok("destinations", f"{len(bindings)} are known, each can be reached")


def _waiting(
    context: DelaysContext, hand_overs: SqlHandOvers | KnownHandOvers | None
) -> Mapping[QueueName, HandedOver]:
    if hand_overs is None:
        raise NotChecked("no store is configured, so there is no ledger to ask")
    found = hand_overs.handed_over(due_from=context.wall_clock() - JUST_DUE)
    return {each.destination: each for each in found}


def _unreachable(binding: DestinationBinding, waiting: HandedOver | None) -> Finding:
    if waiting is None:
        text = f"{binding.problem}: delayed messages for it would not arrive"
        return warning(binding.destination, text, binding.remedy)
    span = f"{waiting.first_due:%Y-%m-%d %H:%M:%S} to {waiting.last_due:%Y-%m-%d %H:%M:%S}"
    rows = counted(waiting.rows, "timeout handed over for it is", "timeouts handed over for it are")
    text = f"{binding.problem}, and {rows} due {span} UTC"
    return refused(binding.destination, text, binding.remedy)
