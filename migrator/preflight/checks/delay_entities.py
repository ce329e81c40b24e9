"""Are the native delays there, with the arguments they must have? They are never made unasked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "delay-entities"
_SHOWN: Final = 3


def check(broker: BrokerFacts, *, version: DelaysVersion) -> Iterator[Finding]:
    """Refuse when anything is missing or different."""
    report = broker.delay_entities(version)
    if report.missing:
        shown = ", ".join(report.missing[:_SHOWN])
        more = len(report.missing) - _SHOWN
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=f"delays {version}",
            text=f"missing: {shown}" + (f" and {more} more" if more > 0 else ""),
            remedy=f"migrator delays create --delays {version}",
        )
    for name, text in sorted(report.different.items()):
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject=name,
            text=f"it exists with other arguments: {text}",
            remedy="find out who made it; it must be deleted and made again while empty",
        )
    if report.not_checked:
        more = len(report.not_checked) - 1
        yield Finding(
            check=NAME,
            level=Level.NOT_CHECKED,
            subject=f"delays {version}",
            text=report.not_checked[0].reason + (f"; and {more} more" if more else ""),
        )
    if not (report.missing or report.different or report.not_checked):
        yield Finding(
            check=NAME,
            level=Level.OK,
            subject=f"delays {version}",
            text="complete, as they must be",
        )
