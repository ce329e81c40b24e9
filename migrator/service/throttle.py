"""Why nothing is claimed: every reason of this process in one place, asked before each claim.

``Throttle`` knows the reasons, ``ClaimGuard`` answers "may this be claimed now?" for all workers;
``throttle_signals`` adds and removes reasons. Any thread may add, remove or ask for them, and none
of it waits for a server; what is called upon a change returns at once; what is claimed already is
finished, whatever the reasons.

Source: docs/throttling.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from migrator.errors import LimitPassed
from migrator.handover.prepare import QuarantineLimit
from migrator.ledger.report import LEAVING, PauseReason, Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.audit_log import AuditLog
from migrator.service.worker import Stop
from migrator.stores.due_times import DueTimeReading

_log = logging.getLogger(__name__)

BEGAN: Final = "hold_began"
ENDED: Final = "hold_ended"
CRITICAL: Final = "critical_load"

_LEFT_AT_THE_END: Final = (Signal.QUARANTINE, *LEAVING)
"""A run to the end does not wait for them, or not by the throttle."""
QUARANTINE_LIMIT: Final = "handover.max_quarantined, or 1 % if that is more"
AGAIN_S: Final = 600.0
REFUSED_AGAIN_S: Final = 15.0

Listener = Callable[[PauseReason, bool], None]
"""Called with a reason, and whether it came (True) or went."""


class Throttle:
    """The reasons why nothing is claimed, of one endpoint or of all."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self._lock = threading.RLock()
        self._reasons: dict[tuple[Signal, EndpointName | None], PauseReason] = {}
        self._changes = 0

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


@dataclass(eq=False)
class ClaimGuard:
    """Answers before each claim whether it may be made.

    Nothing of an endpoint is claimed before its due times are known to be read in the right zone.
    The start looks as well, and refuses; this is for rows that came later:

    * an endpoint is looked at before its first claim, and now and then after that;
    * what would refuse the start pauses the endpoint, and no other, until it is gone;
    * as long as no row could tell, each claim is preceded by a look.
    """

    throttle: Throttle
    stop: Stop
    endpoints: Collection[StoreEndpoint]
    read_due_times: Callable[[StoreEndpoint], DueTimeReading]
    """Reads rows of one endpoint."""
    quarantine_limit: QuarantineLimit
    """What passes it pauses the endpoint until an operator resumes it."""
    now_s: Callable[[], float] = time.monotonic
    """Monotonic."""

    def __post_init__(self) -> None:
        self._by_name = {endpoint.name: endpoint for endpoint in self.endpoints}
        self._next_s: dict[EndpointName, float] = {}

    def admit(self, endpoint: EndpointName) -> bool:
        """Check *endpoint* before a claim, and pause it if need be; return whether to claim.

        Raises:
            StoreUnavailable, StoreError: The rows of *endpoint* cannot be read.
        """
        if self.stop.draining.is_set():
            return False
        # without a lock: two lanes may read the same sample, but none waits for another's
        if self.now_s() >= self._next_s.get(endpoint, float("-inf")):
            self._look_at_due_times(endpoint)
        if (passed := self.quarantine_limit.take_passed(endpoint)) is not None:
            self.throttle.pause(Signal.QUARANTINE, endpoint, passed, QUARANTINE_LIMIT)
        return self.may_claim(endpoint)

    def may_claim(self, endpoint: EndpointName | None = None) -> bool:
        """Return whether rows of *endpoint* may be claimed now; None: rows of any at all."""
        if self.stop.draining.is_set():
            return False
        # a table that fails is left out by whoever claims, and asked by a job
        reasons = self.throttle.reasons_for(endpoint)
        return all(each.signal is Signal.TABLE for each in reasons)

    def _look_at_due_times(self, endpoint: EndpointName) -> None:
        reading = self.read_due_times(self._by_name[endpoint])
        if reading.is_refused:
            self.throttle.pause(Signal.TIME_ZONE, endpoint, reading.text, reading.remedy)
        else:
            self.throttle.resume(Signal.TIME_ZONE, endpoint)
        wait_s = REFUSED_AGAIN_S if reading.is_refused else AGAIN_S
        self._next_s[endpoint] = self.now_s() + (wait_s if reading.comparable else 0.0)


def log_pauses(audit_log: AuditLog) -> Listener:
    """Return a listener that logs each change, and has the ledger note it."""

    def listener(reason: PauseReason, began: bool) -> None:
        facts = reason.facts
        if began:
            _log.warning("nothing new is claimed", extra={"action": BEGAN, **facts})
        else:
            held_s = (datetime.now(UTC) - reason.since).total_seconds()
            facts["held_s"] = round(max(held_s, 0.0), 1)
            _log.info("a reason to wait has ended", extra={"action": ENDED, **facts})
        audit_log.note(BEGAN if began else ENDED, facts)

    return listener


def end_for_critical_load(stop: Stop, audit_log: AuditLog, text: str) -> None:
    """End the process because a critical limit was passed; only the first time counts."""
    with stop.lock:
        if stop.reason is not None or stop.draining.is_set():
            return
        stop.reason = LimitPassed(
            f"{text}; claimed batches are finished, and nothing more is claimed; fix the cause "
            "and start the daemon again"
        )
        _log.error("a critical limit was passed", extra={"action": CRITICAL, "reason": text})
        audit_log.note(CRITICAL, {"reason": text})
        stop.draining.set()
