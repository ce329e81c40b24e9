"""Undo a migration: first what was claimed and not handed over, then a recall of the rest.

Of the first half, only batches of lanes that nobody works on are touched, lanes of dispatchers
included. Of a commit that was cut off, the broker is asked whether it happened; a batch that was
being published is published once more, so that it belongs to the second half. What a dispatcher
was sending is left alone: `run` finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from migrator.delays.walk import WalkTerms
from migrator.errors import MigratorError, SomeGone, SourceGone
from migrator.ledger.batches import SqlRuns
from migrator.ledger.held_destinations import SqlHeldDestinations
from migrator.ledger.lease_keeper import current_owner, evict_dead, is_surely_dead
from migrator.ledger.leases import SqlLeases
from migrator.ledger.parking import SqlParking
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.run_terms import BrokerPlace
from migrator.ledger.states import HALF_DONE, BatchState, Event, Mode
from migrator.ledger.work import Batch, Batches, Clock, Lease, StoreEndpoint
from migrator.nservicebus.conversion import NOT_TAKEN_BACK
from migrator.nservicebus.timeouts import BatchId, Lane, RunId
from migrator.recall.recall import Progress, Recall, RecallReport, forecast
from migrator.recall.restore import Recalls
from migrator.recall.rules import RecallScope
from migrator.stores.ports import Claims

RELEASABLE: Final = frozenset(
    {BatchState.CLAIMED, BatchState.PARKED, BatchState.STAGING, *HALF_DONE}
)
"""States of batches of which nothing can have left migrator's own queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackScope:
    """Which rows to give back."""

    endpoints: Sequence[StoreEndpoint] | None
    """None: of every endpoint."""
    run: RunId | None
    """None: of every run, and what is in quarantine, too."""
    only_handed_over: bool = False
    """Whether claimed rows and those in quarantine stay; what follows is of handed-over rows."""
    destination: str | None = None
    """As in the Destination column; None: any."""
    due_from: datetime | None = None
    """Inclusive; aware, UTC; None: any."""
    due_until: datetime | None = None
    """Exclusive; aware, UTC; None: any."""

    def covers(self, batch: Batch) -> bool:
        """Return whether *batch*, which is not handed over, is meant."""
        is_run = self.run in (None, batch.run) and not self.only_handed_over
        return is_run and (self.sources is None or batch.source in self.sources)

    @property
    def sources(self) -> Collection[str] | None:
        """Where the endpoints' rows come from; None: of every endpoint."""
        return None if self.endpoints is None else {each.source for each in self.endpoints}

    @property
    def handed_over(self) -> RecallScope:
        """The same of what was handed over."""
        return RecallScope(
            sources=self.sources,
            run=self.run,
            destination=self.destination,
            due_from=self.due_from,
            due_until=self.due_until,
        )


@dataclass(slots=True, kw_only=True)
class RollbackReport:
    """What went back, or would, and what did not."""

    is_dry: bool = False
    rows: int
    """Rows of batches, back in their tables."""
    batches: Sequence[BatchId]
    quarantined: int
    """Rows of settled batches that were in quarantine, back in their tables."""
    untouched: Sequence[BatchId]
    """Batches that may have reached the broker, and are not settled."""
    dispatching: Sequence[BatchId]
    """Those of *untouched* that only a dispatcher settles."""
    busy: Sequence[tuple[Lane, str]]
    """Lanes that somebody works on, with their owners; stop those first."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Rows that stay in quarantine because their store does not take them back, by reason."""
    taken: int = 0
    """Before anything is done: rows whose id their table has again, so that they will stay."""
    left_in_quarantine: str | None = None
    """Why rows stay in quarantine: the store they came from is gone; None: none do for that."""
    stuck: Sequence[BatchId] = ()
    """Batches whose store is gone: of each source one was tried, and the others left alone."""
    doubtful: Sequence[BatchId] = ()
    """Batches of which nobody can tell where their rows are."""
    republished: Sequence[BatchId] = ()
    """Batches that were being published directly: now once more, and so they are handed over."""
    republished_due: int = 0
    """Rows of those that are due, so that they are with their destinations, maybe twice."""
    is_open: bool = False
    """Whether batches that are meant are still claimed, by somebody or on their way."""
    recall: RecallReport | None = None
    """Of what was handed over; None: it was left with the broker."""
    left_staged: int = 0
    """Copies of rows that are back, in staging queues from which nobody sends them."""
    stopped_by: MigratorError | None = None
    """What ended the rollback before it was done."""

    def add(self, later: RollbackReport) -> None:
        """Count what went back later; of what stays, that is what counts."""
        self.rows += later.rows
        self.batches = [*self.batches, *later.batches]
        self.quarantined += later.quarantined
        self.untouched, self.dispatching = later.untouched, later.dispatching
        self.stuck, self.busy = later.stuck, later.busy
        self.left_in_quarantine = later.left_in_quarantine

    @property
    def is_whole(self) -> bool:
        """Whether nothing that is meant is left to somebody else."""
        is_back = self.recall is None or self.recall.is_whole
        stays = self.is_open or self.doubtful or self.left_in_quarantine or self.kept
        return is_back and not stays

    @property
    def document(self) -> dict[str, object]:
        """The same as plain values for JSON."""
        return {
            "dry_run": self.is_dry,
            "rows": self.rows,
            "batches": list(self.batches),
            "quarantined": self.quarantined,
            "untouched": list(self.untouched),
            "republished": list(self.republished),
            "republished_due": self.republished_due,
            "stuck": list(self.stuck),
            "kept": dict(self.kept),
            "taken": self.taken,
            "left_in_quarantine": self.left_in_quarantine,
            "doubtful": list(self.doubtful),
            "left_staged": self.left_staged,
            "busy": [{"lane": lane, "owner": owner} for lane, owner in self.busy],
            "handed_over": None if self.recall is None else self.recall.document,
            "stopped_by": None if self.stopped_by is None else str(self.stopped_by),
        }


_NOTHING: Final = partial(
    RollbackReport, rows=0, batches=(), quarantined=0, untouched=(), dispatching=(), busy=()
)
"""The first half, when it is not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Both halves; made by ``app.rollback``."""

    claims: Claims
    leases: SqlLeases
    batches: Batches
    lease_duration: timedelta
    """For how long each lane is taken at a time."""
    queries: LedgerQueries
    """What is open, doubtful or in quarantine."""
    runs: SqlRuns
    """Gets the event."""
    recalls: Recalls
    """Foretells what a recall finds."""
    clock: Clock
    """The database's time."""
    new_recall: Callable[[], Recall]
    """Called when there is something to recall; raises when no broker is named."""
    held: SqlHeldDestinations
    """Destinations for which rows wait."""
    parking: SqlParking
    """Those rows."""
    settle: Callable[[Collection[Lane], Collection[Batch]], int] | None
    """``handover.lane_recovery.LaneRecovery.recover``; None: no broker is named."""
    place: BrokerPlace
    """The broker and the delays that are gone through."""

    def foretell(self, scope: RollbackScope, terms: WalkTerms | None) -> RollbackReport:
        """Return what would go back, by the ledger; *terms* None: all but what was handed over."""
        report = _NOTHING(is_dry=True) if scope.only_handed_over else self._forecast(scope)
        busy = {lane for lane, _ in self._busy()}
        again = [each for each in self._interrupted(scope) if each.lane not in busy]
        self._note_republished(report, again)
        report.doubtful = self._doubtful(scope)
        if terms is not None:
            report.recall = self._expected(scope, terms)
        return report

    def run(
        self,
        scope: RollbackScope,
        terms: WalkTerms | None,
        watched: Callable[[], AbstractContextManager[Progress]],
    ) -> RollbackReport:
        """Put back what *scope* means; *terms* None: leave with the broker what it has.

        *watched* is entered when the recall begins, and shows how far it is.

        Raises:
            ConfigError: Something was handed over, and no broker is named. Nothing was changed.
            LeaseLost, StoreUnavailable: What was put back stays so; run it again. What stops the
                second half is in the report instead.
        """
        recall, expected = None, None
        if terms is not None:
            expected = self._expected(scope, terms)
            if expected.expected.may_find:
                recall = self.new_recall()
        cut_off, interrupted = self._cut_off(scope), self._interrupted(scope)
        report = _NOTHING() if scope.only_handed_over else self.release(scope)
        report.recall = expected
        try:
            if cut_off or interrupted or (recall is not None and not self.leases.holders()):
                self._settle(scope, report, cut_off, interrupted)
        except MigratorError as exc:
            report.stopped_by = exc
        self._conclude_release(scope, report)
        if report.stopped_by is None:
            try:
                if terms is not None:
                    self._recall(scope, terms, recall, report, watched)
                is_all = scope.run is None and not scope.only_handed_over
                if is_all and report.is_whole and not report.busy:
                    self._forget_held(scope.sources)
            except MigratorError as exc:
                report.stopped_by = exc
        return report

    def _settle(
        self,
        scope: RollbackScope,
        report: RollbackReport,
        lanes: Collection[Lane],
        interrupted: Collection[Batch],
    ) -> None:
        """Have the broker asked what became of *lanes*, and give back what never left them.

        Of the *interrupted* batches it cannot be asked: they are published once more.
        """
        if self.settle is None:
            return
        try:
            report.left_staged = self.settle(lanes, interrupted)
        finally:
            found = [self.batches.find(each.id) for each in interrupted]
            done = [each for each in found if each and each.state is BatchState.HANDED_OVER]
            self._note_republished(report, done)
        if (lanes or interrupted) and not scope.only_handed_over:
            report.add(self.release(scope))

    def _note_republished(self, report: RollbackReport, batches: Sequence[Batch]) -> None:
        now, ids = self.clock.now(), [batch.id for batch in batches]
        report.republished = ids
        report.untouched = [each for each in report.untouched if each not in ids]
        report.republished_due = sum(
            row.due_at <= now for batch in batches for row in self.batches.rows(batch)
        )

    def _conclude_release(self, scope: RollbackScope, report: RollbackReport) -> None:
        if not scope.only_handed_over:
            detail = {"rows": report.rows, "quarantined": report.quarantined, "run": scope.run}
            self.runs.record("rolled_back", detail=detail, batch=None)
            report.kept = self.queries.quarantined_for(NOT_TAKEN_BACK, scope.sources, scope.run)
        report.doubtful = self._doubtful(scope)
        left = (*self.queries.open_batches(), *self.parking.batches())
        report.is_open = any(scope.covers(batch) for batch in left)

    def _recall(
        self,
        scope: RollbackScope,
        terms: WalkTerms,
        recall: Recall | None,
        report: RollbackReport,
        watched: Callable[[], AbstractContextManager[Progress]],
    ) -> None:
        """Bring back what was handed over; more of it than before, if a commit turned out so."""
        report.recall = found = self._expected(scope, terms)
        if found.expected.may_find:
            recall = recall or self.new_recall()
        if recall is not None:
            with watched() as progress:
                report.recall = recall.run(scope.handed_over, terms, found.expected, progress)

    def _cut_off(self, scope: RollbackScope) -> Collection[Lane]:
        """Return the lanes of batches that are meant and were staged, whatever came of that."""
        meant = scope.handed_over
        return {
            batch.lane
            for batch in self.queries.open_batches()
            if batch.mode is Mode.STAGED
            and batch.attempt
            and batch.state not in HALF_DONE
            and meant.may_mean(batch.source, batch.run)
        }

    def _interrupted(self, scope: RollbackScope) -> Sequence[Batch]:
        """Return the batches that are meant and were being published directly.

        Those published to another place than ours are left out: they would be found there only.
        """
        if self.settle is None:
            return ()
        meant = scope.handed_over
        publishing = BatchState.PUBLISHING
        elsewhere = {each.batch for each in self.queries.batches_of_others(self.place, publishing)}
        return [
            batch
            for batch in self.queries.open_batches()
            if batch.mode is not Mode.DISPATCH  # one of `staged` that has no message is published
            and batch.state is publishing
            and batch.id not in elsewhere
            and meant.may_mean(batch.source, batch.run)
        ]

    # ── what was not handed over ────────────────────────────────────────────────────────────

    def release(self, scope: RollbackScope) -> RollbackReport:
        """Give back everything *scope* covers, as far as it was not handed over.

        Repeating is harmless; after a crash, repeating goes on.

        Raises:
            LeaseLost: Somebody took a lane meanwhile. What was given back before stays so.
            StoreUnavailable: As above.
        """
        evict_dead(self.leases)
        busy = self.leases.holders()
        rows, done = 0, []
        untouched, stuck, gone = list[Batch](), list[BatchId](), set[str]()
        for batch, lease in self._batches_in(scope):
            if batch.state not in RELEASABLE:
                untouched.append(batch)
                continue
            if batch.source in gone:  # what is claimed can be handed over, as long as it stays so
                stuck.append(batch.id)
                continue
            try:
                rows += self._release(batch, lease)
            except SourceGone:
                gone.add(batch.source)
                stuck.append(batch.id)
            else:
                done.append(batch.id)
        quarantined, left = self._release_quarantined(scope)
        return RollbackReport(
            rows=rows,
            batches=done,
            quarantined=quarantined,
            left_in_quarantine=left,
            untouched=[batch.id for batch in untouched],
            dispatching=_dispatching(untouched),
            busy=busy,
            stuck=stuck,
        )

    def _batches_in(self, scope: RollbackScope) -> Iterator[tuple[Batch, Lease]]:
        owner = current_owner()
        busy = {lane for lane, _ in self.leases.holders()}
        parked = {batch.lane for batch in self.parking.batches() if scope.covers(batch)}
        for lane in sorted({*self.leases.abandoned_lanes(), *(parked - busy)}):
            lease = self.leases.acquire(lane, owner, self.lease_duration)
            if lease is None:
                continue  # taken since; it shows as busy the next time
            try:
                waiting = self.parking.batches(lane) if lane in parked else ()
                for batch in (*self.batches.open_batches(lease), *waiting):
                    if scope.covers(batch):
                        self.leases.renew(lease, self.lease_duration, doing="rolling back")
                        yield batch, lease
            finally:
                self.leases.release(lease)

    def _release(self, batch: Batch, lease: Lease) -> int:
        if batch.state is BatchState.PARKED:
            if (unparked := self.parking.release(batch, lease)) is None:
                return 0  # a daemon took it since
            batch = unparked
        if batch.state is BatchState.CLAIMING:
            claimed = self.claims.resume(batch, lease)
            if claimed is None:
                return 0  # all of it is somebody else's
            batch = claimed
        if batch.state is BatchState.STAGING:
            # nothing was nacked before COMMITTING, so nothing has left the staging queue
            batch = self.batches.advance(batch, Event.ABANDON, lease)
        return self.claims.release(batch, lease)

    def _release_quarantined(self, scope: RollbackScope) -> tuple[int, str | None]:
        if scope.run is not None:
            return 0, None
        wanted: Sequence[StoreEndpoint | None] | None = scope.endpoints
        back, left = 0, list[str]()
        for endpoint in [None] if wanted is None else wanted:
            try:
                back += self.claims.release_quarantined(endpoint)
            except SomeGone as exc:
                back += exc.back
                left.append(str(exc))
        return back, "; ".join(left) or None

    def _forecast(self, scope: RollbackScope) -> RollbackReport:
        """Return what would be released now; takes no lane, so that nothing at all is written."""
        busy = self._busy()
        lanes = {lane for lane, _ in busy}
        batches = [
            each
            for each in (*self.queries.open_batches(), *self.parking.batches())
            if each.lane not in lanes and scope.covers(each)
        ]
        released = [batch for batch in batches if batch.state in RELEASABLE]
        untouched = [batch for batch in batches if batch.state not in RELEASABLE]
        return RollbackReport(
            is_dry=True,
            rows=sum(batch.size for batch in released),
            batches=[batch.id for batch in released],
            quarantined=0 if scope.run is not None else self._in_quarantine(scope),
            taken=self._taken(scope),
            untouched=[batch.id for batch in untouched],
            dispatching=_dispatching(untouched),
            busy=busy,
        )

    def _taken(self, scope: RollbackScope) -> int:
        sources = self.queries.sources() if scope.sources is None else scope.sources
        found = 0
        for source in sources:
            with suppress(SourceGone):
                found += self.claims.count_taken(source)
        return found

    def _busy(self) -> Sequence[tuple[Lane, str]]:
        return [(lane, who) for lane, who in self.leases.holders() if not is_surely_dead(who)]

    def _in_quarantine(self, scope: RollbackScope) -> int:
        if scope.endpoints is not None:
            return self.queries.quarantined(scope.endpoints)
        return sum(endpoint.quarantined for endpoint in self.queries.progress().endpoints)

    # ── what was ────────────────────────────────────────────────────────────────────────────

    def _expected(self, scope: RollbackScope, terms: WalkTerms) -> RecallReport:
        found = forecast(self.recalls, self.clock, scope.handed_over, terms.margin)
        return RecallReport(expected=found)

    def _doubtful(self, scope: RollbackScope) -> Sequence[BatchId]:
        """Return the batches of which nobody can tell where their rows are."""
        found = (self.batches.find(each.batch) for each in self.queries.progress().doubtful)
        return [batch.id for batch in found if batch is not None and scope.covers(batch)]

    def _forget_held(self, sources: Collection[str] | None) -> None:
        """Have `status` list no destination any more for which nobody is to hand over rows."""
        for each in self.queries.held():
            if sources is None or each.source in sources:
                endpoint = StoreEndpoint(name=each.endpoint, source=each.source)
                self.held.free(endpoint, [each.destination])


def _dispatching(batches: Iterable[Batch]) -> Sequence[BatchId]:
    """Return those of *batches* that a dispatcher was sending."""
    return [batch.id for batch in batches if batch.mode is Mode.DISPATCH]
