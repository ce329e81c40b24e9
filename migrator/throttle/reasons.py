"""Why nothing is claimed: every reason of this process in one place, asked before each claim.

Any thread may add, remove or ask for reasons, and none of it waits for a server; what is called
upon a change returns at once; what is claimed already is finished, whatever the reasons.

Source: docs/throttling.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Self

from migrator.nservicebus.timeouts import EndpointName


class Signal(StrEnum):
    """What makes hand-over wait, each with its words. Public: codes are stable."""

    words: str
    """Why nothing new is claimed, for people."""

    def __new__(cls, code: str, words: str) -> Self:
        """Return the member of *code*."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.words = words
        return member

    PAUSED = "paused", "Paused by an operator"
    QUARANTINE = "quarantine_limit", "Too many rows went to quarantine"
    WINDOW = "maintenance_window", "Outside the times at which rows may be moved"
    CHECK = "broker_check", "A check of the broker refuses"
    CLOCK = "database_clock", "The database's clock is in doubt"
    ALARM = "broker_alarm", "The broker raises an alarm"
    LEVEL_DEPTH = "level_depth", "The delay levels are full"
    DESTINATION_DEPTH = "destination_depth", "A destination is full"
    LATENCY = "database_latency", "The database is slow"
    REPLICA_LAG = "replica_lag", "A replica of the database is behind"
    HTTP = "throttle_http", "The throttle URL says no"
    FLAG_FILE = "flag_file", "The flag file exists"
    TIME_ZONE = "time_zone", "Due times are in another time zone"
    REFUSED = "endpoint_refused", "A check of the start refuses the endpoint"
    TABLE = "table_failing", "The table fails or is locked"


PAUSE: Final = "pause"
"""Kind of the event by which the ledger keeps what only an operator resumes."""
LEAVING: Final = (Signal.REFUSED, Signal.TABLE)
"""For these a run to the end leaves the endpoint; what they say is true of its next run as well."""
LASTING: Final = (Signal.PAUSED, Signal.QUARANTINE)
"""What only ``migrator resume`` ends, also after a restart."""


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

    @property
    def facts(self) -> dict[str, object]:
        """Return its form in the log, the ledger and hooks."""
        return {
            "signal": str(self.signal),
            "endpoint": self.endpoint,
            "observed": self.observed,
            "limit": self.limit,
        }


_LEFT_AT_THE_END: Final = (Signal.QUARANTINE, *LEAVING)
"""A run to the end does not wait for them, or not by the throttle."""
Listener = Callable[[PauseReason, bool], None]
"""Called with a reason, and whether it came (True) or went."""


class Throttle:
    """The reasons why nothing is claimed, of one endpoint or of all."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = [*listeners]
        self._lock = threading.RLock()
        self._reasons: dict[tuple[Signal, EndpointName | None], PauseReason] = {}
        self._changes = 0

    def listen(self, *listeners: Listener) -> None:
        """Call *listeners* as well, upon each change from now on."""
        self._listeners += listeners

    def pause(
        self,
        signal: Signal,
        endpoint: EndpointName | None,
        observed: str,
        limit: str = "",
        *,
        since: datetime | None = None,
    ) -> bool:
        """Add a reason, of now, or bring what it says up to date; return whether it is new."""
        now = since or datetime.now(UTC)
        reason = PauseReason(
            signal=signal, endpoint=endpoint, observed=observed, limit=limit, since=now
        )
        with self._lock:
            known = self._reasons.get((signal, endpoint))
            if known is not None:
                self._reasons[signal, endpoint] = replace(reason, since=known.since)
                return False
            self._reasons[signal, endpoint] = reason
            self._tell(reason, began=True)
            return True

    def resume(self, signal: Signal, endpoint: EndpointName | None = None) -> PauseReason | None:
        """Remove one reason and return it; None: there is none."""
        with self._lock:
            found = self._reasons.pop((signal, endpoint), None)
            if found is not None:
                self._tell(found, began=False)
            return found

    def resume_all(self, signal: Signal) -> Sequence[PauseReason]:
        """Remove every reason of *signal*, of whatever endpoint; return them."""
        with self._lock:
            keys = [key for key in self._reasons if key[0] is signal]
            return [found for key in keys if (found := self.resume(*key))]

    def reasons(self) -> Sequence[PauseReason]:
        """Return every reason there is, oldest first."""
        with self._lock:
            return sorted(self._reasons.values(), key=lambda reason: reason.since)

    def reasons_for(self, endpoint: EndpointName | None) -> Sequence[PauseReason]:
        """Return why nothing of *endpoint* is claimed, oldest first; None: of any endpoint."""
        return [reason for reason in self.reasons() if reason.endpoint in (None, endpoint)]

    def reason_for(self, endpoint: EndpointName | None) -> PauseReason | None:
        """Return the oldest of ``reasons_for``; None: there is none."""
        return next(iter(self.reasons_for(endpoint)), None)

    def reason_for_all(self, endpoints: Collection[EndpointName]) -> PauseReason | None:
        """Return why nothing at all is claimed of *endpoints*; None: something may be."""
        found = [self.reason_for(endpoint) for endpoint in endpoints]
        return found[0] if found and all(found) else self.reason_for(None)

    def concerns(self, endpoints: Collection[EndpointName]) -> bool:
        """Return whether anything of *endpoints* waits."""
        return any(self.reason_for(endpoint) for endpoint in (None, *endpoints))

    def delays_the_end(self, endpoints: Collection[EndpointName]) -> bool:
        """Return whether something of *endpoints* waits that a run to the end waits for, too."""
        concerned = (None, *endpoints)
        return any(
            reason.endpoint in concerned and reason.signal not in _LEFT_AT_THE_END
            for reason in self.reasons()
        )

    @property
    def changes(self) -> int:
        """How often a reason came or went; the same number means that nothing changed."""
        return self._changes

    def _tell(self, reason: PauseReason, *, began: bool) -> None:
        self._changes += 1
        for listener in self._listeners:
            listener(reason, began)
