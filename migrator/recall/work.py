"""Bring handed-over timeouts back out of the delay levels, into the tables they came from.

Rules of this file: levels are gone through from the highest to the lowest, because a message only
moves down, so one pass meets each; a message is acknowledged after its row is restored and
committed, so a crash in between leaves a copy that the next recall takes away; everything else
goes back with its original expiry. Nobody may claim meanwhile. Source: design section 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.errors import PreflightRefused
from migrator.ledger.states import HALF_DONE, BatchState, Mode
from migrator.ledger.work import Batch, Clock, FaultPoint, Lease
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import row_tag
from migrator.nservicebus.timeouts import BITS
from migrator.recall.ports import Recalls, Sighting
from migrator.recall.rules import MAY_GO, RecallOutcome, RecallScope

_CHUNK: Final = 500
"""Messages judged in one transaction."""


_IN_LEDGER: Final = HALF_DONE | {BatchState.CLAIMED}
"""States of an open batch of which nothing is on its way to the broker."""
_STAYED: Final = (
    RecallOutcome.TOO_NEAR,
    RecallOutcome.UNSETTLED,
    RecallOutcome.TAKEN,
    RecallOutcome.STORE_GONE,
    RecallOutcome.DIFFERENT,
)
"""Outcomes that leave a message of ours where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTerms:
    """How near, how long and how deep a recall may go."""

    margin: timedelta
    """What is due within this, when it is found, is left to the broker."""
    hold: timedelta
    """How long messages of others are held at a time; they are late by it at most."""
    deepest: int
    """A level with more messages than this is refused, and with it the recall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallProgress:
    """How far a recall is."""

    level: int
    seen: int
    """Messages looked at so far, in all levels."""
    restored: int
    """Rows that are back so far."""


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
        return not self.unfinished and not any(self.outcomes.get(each) for each in _STAYED)

    @property
    def restored(self) -> int:
        """Rows that are back in their tables."""
        return self.outcomes.get(RecallOutcome.RESTORED, 0)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages turned out to be what, zeros included."""
        return {str(outcome): self.outcomes.get(outcome, 0) for outcome in RecallOutcome}


def demand_settled(batches: Iterable[Batch], scope: RecallScope) -> None:
    """Return when none of the open *batches* may still send something into the levels.

    Those that *scope* does not mean are in nobody's way while all that they have is in the ledger;
    what an earlier attempt left in a staging queue is waited for apart from this.

    Raises:
        PreflightRefused: Some may; says which.
    """
    open_ids = [
        batch.id
        for batch in batches
        if batch.mode is not Mode.DISPATCH
        and (batch.state not in _IN_LEDGER or scope.may_mean(batch.source, batch.run))
    ]
    if open_ids:
        raise PreflightRefused(
            f"batches {', '.join(map(str, open_ids))} may be on their way to the broker; "
            "`migrator run --once` settles them, then try again"
        )


def demand_shallow(waiting: Mapping[int, int], deepest: int) -> None:
    """Return when no level holds more messages than *deepest*.

    Raises:
        PreflightRefused: Some do; says which.
    """
    deep = {level: count for level, count in waiting.items() if count > deepest}
    if deep:
        listed = ", ".join(f"level {level:02d}: {count}" for level, count in deep.items())
        raise PreflightRefused(
            f"too many messages would have to be held ({listed}); --deepest allows more"
        )


class Recall:
    """Goes through all levels once."""

    def __init__(
        self,
        *,
        levels: Levels,
        recalls: Recalls,
        clock: Clock,
        ledger_id: str,
        terms: RecallTerms,
        fault: FaultPoint,
        guard: Callable[[], None],
        progress: Callable[[RecallProgress], None] = lambda _found: None,
    ) -> None:
        """Prepare; nothing is touched.

        Args:
            levels: The levels of one generation.
            recalls: The store's and the ledger's side.
            clock: The database's time.
            ledger_id: By whose mark our messages are known.
            terms: How near, how long and how deep it may go.
            fault: Called at each step.
            guard: Raises when the recall must end, because it lost its lease.
            progress: Called now and then.
        """
        self._levels = levels
        self._recalls = recalls
        self._clock = clock
        self._ledger_id = ledger_id
        self._terms = terms
        self._limits = ScanLimits(hold_s=terms.hold.total_seconds())
        self._fault = fault
        self._guard = guard
        self._progress = progress
        self._outcomes: Counter[RecallOutcome] = Counter()
        self._unfinished: list[int] = []
        self._seen = 0

    def run(self, scope: RecallScope, lease: Lease) -> Recalled:
        """Restore what *scope* means; repeating goes on after a crash, and finds nothing twice.

        Raises:
            PreflightRefused: A level is too deep. Nothing was changed.
            LeaseLost, StoreUnavailable, TargetError: What was restored stays so; run it again.
        """
        waiting = self._levels.ready()
        demand_shallow(waiting, self._terms.deepest)
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
        taken = 0
        while found := scan.receive(at_most=_CHUNK):
            self._guard()
            self._seen += len(found)
            taken += self._chunk(scan, found, scope, lease)
            restored = self._outcomes[RecallOutcome.RESTORED]
            self._progress(RecallProgress(level=level, seen=self._seen, restored=restored))
        return taken

    def _chunk(
        self, scan: LevelScan, found: Sequence[LevelMessage], scope: RecallScope, lease: Lease
    ) -> int:
        sightings = {m.tag: s for m in found if (s := self._sighting(m)) is not None}
        outcomes = self._recalls.restore(
            set(sightings.values()),
            scope,
            lease,
            not_before=self._clock.now() + self._terms.margin,
        )
        self._fault("recall.restored")
        may_go, restored = [], set[Sighting]()
        for tag, sighting in sightings.items():
            outcome = outcomes[sighting]
            if sighting in restored:  # its row is back once, whatever copies of it there are
                outcome = RecallOutcome.LEFTOVER
            elif outcome is RecallOutcome.RESTORED:
                restored.add(sighting)
            self._outcomes[outcome] += 1
            if outcome in MAY_GO:
                may_go.append(tag)
        scan.acknowledge(may_go)
        self._fault("recall.acknowledged")
        return len(may_go)

    def _sighting(self, message: LevelMessage) -> Sighting | None:
        """Return which row *message* is; None when it is no message of this ledger."""
        timeout_id = message.headers.get(RELATED_TO_TIMEOUT_ID)
        row = row_tag(message.app_id, timeout_id, ledger_id=self._ledger_id)
        return None if row is None else Sighting(row=row, body_bytes=len(message.body))
