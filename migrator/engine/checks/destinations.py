"""Would messages find their way out of the delays again?

A message for an unbound destination is lost in version 1, and in version 2 it freezes a level
for everyone once there are 32 of them. Source: reference ``native-delays.md`` section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

from migrator.domain.conversion import Reason
from migrator.domain.findings import Finding, Level
from migrator.domain.preview import EndpointPreview
from migrator.domain.routing import DelaysVersion
from migrator.domain.timeouts import QueueName
from migrator.ports import BrokerFacts, NotChecked

NAME: Final = "destinations"


def check(
    broker: BrokerFacts,
    previews: Sequence[EndpointPreview] | None,
    *,
    version: DelaysVersion,
    may_bind: bool,
    dispatched: Sequence[EndpointPreview] | None = (),
) -> Iterator[Finding]:
    """Look at each destination's queue and, for rows that enter the delays, at its binding.

    Nothing is refused: such rows go to quarantine, and back from there once it is put right;
    rows of *dispatched* endpoints, which are sent when due, wait until they can be sent.
    """
    if previews is None or dispatched is None:
        yield _finding(Level.NOT_CHECKED, "destinations", "the rows were not looked at")
        return
    delayed, sent = destination_rows(previews), destination_rows(dispatched)
    probes = broker.queues(sorted({*delayed, *sent}))
    unknown = {name for name, probe in probes.items() if probe is None}
    if probes and len(unknown) == len(probes):
        yield _finding(
            Level.WARNING,
            "destinations",
            f"none of the {len(probes)} destinations has a queue on this broker",
            "is this the right broker and virtual host?",
        )
    if delayed:
        yield from _delayed(broker.bound_names(version), delayed, unknown, may_bind=may_bind)
    for name, count in sorted(sent.items()):
        yield _sent(name, count, is_known=name not in unknown)


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
        f"it has no queue: {count} rows would be quarantined ({Reason.DESTINATION_UNKNOWN})",
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
        f"it is not bound: {count} rows would be quarantined ({Reason.DESTINATION_UNBOUND})",
        "start that endpoint once, or set broker.all_endpoints_support_delayed_delivery = false",
    )


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
