"""What the settings say, as the plain values that parts take."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from migrator.ledger.work import FaultPoint, no_fault
from migrator.nservicebus.conversion import BrokerLimits
from migrator.nservicebus.timeouts import EndpointName, QueueName
from migrator.stores.due_times import DueTimeRules
from migrator.stores.endpoints import Selection

if TYPE_CHECKING:
    from migrator.config import Settings

FAULT_VARIABLE: Final = "MIGRATOR_FAULT_POINT"
"""``name:hit``: for crash tests, the process kills itself at that step; inert when unset."""


def selection(settings: Settings) -> Selection:
    """Return which rows are to be migrated now."""
    given = settings.handover
    return Selection(cutoff=given.cutoff, horizon=given.horizon)


def broker_limits(settings: Settings) -> BrokerLimits:
    """Return what conversion has to know."""
    return BrokerLimits(
        body_max_bytes=settings.broker.max_message_bytes,
        destination_map=settings.handover.destination_map,
    )


def limits_of(settings: Settings, endpoint: EndpointName) -> BrokerLimits:
    """Return what conversion has to know for rows and messages of *endpoint*."""
    return replace(broker_limits(settings), own_queue=own_queue(settings, endpoint))


def own_queue(settings: Settings, endpoint: EndpointName) -> QueueName:
    """Return the input queue of *endpoint*."""
    return QueueName(settings.endpoint(endpoint).input_queue)


def due_time_rules(settings: Settings) -> DueTimeRules:
    """Return what is said of the due column."""
    given = settings.store
    return DueTimeRules(time_zone=given.time_zone, accepts_shifted=given.accept_shifted_due_times)


def fault_point(setting: str | None = None) -> FaultPoint:
    """Return what to call at each step: nothing, unless *setting* names a step to be killed at.

    ``staged.nacked:3`` kills this process with SIGKILL when it reaches that step the third time.
    Without *setting*, that of the environment counts.
    """
    name, _, hit = (os.environ.get(FAULT_VARIABLE, "") if setting is None else setting).partition(
        ":"
    )
    left = int(hit or 1)

    def reached(step: str) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached if name else no_fault
