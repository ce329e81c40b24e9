"""What goes on in the background of a lane: begun in order, awaited in order, and always awaited.

While a lane waits for it, the broker is served: a claim of documents can take longer than the
broker keeps a silent connection (two to three heartbeats of five seconds). That is no sign of
life: whether the work hangs, the watchdog has to notice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from migrator.ledger.work import Pending, T
from migrator.nservicebus.timeouts import Lane

R = TypeVar("R")

_log = logging.getLogger(__name__)

_SERVE_EVERY_S: Final = 0.2
"""A receipt that comes meanwhile is read about when it came: how long it took is measured."""


class Ahead(Generic[T]):
    """Work under way behind what is in hand."""

    def __init__(self, serve: Callable[[], None], *, lane: Lane) -> None:
        """Have nothing under way; *serve* lets the connections do what is due, without waiting."""
        self._serve = serve
        self._lane = lane
        self._begun: deque[Pending[T]] = deque()
        self._awaited: Pending[object] | None = None

    def __len__(self) -> int:
        """Return how many are under way."""
        return len(self._begun)

    def add(self, work: Pending[T]) -> None:
        """Have *work* behind all others."""
        self._begun.append(work)

    def next(self) -> T:
        """Wait for the first that was begun; see ``result_of``."""
        return self.result_of(self._begun.popleft())

    def take(self, is_wanted: Callable[[T], bool]) -> T | None:
        """Return the first that is done and wanted, out of its turn; None: there is none."""
        for work in self._begun:
            if work.done() and is_wanted(found := work.result()):
                self._begun.remove(work)
                return found
        return None

    def result_of(self, work: Pending[R]) -> R:
        """Wait for *work*, and serve the broker meanwhile; return its result or raise its error.

        Raises:
            TargetUnavailable: A connection went away; the work goes on until ``end``.
        """
        self._awaited = work
        while not work.wait(_SERVE_EVERY_S):
            self._serve()
        self._awaited = None
        return work.result()

    def end(self) -> None:
        """Wait until nothing is under way; what goes wrong is logged."""
        under_way = [*filter(None, [self._awaited]), *self._begun]
        self._awaited = None
        self._begun.clear()
        for work in under_way:
            try:
                work.result()
            except Exception:
                _log.warning(
                    "a claim ahead failed; its batch, if any, is in the ledger",
                    extra={"action": "claim_ahead_failed", "lane": self._lane},
                    exc_info=True,
                )
