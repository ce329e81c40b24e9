"""Polls the signals at intervals, each on a thread of its own.

What a poll saw is believed for a while; after that hand-over waits, because its state is unknown.

Source: docs/throttling.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from migrator.background import BackgroundTask
from migrator.errors import MigratorError
from migrator.throttle.reasons import Throttle
from migrator.throttle.signals import Affected, Observation, PolledSignal

TICK: Final = timedelta(milliseconds=500)
_FIRST_S: Final = 3.0
"""How long the start waits for the first poll of each signal; a slower one pauses later."""


class SignalPoll:
    """Polls one signal at intervals, and pauses when the last success is too old."""

    def __init__(
        self,
        polled: PolledSignal,
        throttle: Throttle,
        *,
        every_s: float,
        stale_after_s: float,
        critical: Callable[[str], None],
    ) -> None:
        self._polled = polled
        self._throttle = throttle
        self._every_s = every_s
        self._stale_after_s = stale_after_s
        self._critical = critical
        self._next_s = float("-inf")
        self._seen_s = time.monotonic()
        self._error = "no answer yet"
        self._is_over = False
        self.task = BackgroundTask(f"throttle-{polled.signal}", self._poll)

    def tick(self, now_s: float) -> None:
        """Poll when it is time, at monotonic second *now_s*; returns at once."""
        if now_s >= self._next_s and self.task.run_soon():
            self._next_s = now_s + self._every_s - TICK.total_seconds() / 2  # the tick before
        age_s = now_s - self._seen_s
        if age_s > self._stale_after_s:
            limit = f"must not be older than {self._stale_after_s:g} s"
            self._pause(None, Observation(f"not known for {age_s:.0f} s: {self._error}", limit))

    def end(self) -> None:
        """Stop polling, and release what was needed for it; what is paused stays so."""
        self._is_over = True
        if self.task.end():  # one that still waits for an answer keeps what it waits on
            self._polled.close()

    def resume(self) -> None:
        """End the pauses of this signal."""
        self._throttle.resume_all(self._polled.signal)

    def _poll(self) -> None:
        signal = self._polled.signal
        try:
            found = self._polled.poll()
        except MigratorError as exc:
            self._error = str(exc)
            return
        self._seen_s = time.monotonic()
        if self._polled.critical is not None:
            self._critical(self._polled.critical)
        for endpoint, observation in found.items():
            self._pause(endpoint, observation)
        for reason in self._throttle.reasons():
            if reason.signal is signal and reason.endpoint not in found:
                self._throttle.resume(signal, reason.endpoint)

    def _pause(self, endpoint: Affected, observation: Observation) -> None:
        if not self._is_over:
            self._throttle.pause(self._polled.signal, endpoint, *observation)


class SignalPolls:
    """Polls the signals of one process, and changes them when settings are read anew.

    *critical* is called when a value passes the limit at which the daemon ends.
    """

    def __init__(self, throttle: Throttle, critical: Callable[[str], None]) -> None:
        self._throttle = throttle
        self._critical = critical
        self._lock = threading.Lock()
        self._polls: Sequence[SignalPoll] = ()

    def replace(
        self, signals: Iterable[PolledSignal], *, every_s: float, stale_after_s: float
    ) -> None:
        """Poll *signals* from now on; those before are no reason for anything any more.

        Each is polled once before this returns, or waited for for moments at most.
        """
        with self._lock:
            for before in self._polls:
                before.end()
                before.resume()
            self._polls = [
                SignalPoll(
                    each,
                    self._throttle,
                    every_s=each.every_s or every_s,
                    stale_after_s=stale_after_s,
                    critical=self._critical,
                )
                for each in signals
            ]
            for poll in self._polls:
                poll.tick(time.monotonic())
            deadline_s = time.monotonic() + _FIRST_S
            while any(each.task.is_busy for each in self._polls) and time.monotonic() < deadline_s:
                time.sleep(0.01)

    def end(self) -> None:
        """Poll nothing any more; what is paused stays so, for the process is at its end."""
        with self._lock:
            for poll in self._polls:
                poll.end()
            self._polls = ()

    def tick(self) -> None:
        """Poll each signal whose time has come; called every ``TICK``, returns at once."""
        if self._lock.acquire(blocking=False):  # else they are being replaced
            try:
                for poll in self._polls:
                    poll.tick(time.monotonic())
            finally:
                self._lock.release()
