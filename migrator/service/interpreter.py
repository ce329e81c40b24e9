"""How a daemon has Python run: a few threads that wait, and many values that are soon gone."""

from __future__ import annotations

import gc
import sys
from typing import Final

_SWITCH_S: Final = 0.001
"""A lane that talks to the broker must not wait 5 ms, Python's default, whenever the thread that
converts the next batch is busy; measured in benchmarks/handover.py."""
_GC_THRESHOLDS: Final = (20_000, 20, 20)
"""Rows make no cycles; looking for some every 700 values is in vain."""


def tune() -> None:
    """Fit the interpreter to a few threads and many short-lived values (a tenth of the speed)."""
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
