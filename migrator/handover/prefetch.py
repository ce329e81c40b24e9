"""The next batches of a lane, claimed and prepared while another one is handed over.

They are begun in order, awaited in order, and always awaited. While a lane waits for one, the
broker is served: a claim of documents can take longer than the broker keeps a silent connection
(two to three heartbeats of five seconds). That is no sign of life: whether the work hangs, the
watchdog has to notice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from migrator.handover.claiming import Claimer
from migrator.handover.prepare import Prepared, Preparer
from migrator.ledger.states import Mode
from migrator.ledger.work import Batch, Clock, Lease
from migrator.nservicebus.timeouts import BatchId

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DEPTH: Final = 2
"""Batches under way behind the one in hand: one is claimed while the other is converted."""
_SERVE_EVERY_S: Final = 0.2
"""A receipt that comes meanwhile is read about when it came: how long it took is measured."""


class Prefetcher:
    """Claims and prepares for one lease; used by the lane's thread only."""

    def __init__(
        self,
        *,
        claimer: Claimer,
        preparer: Preparer,
        claiming: Executor,
        preparing: Executor,
        clock: Clock,
        lease: Lease,
        rows: Callable[[], int],
        serve: Callable[[], None],
    ) -> None:
        """Have nothing under way.

        Args:
            claimer: Says which rows are next; not made for two claims at once.
            preparer: Makes messages of them.
            claiming: Does one claim after the other.
            preparing: Prepares one batch after the other, and may wait for *claiming*.
            clock: For how long ago a batch was claimed.
            lease: The lane.
            rows: How many rows the next batch has.
            serve: Lets the connections do what is due, without waiting.
        """
        self._claimer = claimer
        self._preparer = preparer
        self._claiming = claiming
        self._preparing = preparing
        self._clock = clock
        self._lease = lease
        self._rows = rows
        self._serve = serve
        self._under_way: deque[Future[Prepared | None]] = deque()
        self._awaited: Future[Any] | None = None
        self.claimed_s: dict[BatchId, float] = {}
        """When each batch was claimed; monotonic. Whoever is done with one takes it out."""

    def next(self, *, may_claim: bool) -> Prepared | None:
        """Return the next batch, and have those behind it worked on meanwhile; None: no rows."""
        prepared = None
        while prepared is None and self._under_way:
            prepared = self._wait_for(self._under_way.popleft())
        if prepared is None and may_claim:
            prepared = self._wait_for(self._begin())
        if prepared is not None and may_claim:
            while len(self._under_way) < _DEPTH:
                self._under_way.append(self._begin())
        return prepared

    def next_overdue(self, *, may_claim: bool) -> Prepared | None:
        """Return a batch of rows already due, out of turn; None: there is none for now."""
        for future in self._under_way:
            if future.done() and _is_direct(prepared := future.result()):
                self._under_way.remove(future)
                return prepared
        return self._wait_for(self._begin(only_overdue=True)) if may_claim else None

    def prepare(self, batch: Batch, *, answered: Collection[int] = ()) -> Prepared:
        """Return the messages of a batch in hand; see ``Preparer.prepare``."""
        return self._wait_for(
            self._preparing.submit(
                lambda: self._preparer.prepare(batch, self._lease, answered=answered)
            )
        )

    def resume(self, batch: Batch) -> Batch | None:
        """Finish a claim, or a release, that is half-done; see ``Claims.resume``."""
        return self._wait_for(
            self._claiming.submit(lambda: self._claimer.resume(batch, self._lease))
        )

    def end(self) -> None:
        """Wait until nothing is under way; what goes wrong is logged."""
        left = [*filter(None, [self._awaited]), *self._under_way]
        self._awaited = None
        self._under_way.clear()
        for future in left:
            try:
                future.result()
            except Exception:
                _log.warning(
                    "a claim ahead failed; its batch, if any, is in the ledger",
                    extra={"action": "claim_ahead_failed", "lane": self._lease.lane},
                    exc_info=True,
                )

    def _begin(self, *, only_overdue: bool = False) -> Future[Prepared | None]:
        rows = self._rows()
        claimed = self._claiming.submit(
            lambda: self._claimer.claim(self._lease, max_rows=rows, only_overdue=only_overdue)
        )

        def prepare() -> Prepared | None:
            batch = claimed.result()
            if batch is None:
                return None
            self.claimed_s[batch.id] = self._clock.monotonic_s()
            return self._preparer.prepare(batch, self._lease)

        return self._preparing.submit(prepare)

    def _wait_for(self, future: Future[T]) -> T:
        """Return the result of *future*, or raise its error; serve the broker meanwhile.

        Raises:
            TargetUnavailable: A connection went away; the work goes on until ``end``.
        """
        self._awaited = future
        while True:
            try:
                future.exception(_SERVE_EVERY_S)
                break
            except TimeoutError:
                self._serve()
        self._awaited = None
        return future.result()


def _is_direct(prepared: Prepared | None) -> bool:
    return prepared is not None and prepared.batch.mode is Mode.DIRECT
