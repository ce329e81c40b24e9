"""The steps at which a crash test kills this process."""

from __future__ import annotations

import os
import signal
from typing import Final

from migrator.ledger.work import FaultPoint

FAULT_VARIABLE: Final = "MIGRATOR_FAULT_POINT"
"""``name:hit``: for crash tests, the process kills itself at that step; inert when unset."""


def fault_point(setting: str) -> FaultPoint:
    """Return what to call at each step: nothing, unless *setting* names a step to be killed at.

    ``staged.nacked:3`` kills this process with SIGKILL when it reaches that step the third time.
    """
    name, _, hit = setting.partition(":")
    if not name:
        return lambda _reached: None
    left = int(hit or 1)

    def reached(step: str) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return reached
