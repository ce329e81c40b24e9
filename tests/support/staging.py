"""Waiting for what a staging queue delivers."""

from __future__ import annotations

import time
from collections.abc import Callable

from migrator.handover.ports import Staging


def await_staging(staging: Staging, is_so: Callable[[], bool], *, seconds: float = 30.0) -> bool:
    """Serve the connections until *is_so*; return False when it is not in time."""
    ends_s = time.monotonic() + seconds
    while not is_so():
        if (left_s := ends_s - time.monotonic()) <= 0:
            return False
        staging.wait_for_event(left_s)
    return True
