"""Could receivers reply to the rows that are to leave?

A reply to a queue that is gone is refused with 404, which closes the channel that the receiver
publishes on: other messages in hand are tried again. Measured with transport 11, where the header
of a callback queue of version 5 wins over the usual reply address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts
from migrator.stores.endpoints import EndpointPreview

NAME: Final = "reply-queues"
_NAMED: Final = 20
"""Queues that get a finding each; of the others their number is told."""
_REMEDY: Final = (
    "replies fail, and a receiver's other messages are tried again: create the queue and its "
    "exchange until these rows have arrived; of rows of version 5 without an address, set the "
    "endpoint's queue in [[endpoints]]"
)


def check(broker: BrokerFacts, previews: Sequence[EndpointPreview] | None) -> Iterator[Finding]:
    """Look whether the queues exist that replies would go to; warn of those that do not."""
    if previews is None:
        yield _finding(Level.NOT_CHECKED, "the rows were not looked at")
        return
    rows: Counter[str] = Counter()
    for preview in previews:
        rows.update(preview.reply_queues)
    probes = broker.queues(sorted(rows))
    gone = [(name, count) for name, count in rows.most_common() if probes[name] is None]
    for name, count in gone[:_NAMED]:
        text = f"{count} rows want replies there, and it has no queue"
        yield Finding(check=NAME, level=Level.WARNING, subject=name, text=text, remedy=_REMEDY)
    if more := gone[_NAMED:]:
        text = f"{len(more)} more of these queues are gone, of {sum(n for _, n in more)} rows"
        yield _finding(Level.WARNING, text, _REMEDY)
    if not gone:
        yield _finding(Level.OK, f"{len(rows)} queues that replies would go to exist")


def _finding(level: Level, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject="replies", text=text, remedy=remedy)
