"""Runs the throttles of one process, and changes them when settings are read anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from migrator.service.jobs import Job
from migrator.service.throttles.base import Throttle

_TICK: Final = timedelta(milliseconds=250)
_FIRST_S: Final = 3.0
"""How long the start waits for the first look at each signal; who is slower holds later."""


class Throttles:
    """The signals that are looked at now."""

    def __init__(self, throttles: Sequence[Throttle]) -> None:
        """Take *throttles*, none of which runs yet."""
        self._lock = threading.Lock()
        self._throttles: Sequence[Throttle] = throttles
        self.job = Job(name="throttle", every=_TICK, do=self._tick)

    def begin(self) -> None:
        """Look at everything once, before anything is claimed; waits for moments at most."""
        with self._lock:
            self._start(self._throttles)

    def replace(self, throttles: Sequence[Throttle]) -> None:
        """Look at *throttles* instead; what the ones before held is lifted."""
        with self._lock:
            before, self._throttles = self._throttles, throttles
            for throttle in before:
                throttle.end()
                throttle.lift()
            self._start(throttles)

    def end(self) -> None:
        """Look at nothing any more; what is held stays so, for the process is at its end."""
        with self._lock:
            for throttle in self._throttles:
                throttle.end()
            self._throttles = ()

    def _start(self, throttles: Sequence[Throttle]) -> None:
        for throttle in throttles:
            throttle.errand.start()
            throttle.tick(time.monotonic())
        deadline_s = time.monotonic() + _FIRST_S
        while any(each.errand.is_busy for each in throttles) and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def _tick(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return True  # they are being replaced; the next tick is soon
        try:
            now_s = time.monotonic()
            for throttle in self._throttles:
                throttle.tick(now_s)
        finally:
            self._lock.release()
        return True
