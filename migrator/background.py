"""Work on a thread of its own, which the end of the process waits for only moments."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from migrator.errors import Interrupted

_log = logging.getLogger(__name__)

_LAST_WAIT_S: Final = 2.0
"""Whatever is asked and does not answer may hold a thread longer; it is left behind then."""


class BackgroundTask:
    """Does one thing on its own thread, once for each request; no caller waits for it."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self._work = work
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it is at work."""
        return self._thread is not None and self._thread.is_alive()

    def run_soon(self) -> bool:
        """Have the work done once; False when the last time still goes on: then it is not."""
        if self.is_busy:
            return False
        if not self._ended.is_set():
            self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)
            self._thread.start()
        return True

    def run(self) -> None:
        """Do the work in this thread."""
        self._thread = threading.current_thread()
        if self._ended.is_set():
            return
        try:
            self._work()
        except BaseException:  # a bug in a side job must not end the work of others, or its own
            _log.exception(
                "a background task failed", extra={"action": "job_failed", "job": self.name}
            )

    def check(self) -> None:
        """Return unless the work is to be broken off.

        Raises:
            Interrupted: It is.
        """
        if self._ended.is_set():
            raise Interrupted("asked to stop during the task")

    def end(self) -> bool:
        """Break off what goes on, for good; return whether that happened within moments."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_LAST_WAIT_S)
        return not self.is_busy
