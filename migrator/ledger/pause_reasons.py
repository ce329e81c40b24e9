"""Why nothing new is claimed for a while: each reason with what was seen and what would be fine.

Rules of this file: pure, time is an argument; a limit that is not set never holds anything; what
could not be measured for too long holds as well, because nobody knows. Source: docs/throttling.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from migrator.nservicebus.timeouts import EndpointName


class Signal(StrEnum):
    """What makes hand-over wait. Public: codes are stable."""

    PAUSED = "paused"
    """An operator said so."""
    WINDOW = "maintenance_window"
    """It is not the time of day, or week, in which rows may be moved."""
    CHECK = "broker_check"
    """A check of the broker would refuse the start now."""
    CLOCK = "database_clock"
    """The database's clock jumped, and nobody knows yet which time is right."""
    ALARM = "broker_alarm"
    """Memory or disk of the broker."""
    LEVEL_DEPTH = "level_depth"
    """The delay levels hold too many messages."""
    DESTINATION_DEPTH = "destination_depth"
    """A destination's queue holds too many messages."""
    LATENCY = "database_latency"
    """The database answers slowly, or the legacy table is locked."""
    REPLICA_LAG = "replica_lag"
    """A replica of the database is behind."""
    VETO = "veto"
    """The address that is asked first said no, or did not answer."""
    TOUCH_FILE = "touch_file"
    """A file exists that says so."""
    TIME_ZONE = "time_zone"
    """Due times of the endpoint are of another zone than they are read in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One reason why nothing is claimed; it lasts until it is lifted."""

    signal: Signal
    endpoint: EndpointName | None
    """None: it concerns every endpoint."""
    observed: str
    """What was seen: ``memory alarm on rabbit@a``, ``1 200 000 messages`` …"""
    limit: str
    """What would be fine: ``at most 1 000 000`` …; empty where there is no such thing."""
    since: datetime
    """Aware, UTC."""

    @property
    def text(self) -> str:
        """Return the reason in one line."""
        what = f"{self.signal}: {self.observed}"
        return f"{what} ({self.limit})" if self.limit else what


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """When a measured value holds hand-over, and when it no longer does."""

    hold_above: float
    resume_below: float
    """At most ``hold_above``: the gap keeps hand-over from starting and stopping all the time."""
    stale_after_s: float
    """A sample older than this is not believed any more."""


RESUME_SHARE: Final = 0.8
"""Of a limit: what is at most so much of it no longer holds."""


def limit_of(most: float, *, stale_after_s: float) -> Limit:
    """Return the limit that holds above *most*, until it is a good deal lower."""
    return Limit(hold_above=most, resume_below=most * RESUME_SHARE, stale_after_s=stale_after_s)


class Gauge:
    """One measured value against its limit, with memory of whether it holds."""

    def __init__(self, limit: Limit, *, began_s: float) -> None:
        """Begin without a sample; that is not stale before ``stale_after_s`` have passed."""
        self._limit = limit
        self._value: float | None = None
        self._at_s = began_s
        self._is_holding = False

    def take(self, value: float, *, at_s: float) -> None:
        """Remember a sample, taken at monotonic second *at_s*."""
        self._value, self._at_s = value, at_s
        if value > self._limit.hold_above:
            self._is_holding = True
        elif value <= self._limit.resume_below:
            self._is_holding = False

    @property
    def value(self) -> float | None:
        """The latest sample; None before the first."""
        return self._value

    def is_stale(self, *, now_s: float) -> bool:
        """Return whether the latest sample is too old to be believed."""
        return now_s - self._at_s > self._limit.stale_after_s

    def holds(self, *, now_s: float) -> bool:
        """Return whether hand-over has to wait: too high, not yet low enough, or not known."""
        return self._is_holding or self.is_stale(now_s=now_s)
