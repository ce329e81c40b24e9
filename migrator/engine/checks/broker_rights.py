"""May we make the queues that staging needs? Asked of the broker, without making any.

Without that right a daemon would claim rows and then begin again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.domain.states import Mode
from migrator.ports import BrokerFacts

NAME: Final = "broker-rights"
_SUBJECT: Final = "broker user"


def check(broker: BrokerFacts, *, mode: Mode, own_queues: Sequence[str]) -> Iterator[Finding]:
    """Refuse ``staged`` for a user who may not configure our own queues."""
    if mode is not Mode.STAGED:
        yield Finding(
            check=NAME,
            level=Level.OK,
            subject=_SUBJECT,
            text=f"mode {mode} makes do with the native exchanges",
        )
        return
    if not own_queues:
        yield Finding(
            check=NAME,
            level=Level.NOT_CHECKED,
            subject=_SUBJECT,
            text="without a ledger, the names of our queues are not known",
        )
        return
    refused = broker.not_configurable(own_queues)
    for name, text in sorted(refused.items()):
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=name,
            text=f"mode staged has to make it, and may not: {text}",
            remedy="let `migrator broker grants` print what the user needs, or use --mode direct",
        )
    if not refused:
        yield Finding(
            check=NAME, level=Level.OK, subject=_SUBJECT, text="it may make the queues we need"
        )
