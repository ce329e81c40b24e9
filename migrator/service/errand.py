"""A thread that does one thing whenever it is asked, and that nothing waits for.

For what the schedule has done but what may take long, because a broker or a database is asked:
jobs return at once, and workers have better things to do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from migrator.errors import Interrupted

_log = logging.getLogger(__name__)

_LAST_WAIT_S: Final = 2.0
"""Whoever answers nothing may hold the thread for longer; then it is left behind."""


class Errand:
    """Runs one call at a time on a thread of its own."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """Prepare a thread that calls *work* each time it is asked to."""
        self.name = name
        self._work = work
        self._asked = threading.Event()
        self._ended = threading.Event()
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Let the thread run; it waits to be asked."""
        self._thread.start()

    def ask(self) -> bool:
        """Have the work done once; False when the last time still goes on: then it is not."""
        if self.is_busy:
            return False
        self._asked.set()
        return True

    @property
    def is_busy(self) -> bool:
        """Whether it is asked, or at work."""
        return self._is_busy or self._asked.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether its thread is over."""
        return not self._thread.is_alive()

    def check(self) -> None:
        """Return unless the work is to be broken off.

        Raises:
            Interrupted: It is.
        """
        if self._ended.is_set():
            raise Interrupted("asked to stop in the middle")

    def end(self) -> bool:
        """Break off whatever goes on; return whether the thread ended within moments."""
        self._ended.set()
        self._asked.set()
        self._thread.join(_LAST_WAIT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            if self._ended.is_set():
                return
            self._is_busy = True
            self._asked.clear()
            try:
                self._work()
            except Exception:  # a bug in what is done by the way must not end it for good
                _log.exception("an errand failed", extra={"action": "job_failed", "job": self.name})
            finally:
                self._is_busy = False
