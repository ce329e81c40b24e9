"""Does a policy change what the queues must do?

A policy beats a queue's own arguments: a blanket ``overflow: drop-head`` silently deleted
messages that were held, and a delivery limit on ``.*`` dead-letters staged messages singly. One
that is as high as ours does no harm, and takes the place of RabbitMQ 4's own limit of 20.
Source: design sections 5.2 and 8 (measured).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from migrator.domain.delays import BITS
from migrator.domain.findings import Finding, Level
from migrator.domain.routing import DelaysVersion, level_name
from migrator.ports import BrokerFacts, NotChecked, Policy

NAME: Final = "policies"
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
"""What our own queues and the endpoints ask for."""


def check(
    broker: BrokerFacts, *, version: DelaysVersion | None, own_queues: Sequence[str]
) -> Iterator[Finding]:
    """Refuse policies that change expiry, limits or dead-lettering of levels or our own queues.

    *version* is None when nothing is to enter the delays.
    """
    levels = [] if version is None else [level_name(version, level) for level in range(BITS)]
    names = [*levels, *own_queues]
    found = broker.policies(names)
    if isinstance(found, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="policies", text=found.reason)
        return
    harmful = _harmful(found)
    for (policy, keys), queues in sorted(harmful.items()):
        more = f" and {len(queues) - 1} more" if len(queues) > 1 else ""
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=f"policy {policy}",
            text=f"it sets {keys} on {queues[0]}{more}",
            remedy="narrow its pattern so that it leaves these queues alone",
        )
    if not harmful:
        yield Finding(
            check=NAME, level=Level.OK, subject="policies", text="none touches the queues we need"
        )


def _harmful(found: Mapping[str, Sequence[Policy]]) -> Mapping[tuple[str, str], Sequence[str]]:
    queues: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for queue in sorted(found):
        for policy in found[queue]:
            keys = ", ".join(sorted(_harmful_keys(policy)))
            if keys:
                queues[policy.name, keys].append(queue)
    return queues


def _harmful_keys(policy: Policy) -> Set[str]:
    found = HARMFUL & policy.definition.keys()
    limit = policy.definition.get(_LIMIT)
    is_high = isinstance(limit, int) and (limit < 0 or limit >= _HIGH_LIMIT)  # below 0: none
    return found - {_LIMIT} if is_high else found
