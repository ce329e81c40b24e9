"""Bring handed-over timeouts back out of the delay levels, into the tables they came from.

Rules of this file: levels are gone through from the highest to the lowest, because a message only
moves down, so one pass meets each; a message is acknowledged after its row is restored and
committed, so a crash in between leaves a copy that the next recall takes away; everything else
goes back with its original expiry. Nobody may claim meanwhile. Source: design section 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.domain.delays import BITS
from migrator.domain.headers import RELATED_TO_TIMEOUT_ID
from migrator.domain.recall import MAY_GO, RecallOutcome, RecallScope
from migrator.domain.timeouts import TimeoutId
from migrator.ports import Clock, FaultPoint, Lease
from migrator.ports.levels import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.ports.recall import Recalls, Sighting

_CHUNK: Final = 500
"""Messages judged in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What became of the messages that a recall found."""

    outcomes: Mapping[RecallOutcome, int]
    """How many messages turned out to be what."""
    unfinished: Sequence[int]
    """Levels that hold more than could be looked at within the hold time; run it again."""

    @property
    def is_whole(self) -> bool:
        """Whether everything that was meant is back."""
        stayed = (RecallOutcome.TOO_NEAR, RecallOutcome.TAKEN, RecallOutcome.DIFFERENT)
        return not self.unfinished and not any(self.outcomes.get(each) for each in stayed)

    @property
    def restored(self) -> int:
        """Rows that are back in their tables."""
        return self.outcomes.get(RecallOutcome.RESTORED, 0)


class Recall:
    """Goes through all levels once."""

    def __init__(
        self,
        *,
        levels: Levels,
        recalls: Recalls,
        clock: Clock,
        limits: ScanLimits,
        margin: timedelta,
        fault: FaultPoint,
        guard: Callable[[], None],
        progress: Callable[[int, int], None] = lambda _level, _seen: None,
    ) -> None:
        """Prepare; nothing is touched.

        Args:
            levels: The levels of one generation.
            recalls: The store's and the ledger's side.
            clock: The database's time.
            limits: How much of a level is held, and for how long.
            margin: Rows due within this, at the time they are found, are left to the broker.
            fault: Called at each step.
            guard: Raises when the recall must end, because it lost its lease.
            progress: Called with each level and the number of messages seen in it.
        """
        self._levels = levels
        self._recalls = recalls
        self._clock = clock
        self._limits = limits
        self._margin = margin
        self._fault = fault
        self._guard = guard
        self._progress = progress
        self._outcomes: Counter[RecallOutcome] = Counter()
        self._unfinished: list[int] = []

    def run(self, scope: RecallScope, lease: Lease) -> Recalled:
        """Restore what *scope* means; repeating goes on after a crash, and finds nothing twice.

        Raises:
            LeaseLost, StoreUnavailable, TargetError: What was restored stays so; run it again.
        """
        waiting = self._levels.ready()
        for level in range(BITS - 1, -1, -1):
            if level in waiting:  # also an empty one: what is above it comes down meanwhile
                self._level(level, scope, lease)
        return Recalled(outcomes=dict(self._outcomes), unfinished=tuple(self._unfinished))

    def _level(self, level: int, scope: RecallScope, lease: Lease) -> None:
        while True:
            scan = self._levels.scan(level, self._limits)
            try:
                taken = self._pass(level, scan, scope, lease)
            finally:
                scan.close()
            if scan.end is ScanEnd.EMPTY:
                return
            if not taken:  # the same messages would be in front of the rest again
                self._unfinished.append(level)
                return

    def _pass(self, level: int, scan: LevelScan, scope: RecallScope, lease: Lease) -> int:
        taken = seen = 0
        while found := scan.receive(at_most=_CHUNK):
            self._guard()
            seen += len(found)
            taken += self._chunk(scan, found, scope, lease)
            self._progress(level, seen)
        return taken

    def _chunk(
        self, scan: LevelScan, found: Sequence[LevelMessage], scope: RecallScope, lease: Lease
    ) -> int:
        sightings = {m.tag: s for m in found if (s := _sighting(m)) is not None}
        outcomes = self._recalls.restore(
            set(sightings.values()),
            scope,
            lease,
            not_before=self._clock.now() + self._margin,
        )
        self._fault("recall.restored")
        may_go = []
        for tag, sighting in sightings.items():
            outcome = outcomes[sighting]
            self._outcomes[outcome] += 1
            if outcome in MAY_GO:
                may_go.append(tag)
        scan.acknowledge(may_go)
        self._fault("recall.acknowledged")
        return len(may_go)


def _sighting(message: LevelMessage) -> Sighting | None:
    """Return what *message* claims to be; None when it claims to be no timeout of anybody."""
    timeout_id = message.headers.get(RELATED_TO_TIMEOUT_ID)
    if not isinstance(timeout_id, str) or not timeout_id:
        return None
    return Sighting(timeout_id=TimeoutId(timeout_id), body_bytes=len(message.body))
