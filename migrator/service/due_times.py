"""Nothing of an endpoint is claimed before its due times are known to be read in the right zone.

The start looks as well, and refuses; this is for rows that came later. Rules of this file:

* an endpoint is looked at before its first claim, and now and then after that;
* what would refuse the start holds the endpoint, and no other, until it is gone;
* as long as no row could tell, each claim is preceded by a look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from migrator.ledger.pause_reasons import Hold, Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.gate import Gate
from migrator.stores.due_times import DueTimeReading

AGAIN_S: Final = 600.0
HELD_AGAIN_S: Final = 15.0


class DueTimeGuard:
    """What lanes ask before each claim."""

    def __init__(
        self,
        endpoints: Mapping[EndpointName, StoreEndpoint],
        *,
        look: Callable[[StoreEndpoint], DueTimeReading],
        gate: Gate,
        now_s: Callable[[], float],
    ) -> None:
        """Have *look* read rows of *endpoints*, and hold them at *gate*; *now_s* is monotonic."""
        self._endpoints = endpoints
        self._look = look
        self._gate = gate
        self._now_s = now_s
        self._next_s: dict[EndpointName, float] = {}
        self._lock = threading.Lock()

    def holds(self, endpoint: EndpointName) -> bool:
        """Return whether nothing of *endpoint* may be claimed, for whatever reason.

        Raises:
            StoreUnavailable, StoreError: The rows cannot be read.
        """
        with self._lock:
            if self._now_s() >= self._next_s.get(endpoint, float("-inf")):
                self._look_at(endpoint)
        return self._gate.hold_for(endpoint) is not None

    def _look_at(self, endpoint: EndpointName) -> None:
        reading = self._look(self._endpoints[endpoint])
        if reading.is_refused:
            hold = Hold(
                signal=Signal.TIME_ZONE,
                endpoint=endpoint,
                observed=reading.text,
                limit=reading.remedy,
                since=datetime.now(UTC),
            )
            self._gate.hold(hold)
        else:
            self._gate.lift(Signal.TIME_ZONE, endpoint)
        wait_s = HELD_AGAIN_S if reading.is_refused else AGAIN_S
        self._next_s[endpoint] = self._now_s() + (wait_s if reading.comparable else 0.0)
