"""Undo a migration: first what was claimed and not handed over, then a recall of the rest.

Of the first half, only batches of lanes without an owner are touched, lanes of dispatchers
included. Of a commit that was cut off, the broker is asked whether it happened; a batch that was
being published is published once more, so that it belongs to the second half. What a dispatcher
was sending is left alone: `run` finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from sqlalchemy import Engine

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
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import Batch, Batches, Clock, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, Lane
from migrator.recall.queries import forecast, kept_in_quarantine
from migrator.recall.recall import Progress, Recall, RecallReport
from migrator.recall.rules import RecallForecast, Scope
from migrator.stores.ports import Claims

RELEASABLE: Final = frozenset(
    {BatchState.CLAIMED, BatchState.PARKED, BatchState.STAGING, *HALF_DONE}
)
"""States of batches of which nothing can have left migrator's own queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What goes back of what was not handed over, and what does not."""

    rows: int = 0
    """Rows of batches, back in their tables."""
    batches: Sequence[BatchId] = ()
    quarantined: int = 0
    """Rows of completed batches that were in quarantine, back in their tables."""
    untouched: Sequence[BatchId] = ()
    """Batches that may have reached the broker, and are open."""
    dispatching: Sequence[BatchId] = ()
    """Those of *untouched* that only a dispatcher completes."""
    busy: Sequence[tuple[Lane, str]] = ()
    """Lanes that another process works on, with their owners; stop those first."""
    left_in_quarantine: str | None = None
    """Why rows stay in quarantine: the store they came from is gone; None: none do for that."""
    stuck: Sequence[BatchId] = ()
    """Batches whose store is gone: of each source one was tried, and the others left alone."""

    def then(self, later: Released) -> Released:
        """Return this with what went back later; of what stays, the later answer counts."""
        return replace(
            later,
            rows=self.rows + later.rows,
            batches=[*self.batches, *later.batches],
            quarantined=self.quarantined + later.quarantined,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What is to go back, as the ledger has it now; nothing was changed."""

    scope: Scope
    terms: WalkTerms | None
    """How what was handed over is recalled; None: it stays with the broker."""
    busy: Sequence[tuple[Lane, str]]
    """Lanes that another process works on, with their owners."""
    batches: Sequence[Batch]
    """Those that are meant and were not handed over, in lanes that are not busy."""
    cut_off: Collection[Lane]
    """Lanes of batches that are meant and were staged, whatever came of that."""
    interrupted: Sequence[Batch]
    """Batches that are meant and were being published directly."""
    expected: RecallForecast | None
    """What a recall is to find; None: it is not wanted."""

    @property
    def released(self) -> Sequence[Batch]:
        """Those of ``batches`` that go back."""
        return [batch for batch in self.batches if batch.state in RELEASABLE]

    @property
    def untouched(self) -> Sequence[Batch]:
        """Those of ``batches`` that may have reached the broker."""
        return [batch for batch in self.batches if batch.state not in RELEASABLE]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackResult:
    """What went back, or would, and what did not."""

    is_dry: bool = False
    released: Released
    kept: Mapping[str, int] = field(default_factory=dict)
    """Rows that stay in quarantine because their store does not take them back, by reason."""
    taken: int = 0
    """Before anything is done: rows whose id their table has again, so that they will stay."""
    doubtful: Sequence[BatchId] = ()
    """Batches of which it is unknown where their rows are."""
    republished: Sequence[BatchId] = ()
    """Batches that were being published directly: now once more, and so they are handed over."""
    republished_due: int = 0
    """Rows of those that are due, so that they are with their destinations, maybe twice."""
    is_open: bool = False
    """Whether batches that are meant are still claimed, by another process or in transit."""
    recall: RecallReport | None = None
    """Of what was handed over; None: it was left with the broker."""
    left_staged: int = 0
    """Copies of rows that are back, in staging queues from which nothing is sent."""
    stopped_by: MigratorError | None = None
    """What ended the rollback before it was done."""

    @property
    def untouched(self) -> Sequence[BatchId]:
        """Batches that may have reached the broker, and are open."""
        return [each for each in self.released.untouched if each not in self.republished]

    @property
    def is_whole(self) -> bool:
        """Whether nothing that is meant remains."""
        is_back = self.recall is None or self.recall.is_whole
        stays = self.is_open or self.doubtful or self.released.left_in_quarantine or self.kept
        return is_back and not stays

    @property
    def document(self) -> dict[str, object]:
        """The same as plain values for JSON."""
        released = self.released
        return {
            "dry_run": self.is_dry,
            "rows": released.rows,
            "batches": list(released.batches),
            "quarantined": released.quarantined,
            "untouched": list(self.untouched),
            "republished": list(self.republished),
            "republished_due": self.republished_due,
            "stuck": list(released.stuck),
            "kept": dict(self.kept),
            "taken": self.taken,
            "left_in_quarantine": released.left_in_quarantine,
            "doubtful": list(self.doubtful),
            "left_staged": self.left_staged,
            "busy": [{"lane": lane, "owner": owner} for lane, owner in released.busy],
            "handed_over": None if self.recall is None else self.recall.document,
            "stopped_by": None if self.stopped_by is None else str(self.stopped_by),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Both halves; made by ``app.rollback``."""

    engine: Engine
    """The ledger's database."""
    tables: LedgerTables
    claims: Claims
    leases: SqlLeases
    batches: Batches
    lease_duration: timedelta
    """For how long each lane is taken at a time."""
    queries: LedgerQueries
    """What is open, doubtful or in quarantine."""
    runs: SqlRuns
    """Gets the event."""
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

    def plan(self, scope: Scope, terms: WalkTerms | None) -> RollbackPlan:
        """Return what is to go back; *terms* None: all but what was handed over."""
        busy = [(lane, who) for lane, who in self.leases.holders() if not is_surely_dead(who)]
        busy_lanes = {lane for lane, _ in busy}
        opened = self.queries.open_batches()
        there = (*opened, *self.parking.batches())
        return RollbackPlan(
            scope=scope,
            terms=terms,
            busy=busy,
            batches=[each for each in there if each.lane not in busy_lanes and scope.covers(each)],
            cut_off={
                batch.lane
                for batch in opened
                if batch.mode is Mode.STAGED
                and batch.attempt
                and batch.state not in HALF_DONE
                and scope.may_mean(batch)
            },
            interrupted=self._interrupted(opened, scope),
            expected=None if terms is None else self._expected(scope, terms),
        )

    def foretell(self, plan: RollbackPlan) -> RollbackResult:
        """Return what would come of *plan*, by the ledger; nothing is changed."""
        scope, busy = plan.scope, {lane for lane, _ in plan.busy}
        again = [batch for batch in plan.interrupted if batch.lane not in busy]
        released = Released(
            rows=sum(batch.size for batch in plan.released),
            batches=[batch.id for batch in plan.released],
            quarantined=self._in_quarantine(scope) if scope.takes_quarantined else 0,
            untouched=[batch.id for batch in plan.untouched],
            dispatching=_dispatching(plan.untouched),
            busy=plan.busy,
        )
        return RollbackResult(
            is_dry=True,
            released=Released() if scope.only_handed_over else released,
            taken=0 if scope.only_handed_over else self._taken(scope),
            doubtful=self._doubtful(scope),
            republished=[batch.id for batch in again],
            republished_due=self._due_rows(again),
            recall=None if plan.expected is None else RecallReport(expected=plan.expected),
        )

    def apply(
        self, plan: RollbackPlan, watched: Callable[[], AbstractContextManager[Progress]]
    ) -> RollbackResult:
        """Put back what *plan* means.

        *watched* is entered when the recall begins, and shows how far it is.

        Raises:
            ConfigError: Something was handed over, and no broker is named. Nothing was changed.
            LeaseLost, StoreUnavailable: What was put back stays so; run it again. What stops the
                second half is in the result instead.
        """
        scope, terms, expected = plan.scope, plan.terms, plan.expected
        recall = self.new_recall() if expected is not None and expected.may_find else None
        released = Released() if scope.only_handed_over else self.release(scope)
        republished: Sequence[Batch] = ()
        left_staged, stopped_by = 0, None
        is_cut_off = bool(plan.cut_off or plan.interrupted) and self.settle is not None
        try:
            if is_cut_off or (recall is not None and not self.leases.holders()):
                left_staged = self.settle(plan.cut_off, plan.interrupted) if self.settle else 0
        except MigratorError as exc:
            stopped_by = exc
        try:
            republished = self._republished(plan.interrupted)
            if is_cut_off and stopped_by is None and not scope.only_handed_over:
                released = released.then(self.release(scope))
        except MigratorError as exc:
            stopped_by = exc
        result = RollbackResult(
            released=released,
            kept=self._recorded(scope, released),
            doubtful=self._doubtful(scope),
            republished=[batch.id for batch in republished],
            republished_due=self._due_rows(republished),
            is_open=any(
                scope.covers(batch)
                for batch in (*self.queries.open_batches(), *self.parking.batches())
            ),
            recall=None if expected is None else RecallReport(expected=expected),
            left_staged=left_staged,
            stopped_by=stopped_by,
        )
        if stopped_by is not None:
            return result
        try:
            if terms is not None:
                # more of it than before, if a commit turned out so
                expected = self._expected(scope, terms)
                result = replace(result, recall=RecallReport(expected=expected))
                if expected.may_find or recall is not None:
                    recall = recall or self.new_recall()
                    with watched() as progress:
                        found = recall.run(scope, terms, expected, progress)
                    result = replace(result, recall=found)
            if scope.takes_quarantined and result.is_whole and not released.busy:
                self._forget_held(scope.sources)
        except MigratorError as exc:
            return replace(result, stopped_by=exc)
        return result

    def _interrupted(self, opened: Iterable[Batch], scope: Scope) -> Sequence[Batch]:
        """Return those of *opened* that are meant and were being published directly.

        Those published to another place than ours are left out: they would be found there only.
        """
        if self.settle is None:
            return ()
        publishing = BatchState.PUBLISHING
        elsewhere = {each.batch for each in self.queries.batches_of_others(self.place, publishing)}
        return [
            batch
            for batch in opened
            if batch.mode is not Mode.DISPATCH  # one of `staged` that has no message is published
            and batch.state is publishing
            and batch.id not in elsewhere
            and scope.may_mean(batch)
        ]

    def _republished(self, interrupted: Iterable[Batch]) -> Sequence[Batch]:
        found = [self.batches.find(each.id) for each in interrupted]
        return [each for each in found if each and each.state is BatchState.HANDED_OVER]

    def _due_rows(self, batches: Iterable[Batch]) -> int:
        now = self.clock.now()
        return sum(row.due_at <= now for batch in batches for row in self.batches.rows(batch))

    def _recorded(self, scope: Scope, released: Released) -> Mapping[str, int]:
        """Record what went back; return what stays in quarantine, by reason."""
        if scope.only_handed_over:
            return {}
        detail = {"rows": released.rows, "quarantined": released.quarantined, "run": scope.run}
        self.runs.record("rolled_back", detail=detail, batch=None)
        return kept_in_quarantine(self.engine, self.tables, scope)

    # ── what was not handed over ────────────────────────────────────────────────────────────

    def release(self, scope: Scope) -> Released:
        """Give back everything *scope* covers, as far as it was not handed over.

        Repeating is harmless; after a crash, repeating goes on.

        Raises:
            LeaseLost: Another process took a lane meanwhile. What was given back before stays so.
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
        return Released(
            rows=rows,
            batches=done,
            quarantined=quarantined,
            left_in_quarantine=left,
            untouched=[batch.id for batch in untouched],
            dispatching=_dispatching(untouched),
            busy=busy,
            stuck=stuck,
        )

    def _batches_in(self, scope: Scope) -> Iterator[tuple[Batch, Lease]]:
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
                return 0  # all of it belongs to other senders
            batch = claimed
        if batch.state is BatchState.STAGING:
            # nothing was nacked before COMMITTING, so nothing has left the staging queue
            batch = self.batches.advance(batch, Event.ABANDON, lease)
        return self.claims.release(batch, lease)

    def _release_quarantined(self, scope: Scope) -> tuple[int, str | None]:
        if not scope.takes_quarantined:
            return 0, None
        wanted: Collection[StoreEndpoint | None] | None = scope.endpoints
        back, left = 0, list[str]()
        for endpoint in [None] if wanted is None else wanted:
            try:
                back += self.claims.release_quarantined(endpoint)
            except SomeGone as exc:
                back += exc.back
                left.append(str(exc))
        return back, "; ".join(left) or None

    def _taken(self, scope: Scope) -> int:
        sources = self.queries.sources() if scope.sources is None else scope.sources
        found = 0
        for source in sources:
            with suppress(SourceGone):
                found += self.claims.count_taken(source)
        return found

    def _in_quarantine(self, scope: Scope) -> int:
        if scope.endpoints is not None:
            return self.queries.quarantined([*scope.endpoints])
        return sum(endpoint.quarantined for endpoint in self.queries.progress().endpoints)

    # ── what was ────────────────────────────────────────────────────────────────────────────

    def _expected(self, scope: Scope, terms: WalkTerms) -> RecallForecast:
        now = self.clock.now()
        return forecast(self.engine, self.tables, scope, now=now, not_before=now + terms.margin)

    def _doubtful(self, scope: Scope) -> Sequence[BatchId]:
        """Return the batches of which it is unknown where their rows are."""
        found = (self.batches.find(each.batch) for each in self.queries.progress().doubtful)
        return [batch.id for batch in found if batch is not None and scope.covers(batch)]

    def _forget_held(self, sources: Collection[str] | None) -> None:
        """Have `status` list no destination any more whose rows are no longer handed over."""
        for each in self.queries.held():
            if sources is None or each.source in sources:
                endpoint = StoreEndpoint(name=each.endpoint, source=each.source)
                self.held.free(endpoint, [each.destination])


def _dispatching(batches: Iterable[Batch]) -> Sequence[BatchId]:
    """Return those of *batches* that a dispatcher was sending."""
    return [batch.id for batch in batches if batch.mode is Mode.DISPATCH]
