"""Would messages find their way out of the delays again?

A message for an unbound destination is lost in version 1, and in version 2 it freezes a level
for everyone once there are 32 of them. Source: reference ``native-delays.md`` section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts
from migrator.stores.endpoints import EndpointPreview

NAME: Final = "destinations"
_NAMED: Final = 5


def check(
    broker: BrokerFacts,
    previews: Sequence[EndpointPreview] | None,
    *,
    version: DelaysVersion,
    may_bind: bool,
    dispatched: Sequence[EndpointPreview] | None = (),
    vhost: str = "/",
    held: Container[str] = (),
) -> Iterator[Finding]:
    """Look at each destination's queue and, for rows that enter the delays, at its binding.

    Rows for what cannot be reached wait in the store. Refused is an endpoint none of whose
    destinations exists, but for those *held*, which a run has seen missing beside others: that is
    the wrong *vhost*. Rows of *dispatched* endpoints, which are sent when due, wait as well.
    """
    if previews is None or dispatched is None:
        yield _finding(Level.NOT_CHECKED, "destinations", "the rows were not looked at")
        return
    delayed, sent = destination_rows(previews), destination_rows(dispatched)
    probes = broker.queues(sorted({*delayed, *sent}))
    unknown = {name for name, probe in probes.items() if probe is None}
    for level, some in ((Level.REFUSED, previews), (Level.WARNING, dispatched)):
        for each in some:
            if each.destinations and all(n in unknown and n not in held for n in each.destinations):
                yield _elsewhere(level, each, vhost)
    if delayed:
        yield from _delayed(broker.bound_names(version), delayed, unknown, may_bind=may_bind)
    for name, count in sorted(sent.items()):
        yield _sent(name, count, is_known=name not in unknown)


def _elsewhere(level: Level, preview: EndpointPreview, vhost: str) -> Finding:
    names = sorted(preview.destinations)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return _finding(
        level,
        preview.endpoint,
        f"virtual host {vhost!r} has a queue for none of its {len(names)} destinations: "
        f"{', '.join(names[:_NAMED])}{more}",
        "is broker.url that of the receivers, with their virtual host? else create the queues by "
        "starting the receivers, or rename them with --map old=new",
    )


def _delayed(
    bound: frozenset[QueueName] | NotChecked,
    rows: Mapping[QueueName, int],
    unknown: Container[str],
    *,
    may_bind: bool,
) -> Iterator[Finding]:
    for name, count in sorted(rows.items()):
        if name in unknown:
            yield _unknown(name, count)
        elif isinstance(bound, NotChecked):
            yield _finding(Level.NOT_CHECKED, name, f"its queue exists; binding: {bound.reason}")
        else:
            yield _binding(name, count, is_bound=name in bound, may_bind=may_bind)


def destination_rows(previews: Sequence[EndpointPreview]) -> Counter[QueueName]:
    """Return how many rows would go to each destination."""
    rows: Counter[QueueName] = Counter()
    for preview in previews:
        rows.update(preview.destinations)
    return rows


def _sent(name: QueueName, count: int, *, is_known: bool) -> Finding:
    if is_known:
        return _finding(Level.OK, name, f"{count} rows; sent to it when due")
    return _finding(
        Level.WARNING, name, f"it has no queue: {count} rows would wait until it has", "create it"
    )


def _unknown(name: QueueName, count: int) -> Finding:
    return _finding(
        Level.WARNING,
        name,
        f"it has no queue: {count} rows stay in the store until it has",
        f"create it, or rename it with --map {name}=…",
    )


def _binding(name: QueueName, count: int, *, is_bound: bool, may_bind: bool) -> Finding:
    if is_bound:
        return _finding(Level.OK, name, f"{count} rows; bound to the delays")
    if may_bind:
        return _finding(Level.OK, name, f"{count} rows; not bound yet, run binds it")
    return _finding(
        Level.WARNING,
        name,
        f"it is not bound to the delays: {count} rows stay in the store until it is",
        "start that endpoint once, or set broker.all_endpoints_support_delayed_delivery = false",
    )


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
