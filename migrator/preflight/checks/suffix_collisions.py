"""Would a message reach a second queue, too?

``#.Sales`` also matches keys that end in ``.My.Sales``: both queues get the message.
Source: reference ``native-delays.md`` section 5.1 (measured).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.delays.routing import DelaysVersion, suffix_collisions
from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import QueueName
from migrator.preflight.checks.destinations import destination_rows
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts
from migrator.stores.endpoints import EndpointPreview

NAME: Final = "suffix-collisions"


def check(
    broker: BrokerFacts,
    previews: Sequence[EndpointPreview] | None,
    *,
    version: DelaysVersion,
    is_accepted: bool,
) -> Iterator[Finding]:
    """Refuse destinations whose messages another bound name would catch, unless accepted."""
    if previews is None:
        yield _finding(Level.NOT_CHECKED, "destinations", "the rows were not looked at")
        return
    ours = frozenset(destination_rows(previews))
    yield from among(broker, ours, version=version, is_accepted=is_accepted)


def among(
    broker: BrokerFacts, ours: frozenset[QueueName], *, version: DelaysVersion, is_accepted: bool
) -> Iterator[Finding]:
    """Refuse those of *ours* whose messages another bound name would catch, unless accepted."""
    bound = broker.bound_names(version)
    if isinstance(bound, NotChecked):
        yield _finding(
            Level.NOT_CHECKED, "names bound by others", f"they are not known: {bound.reason}"
        )
        bound = frozenset()
    pairs = [pair for pair in suffix_collisions(ours | bound) if pair[1] in ours]
    for catcher, caught in pairs:
        yield _collision(catcher, caught, is_accepted=is_accepted)
    if not pairs:
        yield _finding(Level.OK, "destinations", "no known name is a suffix of another")


def _collision(catcher: QueueName, caught: QueueName, *, is_accepted: bool) -> Finding:
    return _finding(
        Level.WARNING if is_accepted else Level.REFUSED,
        caught,
        f"messages for it also reach {catcher}",
        "" if is_accepted else "rename a queue, or set handover.accept_suffix_collisions = true",
    )


def _finding(level: Level, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject=subject, text=text, remedy=remedy)
