"""Is the broker holding all publishers back?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.errors import NotChecked
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "broker-alarms"


def check(broker: BrokerFacts) -> Iterator[Finding]:
    """Warn of memory and disk alarms: nothing can be published while one is in force."""
    alarms = broker.alarms()
    if isinstance(alarms, NotChecked):
        yield Finding(
            check=NAME, level=Level.NOT_CHECKED, subject="resource alarms", text=alarms.reason
        )
        return
    for alarm in alarms:
        yield Finding(
            check=NAME,
            level=Level.WARNING,
            subject="resource alarm",
            text=f"{alarm}: the broker holds all publishers back",
            remedy="free memory or disk on that node; migrator waits meanwhile",
        )
    if not alarms:
        yield Finding(check=NAME, level=Level.OK, subject="resource alarms", text="none in force")
