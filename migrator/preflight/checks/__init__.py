"""Preflight: one refusal per file, in name order, so that the first complaint stays the same.

A check is a function of a few parts that yields ``Finding``; it changes nothing. ``run_checks``
turns what a check could not ask into ``NOT_CHECKED``. A new check is one file and one line in
``registry``, or in ``delays`` when it is about the delays alone.
"""

from migrator.preflight.checks.context import (
    DISPATCH,
    FORWARD,
    MIGRATE,
    MOVING,
    Choices,
    Context,
    Satellites,
)
from migrator.preflight.checks.delays import DELAY_CHECKS, DelaysContext, check_delays
from migrator.preflight.checks.frozen_levels import Watch
from migrator.preflight.checks.registry import (
    CHECKS,
    UNREACHABLE,
    find_ways,
    recheck,
    refuse,
    run_checks,
)

__all__ = [
    "CHECKS",
    "DELAY_CHECKS",
    "DISPATCH",
    "FORWARD",
    "MIGRATE",
    "MOVING",
    "UNREACHABLE",
    "Choices",
    "Context",
    "DelaysContext",
    "Satellites",
    "Watch",
    "check_delays",
    "find_ways",
    "recheck",
    "refuse",
    "run_checks",
]
