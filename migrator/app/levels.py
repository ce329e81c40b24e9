"""How the delay levels are reached by what reads the messages in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from migrator.delays.scan import utc_now
from migrator.delays.walk import LevelAccess
from migrator.nservicebus.timeouts import Lane
from migrator.rabbitmq.names import staging_name

if TYPE_CHECKING:
    from migrator.app.broker import Broker
    from migrator.app.ledger import Ledger
    from migrator.config import Settings


def level_access(
    settings: Settings,
    ledger: Ledger,
    broker: Broker,
    *,
    purpose: str,
    now: Callable[[], datetime] = utc_now,
) -> LevelAccess:
    """Return how the levels are reached; *purpose* is what the broker calls the connections.

    Raises:
        ConfigError: No broker is named.
    """

    def staging_queues() -> Sequence[str]:
        lanes = lanes_with_queues(settings, ledger)
        return [staging_name(broker.version, ledger.id, lane) for lane in lanes]

    return LevelAccess(
        connection=broker.connection,
        management=broker.management,
        purpose=purpose,
        staging_queues=staging_queues,
        now=now,
    )


def lanes_with_queues(settings: Settings, ledger: Ledger) -> Sequence[Lane]:
    """Return the lanes that may have a staging queue, ascending."""
    lanes = {status.lane for status in ledger.queries.progress().lanes}
    return sorted(lanes | {Lane(number) for number in range(settings.handover.lanes)})
