"""Are the queues there that a timeout manager works on, and does nobody else work on them?

Source: reference ``timeout-manager.md`` sections 2, 7, 10 and 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from migrator.errors import NotChecked
from migrator.nservicebus.satellites import dispatcher_queue, timeouts_queue
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.context import Satellites
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts, QueueProbe

NAME: Final = "satellite-queues"
_LOW_LIMIT: Final = 1000
"""Connections lost in the life of a message; endpoints themselves ask for 100 000."""


def check(
    broker: BrokerFacts, satellites: Sequence[Satellites], *, near_due_queues: Sequence[str]
) -> Iterator[Finding]:
    """Refuse queues that are missing; warn of a timeout manager that still runs.

    Args:
        broker: Whom to ask.
        satellites: Of endpoints whose timeout manager we are to be.
        near_due_queues: Input queues of endpoints of which we only send what is nearly due.
    """
    if not satellites and not near_due_queues:
        yield _finding(Level.OK, "satellites", "not needed: no chosen endpoint is dispatched")
        return
    for each in satellites:
        yield from _satellites(broker, each)
    for queue in near_due_queues:
        yield _near_due(broker, dispatcher_queue(QueueName(queue)))


def _satellites(broker: BrokerFacts, wanted: Satellites) -> Iterator[Finding]:
    queue = QueueName(wanted.queue)
    store, dispatcher = timeouts_queue(queue), dispatcher_queue(queue)
    probes = broker.queues([store, dispatcher, wanted.error_queue])
    yield _store(store, probes, wanted.endpoint)
    yield _control(dispatcher, probes)
    yield from _limits(broker, [store, dispatcher])
    if probes[wanted.error_queue] is None:
        yield _finding(
            Level.REFUSED,
            wanted.error_queue,
            f"the error queue of {wanted.endpoint} does not exist",
            "create it, or name the right one: dispatch.error_queue, or error_queue in "
            "[[endpoints]]",
        )
    else:
        yield _finding(Level.OK, wanted.error_queue, f"the error queue of {wanted.endpoint} exists")


def _store(name: str, probes: Mapping[str, QueueProbe | None], endpoint: str) -> Finding:
    probe = probes[name]
    if probe is None:
        return _finding(
            Level.REFUSED,
            name,
            f"it does not exist: {endpoint} sends no timeouts there",
            "name its input queue as queue in [[endpoints]], or use mode migrate",
        )
    if probe.consumers:
        return _shared(name, probe)
    return _finding(Level.OK, name, f"nobody else consumes it; {probe.messages} messages wait")


def _control(name: str, probes: Mapping[str, QueueProbe | None]) -> Finding:
    probe = probes[name]
    if probe is None:
        return _finding(Level.OK, name, "it does not exist: no control messages are read")
    if probe.consumers:
        return _shared(name, probe)
    return _finding(Level.OK, name, f"nobody else consumes it; {probe.messages} messages wait")


def _limits(broker: BrokerFacts, names: Sequence[str]) -> Iterator[Finding]:
    """Warn of policies by which a message is dropped once it has come back so often."""
    policies = broker.policies(names)
    if isinstance(policies, NotChecked):
        return  # the check of policies says so
    for name in names:
        for policy in policies.get(name, ()):
            limit = policy.definition.get("delivery-limit")
            if isinstance(limit, int) and 0 <= limit < _LOW_LIMIT:
                yield _finding(
                    Level.WARNING,
                    name,
                    f"policy {policy.name!r} drops a message that has come back {limit} times; "
                    "each loss of migrator's connection brings back those in hand",
                    "raise its delivery-limit, or exempt the queue from it",
                )


def _shared(name: str, probe: QueueProbe) -> Finding:
    return _finding(
        Level.WARNING,
        name,
        f"{probe.consumers} consume it already: the endpoint's own timeout manager, which would "
        "share the work and may send a timeout twice, or another migrator, which is harmless",
        "disable the endpoint's timeout manager; beside another migrator this one stands by",
    )


def _near_due(broker: BrokerFacts, name: str) -> Finding:
    probe = broker.queues([name])[name]
    if probe is not None and probe.consumers:
        return _finding(
            Level.WARNING,
            name,
            f"{probe.consumers} consume it: the endpoint's own timeout manager runs and sends "
            "what is nearly due as well; it may send a timeout twice",
            "use --near-due leave while it runs",
        )
    return _finding(Level.OK, name, "nobody else sends what is nearly due")


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
