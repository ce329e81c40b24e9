"""Do messages hang in a level because their target is missing?

Version 2 tries again for ever; from 32 on, others behind them hang as well.
Source: reference ``native-delays.md`` section 5.3 (measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.domain.findings import Finding, Level
from migrator.domain.routing import DelaysVersion, level_name
from migrator.ports import BrokerFacts, NotChecked

NAME: Final = "stuck-levels"
FREEZING: Final = 32
"""Messages: the prefetch of the broker's own dead-letter worker."""


def check(broker: BrokerFacts, *, version: DelaysVersion) -> Iterator[Finding]:
    """Warn of messages that hang; refuse where a level stands still for everyone."""
    stuck = broker.stuck(version)
    if isinstance(stuck, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="levels", text=stuck.reason)
        return
    for level, count in sorted(stuck.items()):
        is_frozen = count >= FREEZING
        yield Finding(
            check=NAME,
            level=Level.REFUSED if is_frozen else Level.WARNING,
            subject=level_name(version, level),
            text=f"{count} expired messages have no target"
            + ("; the level stands still for every endpoint" if is_frozen else ""),
            remedy="find and bind the missing destination",
        )
    if not stuck:
        yield Finding(check=NAME, level=Level.OK, subject="levels", text="nothing hangs in them")
