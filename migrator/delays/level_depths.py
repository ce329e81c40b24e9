"""What waits in the delay levels: from the management API, else what AMQP tells anybody.

Looking takes no message out and creates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import Ladder, Step, build_ladder
from migrator.delays.routing import DelaysVersion, level_name
from migrator.errors import TargetError
from migrator.nservicebus.timeouts import BITS
from migrator.rabbitmq.connection import ConnectionSettings
from migrator.rabbitmq.entities import QueueFacts, QueueState
from migrator.rabbitmq.server import find_queues

if TYPE_CHECKING:  # not every broker has the API, and its client is slow to import
    from migrator.rabbitmq.management import ManagementApi

_NO_API: Final = "only the management API tells; set broker.management_url"
_YOUNG: Final = "some levels are so new that the broker has no counts yet"


def read_ladder(
    settings: ConnectionSettings, management: ManagementApi | None, version: DelaysVersion
) -> Ladder:
    """Return every level with what is known of it; without the API that is only what is ready.

    The API's counts lag by some seconds.

    Raises:
        TargetUnavailable, AccessRefused: The broker cannot be asked.
    """
    names = {level_name(version, level): level for level in range(BITS)}
    if management is None:
        return build_ladder(version, _plain(settings, names), gap=_NO_API)
    try:
        told = level_queues(management, version)
    except TargetError as exc:
        return build_ladder(version, _plain(settings, names), gap=str(exc))
    steps = {names[queue.name]: _told(names[queue.name], queue) for queue in told if queue.is_told}
    young = {queue.name: names[queue.name] for queue in told if not queue.is_told}
    if young:
        steps |= {step.level: step for step in _plain(settings, young)}
    return build_ladder(version, steps.values(), gap=_YOUNG if young else "")


def level_queues(management: ManagementApi, version: DelaysVersion) -> Sequence[QueueState]:
    """Return the level queues that exist, as the management API tells them.

    Raises:
        TargetError: It does not answer, or refuses.
    """
    names = {level_name(version, level) for level in range(BITS)}
    pattern = "^" + re.escape(level_name(version, 0)[:-2]) + "[0-9]{2}$"
    return [queue for queue in management.queues(pattern) if queue.name in names]


def _told(level: int, queue: QueueState) -> Step:
    return Step(
        level=level,
        ready=queue.ready,
        unacknowledged=queue.unacked,
        held=queue.held_back,
        consumers=queue.consumers,
    )


def _plain(settings: ConnectionSettings, names: dict[str, int]) -> Iterable[Step]:
    found = find_queues(settings, names)
    return [_counted(level, found[name]) for name, level in names.items()]


def _counted(level: int, queue: QueueFacts | None) -> Step:
    if queue is None:
        return Step(level=level, exists=False)
    return Step(level=level, ready=queue.ready, consumers=queue.consumers)
