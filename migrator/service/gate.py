"""Why nothing is claimed: all holds of this process in one place, asked by lanes before a claim.

Rules of this file: any thread may hold, lift or ask, and none of it waits for a server; whoever
is told of a change returns at once. What is claimed already is finished, whatever holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from migrator.ledger.pause_reasons import Hold, Signal
from migrator.nservicebus.timeouts import EndpointName

Tell = Callable[[Hold, bool], None]
"""Called with a hold, and whether it began (True) or ended."""


class Gate:
    """Holds hand-over back, of one endpoint or of all, for as long as there is a reason."""

    def __init__(self, tell: Tell = lambda _hold, _began: None) -> None:
        """Hold nothing yet; *tell* each change, in order, in the thread that makes it."""
        self._tell = tell
        self._lock = threading.RLock()
        self._holds: dict[tuple[Signal, EndpointName | None], Hold] = {}
        self._changes = 0

    def hold(self, hold: Hold) -> bool:
        """Add *hold*, or bring what it says up to date; return whether it is new."""
        key = (hold.signal, hold.endpoint)
        with self._lock:
            known = self._holds.get(key)
            if known is not None:
                self._holds[key] = replace(hold, since=known.since)
                return False
            self._holds[key] = hold
            self._changes += 1
            self._tell(hold, True)
            return True

    def lift(self, signal: Signal, endpoint: EndpointName | None = None) -> Hold | None:
        """Remove one hold and return it; None: there is none."""
        with self._lock:
            found = self._holds.pop((signal, endpoint), None)
            if found is not None:
                self._changes += 1
                self._tell(found, False)
            return found

    def lift_all(self, signal: Signal) -> Sequence[Hold]:
        """Remove every hold of *signal*, of whatever endpoint; return them."""
        with self._lock:
            keys = [key for key in self._holds if key[0] is signal]
            return [found for key in keys if (found := self.lift(*key))]

    def holds(self) -> Sequence[Hold]:
        """Return every hold there is, oldest first."""
        with self._lock:
            return sorted(self._holds.values(), key=lambda hold: hold.since)

    def holds_for(self, endpoint: EndpointName | None) -> Sequence[Hold]:
        """Return why nothing of *endpoint* is claimed, oldest first; None: of any endpoint."""
        return [hold for hold in self.holds() if hold.endpoint in (None, endpoint)]

    def hold_for(self, endpoint: EndpointName | None) -> Hold | None:
        """Return the oldest of ``holds_for``; None: claims are welcome."""
        return next(iter(self.holds_for(endpoint)), None)

    def reason(self, endpoints: Collection[EndpointName]) -> Hold | None:
        """Return why nothing at all is claimed of *endpoints*; None: something may be."""
        found = [self.hold_for(endpoint) for endpoint in endpoints]
        return found[0] if found and all(found) else self.hold_for(None)

    def concerns(self, endpoints: Collection[EndpointName]) -> bool:
        """Return whether anything of *endpoints* is held back."""
        return any(self.hold_for(endpoint) for endpoint in endpoints) or bool(self.hold_for(None))

    @property
    def changes(self) -> int:
        """How often anything was held or lifted; the same number means that nothing changed."""
        return self._changes
