"""Polls the signals at intervals, each on a thread of its own.

What a poll saw is believed for a while; after that hand-over waits, because its state is unknown.

Source: docs/throttling.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.background import BackgroundTask
from migrator.errors import MigratorError
from migrator.throttle.reasons import Signal, Throttle
from migrator.throttle.signals import Look, Verdict, Whom

TICK: Final = timedelta(milliseconds=500)
_FIRST_S: Final = 3.0
"""How long the start waits for the first poll of each signal; a slower one pauses later."""


@dataclass(eq=False)
class SignalPoll:
    """Looks at one signal at intervals, and pauses when the last success is too old."""

    signal: Signal
    throttle: Throttle
    look: Look
    every_s: float
    stale_after_s: float
    close: Callable[[], None] = lambda: None
    """Ends what *look* needs."""

    def __post_init__(self) -> None:
        self._next_s = float("-inf")
        self._seen_s = time.monotonic()
        self._error = "no answer yet"
        self._is_over = False
        self.task = BackgroundTask(f"throttle-{self.signal}", self._look)

    def tick(self, now_s: float) -> None:
        """Look again when it is time, at monotonic second *now_s*; returns at once."""
        if now_s >= self._next_s and self.task.run_soon():
            self._next_s = now_s + self.every_s - TICK.total_seconds() / 2  # the tick before
        age_s = now_s - self._seen_s
        if age_s > self.stale_after_s:
            limit = f"must not be older than {self.stale_after_s:g} s"
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


class SignalPolls:
    """Runs the throttles of one process, and changes them when settings are read anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._throttles: Sequence[SignalPoll] = ()

    def replace(self, throttles: Sequence[SignalPoll]) -> None:
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

    def tick(self) -> None:
        """Poll each signal whose time has come; called every ``TICK``, returns at once."""
        if self._lock.acquire(blocking=False):  # else they are being replaced
            try:
                for throttle in self._throttles:
                    throttle.tick(time.monotonic())
            finally:
                self._lock.release()
