"""Whether rows may be claimed now: asked before each claim, for all lanes of a process.

Source: docs/throttling.md.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from migrator.ledger.work import Clock, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.due_times import DueTimeReader
from migrator.text import counted, grouped
from migrator.throttle.reasons import Signal, Throttle

AGAIN_S: Final = 600.0
REFUSED_AGAIN_S: Final = 15.0
QUARANTINE_LIMIT: Final = "handover.max_quarantined, or 1 % if that is more"
QUARANTINED_FRACTION: Final = 0.01
"""Of the rows claimed, so many may always go to quarantine."""


class QuarantineLimit:
    """Tells when so many rows of an endpoint were bad that no more of it should be claimed.

    A few bad rows are quarantined and the rest goes on; when one after the other is bad, the cause
    is more likely a setting, and each of them would have to be tried again by hand. Shared by all
    lanes of a process. Rows that are parked do not count.
    """

    def __init__(self, rows: int, endpoints: Collection[EndpointName]) -> None:
        self._rows = rows
        self._endpoints = endpoints if rows else ()
        self._lock = threading.Lock()
        self._claimed = Counter[EndpointName]()
        self._quarantined = Counter[EndpointName]()

    def count(self, endpoint: EndpointName, *, claimed: int, quarantined: int) -> None:
        """Count the rows of a batch that was claimed just now."""
        with self._lock:
            self._claimed[endpoint] += claimed
            self._quarantined[endpoint] += quarantined

    def take_passed(self, endpoint: EndpointName) -> str | None:
        """Return what passed the limit of *endpoint*, and count anew from now on; None: nothing."""
        with self._lock:
            claimed, quarantined = self._claimed[endpoint], self._quarantined[endpoint]
            if endpoint not in self._endpoints or quarantined <= self._limit(claimed):
                return None
            del self._claimed[endpoint], self._quarantined[endpoint]
        return f"{grouped(quarantined)} of {counted(claimed, 'claimed row')} went to quarantine"

    def _limit(self, claimed: int) -> float:
        return max(self._rows, claimed * QUARANTINED_FRACTION)


@dataclass(eq=False)
class ClaimGuard:
    """Answers before each claim whether it may be made.

    Nothing of an endpoint is claimed before its due times are known to be read in the right zone.
    The start checks them as well, and refuses; this is for rows that came later:

    * an endpoint is checked before its first claim, and at intervals after that;
    * what would refuse the start pauses the endpoint, and no other, until it is gone;
    * as long as no row proves the zone, each claim is preceded by a check.
    """

    throttle: Throttle
    draining: threading.Event
    """Set once nothing more is to be claimed."""
    endpoints: Collection[StoreEndpoint]
    due_times: DueTimeReader
    clock: Clock
    quarantine_limit: QuarantineLimit
    """What passes it pauses the endpoint until an operator resumes it."""

    def __post_init__(self) -> None:
        self._by_name = {endpoint.name: endpoint for endpoint in self.endpoints}
        self._next_s: dict[EndpointName, float] = {}

    def admit(self, endpoint: EndpointName) -> bool:
        """Check *endpoint* before a claim, and pause it if need be; return whether to claim.

        Raises:
            StoreUnavailable, StoreError: The rows of *endpoint* cannot be read.
        """
        if self.draining.is_set():
            return False
        # without a lock: two lanes may read the same sample, but none waits for another's
        if self.clock.monotonic_s() >= self._next_s.get(endpoint, float("-inf")):
            self._check_due_times(endpoint)
        if (passed := self.quarantine_limit.take_passed(endpoint)) is not None:
            self.throttle.pause(Signal.QUARANTINE, endpoint, passed, QUARANTINE_LIMIT)
        return self.may_claim(endpoint)

    def may_claim(self, endpoint: EndpointName | None = None) -> bool:
        """Return whether rows of *endpoint* may be claimed now; None: rows of any at all."""
        if self.draining.is_set():
            return False
        # lanes leave out a table that fails, and a job asks it
        reasons = self.throttle.reasons_for(endpoint)
        return all(each.signal is Signal.TABLE for each in reasons)

    def _check_due_times(self, endpoint: EndpointName) -> None:
        reading = self.due_times.read(self._by_name[endpoint])
        if reading.is_refused:
            self.throttle.pause(Signal.TIME_ZONE, endpoint, reading.text, reading.remedy)
        else:
            self.throttle.resume(Signal.TIME_ZONE, endpoint)
        wait_s = REFUSED_AGAIN_S if reading.is_refused else AGAIN_S
        self._next_s[endpoint] = self.clock.monotonic_s() + (wait_s if reading.comparable else 0.0)
