"""Can the broker be reached, and does it let us in? Two different findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from migrator.errors import AccessRefused, TargetError
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts

NAME: Final = "broker-reachable"


def check(broker: BrokerFacts) -> Iterator[Finding]:
    """Connect as the daemon will."""
    try:
        server = broker.server()
    except AccessRefused as exc:
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject="broker",
            text=f"it answers, but does not let us in: {exc}",
            remedy="check user, password, virtual host and permissions (`migrator broker grants`)",
        )
        return
    except TargetError as exc:
        yield Finding(
            check=NAME,
            level=Level.REFUSED,
            subject="broker",
            text=f"it cannot be reached: {exc}",
            remedy="check broker.url, the network, and whether the broker is running",
        )
        return
    yield Finding(
        check=NAME,
        level=Level.OK,
        subject="broker",
        text=f"{server.product} {server.version_text} answers",
    )
