"""Do messages hang in a level because their target is missing?

Version 2 tries again for ever; once 32 hang, others behind them hang as well. One look cannot
tell them from messages that are just being passed on, so this check warns and never refuses.
Source: reference ``native-delays.md`` section 5.3 (measured).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.delays.depths import FREEZING
from migrator.delays.routing import DelaysVersion, level_name
from migrator.errors import NotChecked
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "stuck-levels"


def check(broker: BrokerFacts, *, version: DelaysVersion) -> Iterator[Finding]:
    """Warn of messages that are not passed on, above all where they may block a level."""
    stuck = broker.stuck(version)
    if isinstance(stuck, NotChecked):
        yield Finding(check=NAME, level=Level.NOT_CHECKED, subject="levels", text=stuck.reason)
        return
    for level, count in sorted(stuck.items()):
        may_freeze = count >= FREEZING
        yield Finding(
            check=NAME,
            level=Level.WARNING,
            subject=level_name(version, level),
            text=f"{count} expired messages are not passed on yet"
            + ("; if they stay, the level stands still for every endpoint" if may_freeze else ""),
            remedy="migrator delays verify: it looks again, and names the missing destination",
        )
    if not stuck:
        yield Finding(check=NAME, level=Level.OK, subject="levels", text="nothing hangs in them")
