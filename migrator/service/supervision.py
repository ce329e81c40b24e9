"""What the service manager is told of the workers, and when.

Rules:

* READY comes when the workers run, so after every check; a standby is ready as well;
* a sign of life is sent only while every worker's loop goes on: one that hangs stops it;
* while draining more time is asked for, again and again, and by the same rule.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from migrator.service.notify import ServiceManager
from migrator.service.worker import Stop, WorkerThread

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.25
_SIGNS_PER_INTERVAL: Final = 4
_EXTENSION: Final = timedelta(minutes=1)
_EXTEND_EVERY_S: Final = 5.0
_HUNG_AFTER_S: Final = 180.0
"""Without a watchdog, a worker may be silent for so long before no more time is asked for."""


class Supervision:
    """Tells one service manager about one process; the main thread calls it."""

    def __init__(
        self, manager: ServiceManager, workers: Iterable[WorkerThread], stop: Stop
    ) -> None:
        """Say nothing yet."""
        self._manager = manager
        self._workers = workers
        self._stop = stop
        self._interval_s = manager.watchdog.total_seconds() if manager.watchdog else None
        self._next_sign_s = float("-inf")
        self._next_extension_s = float("-inf")
        self.has_begun = False
        """The work has begun; never false again."""
        self._is_stopping = False
        self._is_hung = False

    @property
    def look_every_s(self) -> float:
        """How often ``look`` is to be called."""
        if self._interval_s is None:
            return _LOOK_EVERY_S
        return min(_LOOK_EVERY_S, self._interval_s / (2 * _SIGNS_PER_INTERVAL))

    @property
    def wants_status(self) -> bool:
        """Whether anybody is told what goes on."""
        return self._manager.is_there

    @property
    def silence_limit_s(self) -> float:
        """A worker that was silent for so long hangs."""
        return self._interval_s or _HUNG_AFTER_S

    def begin(self) -> None:
        """Say that the work has begun."""
        self.has_begun = True
        self._manager.ready()
        self.status("working")

    def look(self) -> None:
        """Tell what is to be told now."""
        if self._stop.draining.is_set():
            self.end()
        if not self._manager.is_there or not self._all_go_on():
            return
        now_s = time.monotonic()
        if self._interval_s is not None and now_s >= self._next_sign_s:
            self._next_sign_s = now_s + self._interval_s / _SIGNS_PER_INTERVAL
            self._manager.alive()
        if self._is_stopping and now_s >= self._next_extension_s:
            self._next_extension_s = now_s + _EXTEND_EVERY_S
            self._manager.extend(_EXTENSION)

    def status(self, text: str) -> None:
        """Say what goes on; from any thread."""
        self._manager.status(f"stopping: {text}" if self._is_stopping else text)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Say that settings are read anew, and at the end that this is over."""
        self._manager.reloading()
        try:
            yield
        finally:
            self._manager.ready()

    def end(self) -> None:
        """Say that the end has begun, once."""
        if not self._is_stopping:
            self._is_stopping = True
            self._manager.stopping()
            self.status("finishing what is in hand")

    def _all_go_on(self) -> bool:
        limit_s = self.silence_limit_s
        hung = [worker.name for worker in self._workers if worker.silent_s >= limit_s]
        if hung and not self._is_hung:
            _log.error(
                "a thread hangs; the service manager gets no sign of life any more",
                extra={"action": "worker_hangs", "workers": hung, "silent_s": round(limit_s, 1)},
            )
        self._is_hung = bool(hung)
        return not hung
