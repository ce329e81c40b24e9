"""Does one bound name catch the messages of another?

``#.Sales`` also matches keys that end in ``.My.Sales``: both queues get the message, whoever
sends it. Source: reference ``native-delays.md`` section 5.1 (measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.delays.routing import DelaysVersion, delivery_exchange, suffix_collisions
from migrator.errors import NotChecked
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "bound-names"


def check(broker: BrokerFacts, *, version: DelaysVersion, is_accepted: bool) -> Iterator[Finding]:
    """Refuse pairs of bound names of which one is a suffix of the other, unless accepted."""
    bound = broker.bound_names(version)
    if isinstance(bound, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="bindings", text=bound.reason)
        return
    pairs = suffix_collisions(bound)
    for catcher, caught in pairs:
        yield Finding(
            check=NAME,
            level=Level.WARNING if is_accepted else Level.REFUSED,
            subject=caught,
            text=f"delayed messages for it also reach {catcher}",
            remedy=f"give one of the two another name; if nobody delays messages to {catcher}, "
            f"remove the binding #.{catcher} of exchange {delivery_exchange(version)}",
        )
    if not pairs:
        text = f"none of {len(bound)} is a suffix of another"
        yield Finding(check=NAME, level=Level.OK, subject="bound names", text=text)
