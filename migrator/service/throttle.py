"""Why nothing is claimed: every reason of this process in one place, asked before each claim.

``Throttle`` knows the reasons, ``ClaimGuard`` answers "may this be claimed now?" for all workers.
A ``SignalThrottle`` adds and removes reasons by looking at one of ``throttle_signals`` again and
again. Rules of this file:

* any thread may add, remove or ask for reasons, and none of it waits for a server; what is called
  upon a change returns at once; what is claimed already is finished, whatever the reasons;
* a look may take long, or never return, because it has a thread of its own; what it saw is
  believed for a while, and after that hand-over waits, because nobody knows;
* a value above its limit is a reason until it is a good deal lower.

Source: docs/throttling.md.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from migrator.errors import LimitPassed, MigratorError
from migrator.ledger.report import PauseReason, Signal
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.audit_log import AuditLog
from migrator.service.schedule import BackgroundTask, Job
from migrator.service.worker import Stop
from migrator.stores.due_times import DueTimeReading

_log = logging.getLogger(__name__)

BEGAN: Final = "hold_began"
ENDED: Final = "hold_ended"
CRITICAL: Final = "panic"

RESUME_SHARE: Final = 0.8
"""Of a limit: what is at most so much of it is no reason any more."""
AGAIN_S: Final = 600.0
REFUSED_AGAIN_S: Final = 15.0
_TICK: Final = timedelta(milliseconds=250)
_FIRST_S: Final = 3.0
"""How long the start waits for the first look at each signal; a slower one pauses later."""

Listener = Callable[[PauseReason, bool], None]
"""Called with a reason, and whether it came (True) or went."""


class Throttle:
    """The reasons why nothing is claimed, of one endpoint or of all."""

    def __init__(self, *listeners: Listener) -> None:
        """Tell *listeners* each change, in order, in the thread that makes it."""
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
    now_s: Callable[[], float] = time.monotonic
    """Monotonic."""

    def __post_init__(self) -> None:
        """Have looked at nothing."""
        self._by_name = {endpoint.name: endpoint for endpoint in self.endpoints}
        self._next_s: dict[EndpointName, float] = {}
        self._lock = threading.Lock()

    def may_claim(self, endpoint: EndpointName | None = None) -> bool:
        """Return whether rows of *endpoint* may be claimed now; None: rows of any at all.

        Raises:
            StoreUnavailable, StoreError: The rows of *endpoint* cannot be read.
        """
        if self.stop.draining.is_set():
            return False
        if endpoint is not None:
            with self._lock:
                if self.now_s() >= self._next_s.get(endpoint, float("-inf")):
                    self._look_at_due_times(endpoint)
        return self.throttle.reason_for(endpoint) is None

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
            _log.info("a reason to wait is gone", extra={"action": ENDED, **facts})
        audit_log.note(BEGAN if began else ENDED, facts)

    return listener


def end_for_critical_load(stop: Stop, audit_log: AuditLog, text: str) -> None:
    """End the process because a critical limit was passed; only the first time counts."""
    with stop.lock:
        if stop.reason is not None or stop.draining.is_set():
            return
        stop.reason = LimitPassed(
            f"{text}; what was claimed is finished, nothing more is; put it right and start the "
            "daemon again"
        )
        _log.error("a panic limit was passed", extra={"action": CRITICAL, "reason": text})
        audit_log.note(CRITICAL, {"reason": text})
        stop.draining.set()


# ── signals that are looked at again and again ──────────────────────────────────────────────────

Whom = EndpointName | None
"""One endpoint; None: all of them."""


class Verdict(NamedTuple):
    """A no, with what was seen."""

    observed: str
    limit: str = ""


Look = Callable[[], Mapping[Whom, Verdict]]
"""Looks once, however long that takes, and says who has to wait; nobody: empty."""


class Sample(NamedTuple):
    """A measured value."""

    value: float
    """Infinite: it cannot be measured for this one endpoint, which is no critical load."""
    text: str
    """As people read it: ``Billing: 120000 messages``."""


def threshold(
    signal: Signal,
    measure: Callable[[], Mapping[Whom, Sample]],
    limits: tuple[float, float],
    critical: Callable[[str], None],
    *,
    show: Callable[[float], str] = "{:.0f}".format,
) -> Look:
    """Return a look at values, of single endpoints or of all, and at two limits; 0: there is none.

    One that is over the first limit counts until it is a good deal lower, so that hand-over does
    not start and stop all the time. Over the second, *critical* is called.
    """
    most, critical_above = limits
    over: Set[Whom] = frozenset()

    def look() -> Mapping[Whom, Verdict]:
        nonlocal over
        found = measure()
        for sample in found.values():
            if critical_above and critical_above < sample.value < math.inf:
                limit = show(critical_above)
                critical(f"{signal}: {sample.text}, and {limit} is where the daemon gives up")
        if not most:
            return {}
        limits = {whom: most * (RESUME_SHARE if whom in over else 1) for whom in found}
        over = {whom for whom, sample in found.items() if sample.value > limits[whom]}
        return {whom: Verdict(found[whom].text, f"at most {show(most)}") for whom in over}

    return look


@dataclass(eq=False)
class SignalThrottle:
    """Looks at one signal at intervals, and pauses when the last success is too old."""

    signal: Signal
    throttle: Throttle
    look: Look
    every_s: float
    stale_after_s: float
    close: Callable[[], None] = lambda: None
    """Ends what *look* needs."""

    def __post_init__(self) -> None:
        """Look at nothing yet."""
        self._next_s = float("-inf")
        self._seen_s = time.monotonic()
        self._error = "no answer yet"
        self._is_over = False
        self.task = BackgroundTask(f"throttle-{self.signal}", self._look)

    def tick(self, now_s: float) -> None:
        """Look again when it is time, at monotonic second *now_s*; returns at once."""
        if now_s >= self._next_s and self.task.run_soon():
            self._next_s = now_s + self.every_s
        age_s = now_s - self._seen_s
        if age_s > self.stale_after_s:
            limit = f"not to be older than {self.stale_after_s:g} s"
            self._pause(None, Verdict(f"not known for {age_s:.0f} s: {self._error}", limit))

    def end(self) -> None:
        """Stop looking, and close what was needed for it; what is paused stays so."""
        self._is_over = True
        if self.task.end():  # one that still waits for an answer keeps what it waits on
            self.close()

    def resume(self) -> None:
        """Be a reason for nothing any more."""
        self.throttle.resume_all(self.signal)

    def _look(self) -> None:
        try:
            verdicts = self.look()
        except MigratorError as exc:
            self._error = str(exc)
            return
        self._seen_s = time.monotonic()
        for whom, verdict in verdicts.items():
            self._pause(whom, verdict)
        for reason in self.throttle.reasons():
            if reason.signal is self.signal and reason.endpoint not in verdicts:
                self.throttle.resume(self.signal, reason.endpoint)

    def _pause(self, whom: Whom, verdict: Verdict) -> None:
        if not self._is_over:
            self.throttle.pause(self.signal, whom, verdict.observed, verdict.limit)


class SignalThrottles:
    """Runs the throttles of one process, and changes them when settings are read anew."""

    def __init__(self) -> None:
        """Look at nothing yet."""
        self._lock = threading.Lock()
        self._throttles: Sequence[SignalThrottle] = ()
        self.job = Job("throttle", _TICK, self._tick)

    def replace(self, throttles: Sequence[SignalThrottle]) -> None:
        """Look at *throttles* from now on; those before are no reason for anything any more.

        Each is looked at once before this returns, or waited for for moments at most.
        """
        with self._lock:
            for before in self._throttles:
                before.end()
                before.resume()
            self._throttles = throttles
            for throttle in throttles:
                throttle.tick(time.monotonic())
            deadline_s = time.monotonic() + _FIRST_S
            while any(each.task.is_busy for each in throttles) and time.monotonic() < deadline_s:
                time.sleep(0.01)

    def end(self) -> None:
        """Look at nothing any more; what is paused stays so, for the process is at its end."""
        with self._lock:
            for throttle in self._throttles:
                throttle.end()
            self._throttles = ()

    def _tick(self) -> None:
        if self._lock.acquire(blocking=False):  # else they are being replaced
            try:
                for throttle in self._throttles:
                    throttle.tick(time.monotonic())
            finally:
                self._lock.release()
