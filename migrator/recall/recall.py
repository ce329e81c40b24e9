"""Bring handed-over timeouts back out of the delay levels, into the store they came from.

Rules of this file:

* the recall's own lease is held from the first look to the last acknowledgement, so no lane of
  hand-over begins meanwhile; whatever is refused, is refused before anything was changed;
* a message is acknowledged after its row is restored and committed, so a crash in between leaves
  a copy that the next recall takes away; everything else goes back with its original expiry.

Source: design section 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import Engine

from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits, find_tagged
from migrator.delays.tagged import TaggedMessage
from migrator.delays.walk import LevelPass, WalkProgress, WalkTerms, demand_shallow, walk
from migrator.ledger.batches import SqlRuns
from migrator.ledger.lease_keeper import OwnedLease, recalling_alone
from migrator.ledger.leases import SqlLeases
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Clock, FaultPoint
from migrator.nservicebus.timeouts import BITS
from migrator.recall.queries import forecast
from migrator.recall.restore import Recalls
from migrator.recall.rules import (
    MAY_GO,
    STAYED,
    RecallForecast,
    RecallOutcome,
    Scope,
    demand_settled,
)

if TYPE_CHECKING:  # most verbs only ask what could be recalled
    from migrator.delays.walk import LevelAccess

_SEEN_AND_LEFT: Final = (
    RecallOutcome.TAKEN,
    RecallOutcome.REFUSED,
    RecallOutcome.STORE_GONE,
    RecallOutcome.DIFFERENT,
)
Progress = Callable[[WalkProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallReport:
    """What a recall was to find, and what it found."""

    expected: RecallForecast
    outcomes: Mapping[RecallOutcome, int] | None = None
    """How many messages turned out to be what.

    None: nothing was taken out of the levels, because it was not requested or none is there.
    """
    unfinished: Sequence[int] = ()
    """Levels that hold more than could be looked at within the hold time; run it again."""
    not_found: int = 0
    """Rows that should be in the levels, and were met nowhere."""

    @property
    def is_whole(self) -> bool:
        """Whether everything that was to come back is back."""
        stayed = any(self.counts[each] for each in STAYED)
        return not (self.unfinished or stayed or self.not_found)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many messages turned out to be what, zeros included."""
        outcomes = self.outcomes or {}
        return {str(outcome): outcomes.get(outcome, 0) for outcome in RecallOutcome}

    @property
    def document(self) -> dict[str, object]:
        """The same as plain values for JSON."""
        found: dict[str, object] = {"expected": self.expected.document}
        if self.outcomes is not None:
            found["found"] = self.counts
            found["not_found"] = self.not_found
            found["unfinished_levels"] = list(self.unfinished)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Recalls while no lane claims; made by ``app.rollback``."""

    engine: Engine
    """The ledger's database."""
    tables: LedgerTables
    recalls: Recalls
    """The store's and the ledger's side."""
    access: LevelAccess
    """How the levels are reached."""
    version: DelaysVersion
    """Whose levels are gone through."""
    leases: SqlLeases
    """The lanes."""
    lease_duration: timedelta
    """For how long the recall's own is taken at a time."""
    queries: LedgerQueries
    """Which batches are open."""
    runs: SqlRuns
    """Gets the event."""
    clock: Clock
    """The database's time."""
    ledger_id: str
    """By whose tag our messages are known."""
    fault: FaultPoint
    """Called at each step."""

    def run(
        self, scope: Scope, terms: WalkTerms, expected: RecallForecast, progress: Progress
    ) -> RecallReport:
        """Restore what *scope* means, record it, and count what is met nowhere.

        Repeating goes on after a crash.

        Raises:
            PreflightRefused: Another process owns lanes, batches are open, or a level is too deep.
                Nothing was changed.
            LeaseLost, StoreUnavailable, TargetError: What was restored stays so; run it again.
        """
        with recalling_alone(self.leases, self.lease_duration) as held:
            demand_settled(self.queries.open_batches(), scope)
            self.access.wait_until_routed()
            with self.access.open(self.version) as levels:
                walked = _Walk(recall=self, scope=scope, terms=terms, held=held, progress=progress)
                unfinished = walked.run(levels)
        done = RecallReport(expected=expected, outcomes=walked.outcomes, unfinished=unfinished)
        self.runs.record("recalled", detail=done.counts, batch=None)
        seen = sum(done.counts[each] for each in _SEEN_AND_LEFT)
        now = self.clock.now()
        remaining = forecast(
            self.engine, self.tables, scope, now=now, not_before=now + terms.margin
        ).in_levels
        return replace(done, not_found=max(remaining - seen, 0))


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Goes through all levels once, while the lease is held."""

    recall: Recall
    scope: Scope
    terms: WalkTerms
    held: OwnedLease
    progress: Progress
    outcomes: Counter[RecallOutcome] = field(default_factory=Counter)
    seen: int = 0

    def run(self, levels: Levels) -> Sequence[int]:
        """Return the levels that were not seen to their end."""
        waiting = levels.ready()
        demand_shallow(waiting, self.terms.deepest)
        # also empty ones: what is above them comes down meanwhile
        there = [level for level in range(BITS) if level in waiting]
        passes = walk(levels, there, self.terms.limits, self._meet, again=_once_more)
        return [found.level for found in passes if not found.is_whole]

    def _meet(self, level: int, scan: LevelScan, found: Sequence[LevelMessage]) -> int:
        self.held.check()
        self.seen += len(found)
        taken = self._chunk(level, scan, found)
        restored = self.outcomes[RecallOutcome.RESTORED]
        self.progress(WalkProgress(level=level, seen=self.seen, restored=restored))
        return taken

    def _chunk(self, level: int, scan: LevelScan, found: Sequence[LevelMessage]) -> int:
        tagged = {m.tag: t for m in found if (t := self._tagged(level, m)) is not None}
        outcomes = self.recall.recalls.restore(
            set(tagged.values()),
            self.scope,
            self.held.lease,
            not_before=self.recall.clock.now() + self.terms.margin,
        )
        self.recall.fault("recall.restored")
        may_go, restored = [], set[tuple[int, int]]()
        for tag, message in tagged.items():
            outcome = outcomes[message]
            if outcome is RecallOutcome.RESTORED:
                if message.row in restored:  # it is back once, whatever copies of it there are
                    outcome = RecallOutcome.LEFTOVER
                restored.add(message.row)
            self.outcomes[outcome] += 1
            if outcome in MAY_GO:
                may_go.append(tag)
        scan.acknowledge(may_go)
        self.recall.fault("recall.acknowledged")
        return len(may_go)

    def _tagged(self, level: int, message: LevelMessage) -> TaggedMessage | None:
        version, ledger_id = self.recall.version, self.recall.ledger_id
        return find_tagged(message, version, level, ledger_id=ledger_id)


def _once_more(found: LevelPass) -> ScanLimits | None:
    """Go on with a level as long as something leaves it; else the same would be in front again."""
    return None if found.end is ScanEnd.EMPTY or not found.done else found.limits
