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
from dataclasses import replace
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


class ClaimGuard:
    """Answers before each claim whether it may be made.

    Nothing of an endpoint is claimed before its due times are known to be read in the right zone.
    The start looks as well, and refuses; this is for rows that came later:

    * an endpoint is looked at before its first claim, and now and then after that;
    * what would refuse the start pauses the endpoint, and no other, until it is gone;
    * as long as no row could tell, each claim is preceded by a look.
    """

    def __init__(
        self,
        throttle: Throttle,
        stop: Stop,
        endpoints: Collection[StoreEndpoint] = (),
        *,
        read_due_times: Callable[[StoreEndpoint], DueTimeReading],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have *read_due_times* read rows of *endpoints*; *now_s* is monotonic."""
        self.throttle = throttle
        self.endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._stop = stop
        self._read_due_times = read_due_times
        self._now_s = now_s
        self._next_s: dict[EndpointName, float] = {}
        self._lock = threading.Lock()

    def may_claim(self, endpoint: EndpointName | None = None) -> bool:
        """Return whether rows of *endpoint* may be claimed now; None: rows of any at all.

        Raises:
            StoreUnavailable, StoreError: The rows of *endpoint* cannot be read.
        """
        if self._stop.draining.is_set():
            return False
        if endpoint is not None:
            with self._lock:
                if self._now_s() >= self._next_s.get(endpoint, float("-inf")):
                    self._look_at_due_times(endpoint)
        return self.throttle.reason_for(endpoint) is None

    def _look_at_due_times(self, endpoint: EndpointName) -> None:
        reading = self._read_due_times(self.endpoints[endpoint])
        if reading.is_refused:
            self.throttle.pause(Signal.TIME_ZONE, endpoint, reading.text, reading.remedy)
        else:
            self.throttle.resume(Signal.TIME_ZONE, endpoint)
        wait_s = REFUSED_AGAIN_S if reading.is_refused else AGAIN_S
        self._next_s[endpoint] = self._now_s() + (wait_s if reading.comparable else 0.0)


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


def critical_load(stop: Stop, audit_log: AuditLog) -> Callable[[str], None]:
    """Return what ends the process when a critical limit is passed; only the first time counts."""
    lock = threading.Lock()

    def passed(text: str) -> None:
        with lock:
            if stop.reason is not None or stop.draining.is_set():
                return
            stop.reason = LimitPassed(
                f"{text}; what was claimed is finished, nothing more is; put it right and start "
                "the daemon again"
            )
            _log.error("a panic limit was passed", extra={"action": CRITICAL, "reason": text})
            audit_log.note(CRITICAL, {"reason": text})
            stop.draining.set()

    return passed


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


class Threshold:
    """Looks at values against a limit, of single endpoints or of all.

    One that is over its limit counts until it is a good deal lower, so that hand-over does not
    start and stop all the time.
    """

    def __init__(
        self,
        signal: Signal,
        measure: Callable[[], Mapping[Whom, Sample]],
        limits: tuple[float, float],
        critical: Callable[[str], None],
        *,
        show: Callable[[float], str] = "{:.0f}".format,
    ) -> None:
        """Compare with two *limits*, and call *critical* above the second; 0: any value is fine."""
        self.signal = signal
        self._measure = measure
        self._most, self._critical_above = limits
        self._critical = critical
        self._show = show
        self._over: Set[Whom] = frozenset()

    def __call__(self) -> Mapping[Whom, Verdict]:
        """Measure, and return whose value is too high."""
        found = self._measure()
        for sample in found.values():
            if self._critical_above and self._critical_above < sample.value < math.inf:
                limit = self._show(self._critical_above)
                self._critical(
                    f"{self.signal}: {sample.text}, and {limit} is where the daemon gives up"
                )
        if not self._most:
            return {}
        limits = {whom: self._most * (RESUME_SHARE if whom in self._over else 1) for whom in found}
        self._over = {whom for whom, sample in found.items() if sample.value > limits[whom]}
        limit = f"at most {self._show(self._most)}"
        return {whom: Verdict(found[whom].text, limit) for whom in self._over}


class SignalThrottle:
    """Looks at one signal at intervals, and pauses when the last success is too old."""

    def __init__(
        self,
        signal: Signal,
        throttle: Throttle,
        look: Look,
        *,
        every_s: float,
        stale_after_s: float,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Look at nothing yet; *close* ends what *look* needs."""
        self._signal = signal
        self._throttle = throttle
        self._look_once = look
        self._every_s = every_s
        self._stale_after_s = stale_after_s
        self._close = close
        self._next_s = float("-inf")
        self._seen_s = time.monotonic()
        self._error = "no answer yet"
        self._is_over = False
        self.task = BackgroundTask(f"throttle-{signal}", self._look)

    def tick(self, now_s: float) -> None:
        """Look again when it is time, at monotonic second *now_s*; returns at once."""
        if now_s >= self._next_s and self.task.run_soon():
            self._next_s = now_s + self._every_s
        age_s = now_s - self._seen_s
        if age_s > self._stale_after_s:
            limit = f"not to be older than {self._stale_after_s:g} s"
            self._pause(None, Verdict(f"not known for {age_s:.0f} s: {self._error}", limit))

    def end(self) -> None:
        """Stop looking, and close what was needed for it; what is paused stays so."""
        self._is_over = True
        if self.task.end():  # one that still waits for an answer keeps what it waits on
            self._close()

    def resume(self) -> None:
        """Be a reason for nothing any more."""
        self._throttle.resume_all(self._signal)

    def _look(self) -> None:
        try:
            verdicts = self._look_once()
        except MigratorError as exc:
            self._error = str(exc)
            return
        self._seen_s = time.monotonic()
        for whom, verdict in verdicts.items():
            self._pause(whom, verdict)
        for reason in self._throttle.reasons():
            if reason.signal is self._signal and reason.endpoint not in verdicts:
                self._throttle.resume(self._signal, reason.endpoint)

    def _pause(self, whom: Whom, verdict: Verdict) -> None:
        if not self._is_over:
            self._throttle.pause(self._signal, whom, verdict.observed, verdict.limit)


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
