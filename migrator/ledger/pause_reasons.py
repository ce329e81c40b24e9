"""Why nothing new is claimed for a while: each reason with what was seen and what would be fine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

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
class PauseReason:
    """One reason why nothing is claimed; it lasts until it is removed."""

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
