"""Does a policy change what the queues must do?

A policy beats a queue's own arguments: a blanket ``overflow: drop-head`` silently deleted
messages that were held, and a delivery limit on ``.*`` dead-letters staged messages singly. One
that is as high as ours does no harm, and takes the place of RabbitMQ 4's own limit of 20.
An alternate exchange takes what an exchange cannot route: the broker confirms such a message, and
it is in somebody's queue instead of being returned.
Source: design sections 5.2 and 8 (measured).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from migrator.delays.routing import DelaysVersion, delivery_exchange, level_name
from migrator.errors import NotChecked
from migrator.nservicebus.timeouts import BITS
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts, Policy

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


_REMEDY: Final = "narrow its pattern so that it leaves these queues alone"


def check(
    broker: BrokerFacts,
    *,
    version: DelaysVersion | None,
    own_queues: Sequence[str],
    own_exchanges: Sequence[str] = (),
) -> Iterator[Finding]:
    """Refuse what changes expiry, limits or dead-lettering of levels or our own queues.

    And what diverts messages that an exchange of the delays, or our own, cannot route. *version*
    is None when nothing is to enter the delays.
    """
    levels = [] if version is None else [level_name(version, level) for level in range(BITS)]
    names = [*levels, *own_queues]
    found = broker.policies(names)
    if isinstance(found, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="policies", text=found.reason)
        return
    harmful = _harmful(found)
    for (policy, keys), queues in sorted(harmful.items()):
        text = f"it sets {keys} on {_listed(queues)}"
        yield _refused(f"policy {policy}", text, _REMEDY)
    delivery = [] if version is None else [delivery_exchange(version)]
    diverting = broker.diverting([*levels, *delivery, *own_exchanges])
    if isinstance(diverting, NotChecked):
        text = f"alternate exchanges: {diverting.reason}"
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="policies", text=text)
        return
    yield from _diverted(diverting)
    if not harmful and not diverting:
        text = "none touches the queues and exchanges we need"
        yield Finding(check=NAME, level=Level.OK, subject="policies", text=text)


def _diverted(diverting: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    exchanges: defaultdict[str, list[str]] = defaultdict(list)
    for exchange in sorted(diverting):
        for why in diverting[exchange]:
            exchanges[why].append(exchange)
    for why, names in sorted(exchanges.items()):
        text = (
            f"by {why}, what {_listed(names)} cannot route goes to an alternate exchange: it would "
            "count as handed over, and be in somebody's queue"
        )
        yield _refused("alternate-exchange", text, "take it away from these exchanges")


def _refused(subject: str, text: str, remedy: str) -> Finding:
    return Finding(check=NAME, level=Level.REFUSED, subject=subject, text=text, remedy=remedy)


def _listed(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


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
