"""What codes of a running daemon mean, in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from migrator.ledger.pause_reasons import Signal

SIGNALS: Final[Mapping[Signal, str]] = {
    Signal.PAUSED: "Paused by an operator",
    Signal.WINDOW: "Not the time at which rows may be moved",
    Signal.CLOCK: "The clock of the database jumped",
    Signal.ALARM: "The broker raises an alarm",
    Signal.LEVEL_DEPTH: "The delay levels are full",
    Signal.DESTINATION_DEPTH: "A destination is full",
    Signal.LATENCY: "The database is slow",
    Signal.REPLICA_LAG: "A replica of the database is behind",
    Signal.CHECK: "A check of the broker refuses",
    Signal.VETO: "The veto address says no",
    Signal.TOUCH_FILE: "A file says so",
    Signal.TIME_ZONE: "Due times are of another time zone",
}
"""Why nothing new is claimed."""

MODES: Final[Mapping[str, str]] = {
    "migrate": "moved into the broker's delays",
    "dispatch": "sent when due",
    "forward": "passed on, and moved",
}
"""What becomes of an endpoint's timeouts, by its mode."""
