"""One verification: the levels, the rows, what is missing, the sums; then the verdict.

Rules of this file:

* the levels come first, so that whatever the ledger said to be handed over before must have been
  seen;
* ids are given before a claim commits, so a page may be read before a row that belongs on it is
  there: what was claimed meanwhile is gone through once more;
* the broker's counts lag by seconds, and a daemon may work meanwhile: whatever looks wrong by
  comparing two answers is asked again, and only timeouts count that have to be there all the time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from migrator import __version__
from migrator.ledger.lease_keeper import scanning_alone
from migrator.text import counted, grouped
from migrator.verify.evidence import EvidenceFile, open_evidence
from migrator.verify.levels import LevelCheck, LevelCounts, VerifyContext, VerifyPlan
from migrator.verify.report import (
    SLACK,
    BatchGap,
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    EvidenceRecord,
    Findings,
    LevelBalance,
    VerifyResult,
    summary,
)
from migrator.verify.rules import Seen, is_waiting, judge_record
from migrator.verify.tagged import TaggedMessages

T = TypeVar("T")

PAGE_ROWS: Final = 1000
"""Rows whose content the database hashes in one statement."""
_IDS_AT_ONCE: Final = 10_000
ASKED: Final = 1000
"""Of what may be wrong in great numbers, so many are named; all are counted."""
_MOST_UNSEEN: Final = 100_000
"""Timeouts that are looked for again; where more are missing, more is wrong than one by one."""
_LONGEST_CLAIM: Final = timedelta(minutes=15)
"""The database ends a claim's statements and its idling long before."""
_CHANGED: Final = "headers or body in the ledger are not what was claimed"


def verify(
    context: VerifyContext, plan: VerifyPlan, evidence: Path | None
) -> tuple[VerifyResult, str | None]:
    """Verify, and record that; return what agrees and what does not, and the evidence's digest.

    Raises:
        UnknownEndpoint: Neither ledger nor store has one that is named.
        PreflightRefused: Another process recalls, or reads the levels already.
        TargetError, StoreUnavailable, LedgerError, ConfigError: As ``Verification.run`` does.
    """
    known = {each.endpoint for each in context.ledger.progress().endpoints}
    for name in sorted(plan.endpoints - known):
        context.store.find(name)
    alone = scanning_alone(context.leases, context.lease_duration)
    with alone if plan.is_scan else nullcontext():
        found, digest = _verified(context, plan, evidence)
    context.runs.record("verified", detail=summary(found), batch=None)
    return found, digest


def _verified(
    context: VerifyContext, plan: VerifyPlan, evidence: Path | None
) -> tuple[VerifyResult, str | None]:
    if evidence is None:
        return Verification(context, plan).run(), None
    about = {
        "taken_at": context.clock.now().isoformat(),
        "ledger": context.ledger_id,
        "version": __version__,
        "delays": "all" if plan.delays is None else str(plan.delays),
        "scan": plan.is_scan,
        "endpoints": sorted(plan.endpoints),
    }
    with open_evidence(evidence, about) as file:
        found = Verification(context, plan, file).run()
        ended_at = context.clock.now().isoformat()
        return found, file.finish({"ended_at": ended_at, **summary(found)})


class Verification:
    """Looks at everything once, and at what looks wrong once more."""

    def __init__(
        self, context: VerifyContext, plan: VerifyPlan, evidence: EvidenceFile | None = None
    ) -> None:
        self._context = context
        self._plan = plan
        self._evidence = evidence
        self._findings = Findings()
        self._met = array("Q")
        """Rows of batches that were claimed lately, by the ledger's id, ascending."""
        self._checked = 0
        """Rows of which the content was compared."""
        self._unseen: dict[int, EvidenceRecord] = {}
        """Rows whose message should have been seen, by the ledger's id."""
        self._uncounted = 0
        """Such rows beyond those that are looked for again."""
        self._too_new = 0
        """Rows handed over after going through the levels began, and not seen."""

    def run(self) -> VerifyResult:
        """Return what agrees and what does not; the evidence has a line for every timeout then.

        Raises:
            TargetError: The broker cannot be asked. Nothing was changed.
            StoreUnavailable, LedgerError: Nor can the ledger.
            ConfigError: The evidence cannot be written, or what was seen in the levels.
        """
        with TaggedMessages() as tagged:
            return self._verified(LevelCheck(self._context, self._plan, self._findings, tagged))

    def _verified(self, check: LevelCheck) -> VerifyResult:
        context, plan, findings = self._context, self._plan, self._findings
        taken_at = context.clock.now()
        changes: dict[int, EvidenceRecord] = {}
        if plan.is_scan:
            check.first()
        self._read_rows(check)
        if plan.is_scan:
            if self._unseen:
                last = max(line.handed_over_at or taken_at for line in self._unseen.values())
                changes |= check.again(self._unseen, handed_over_last=last)
            found = check.counts()  # what is with us while we look counts as consumed
        else:
            findings.not_checked.append(
                "which messages are in the levels: only --deep reads each one"
            )
            found = check.count(self._waiting)
        destinations = self._destinations(context.clock.now() + SLACK)
        self._tell_gaps(found)
        endpoints = self._balances()
        changes |= self._both_places(check)
        if self._evidence is not None and changes:
            self._evidence.amend(changes)
        unread = sorted(context.queries.unread.items())
        findings.not_checked += [f"rows in {source}: {why}" for source, why in unread]
        progress = context.ledger.progress()
        return VerifyResult(
            taken_at=taken_at,
            endpoints=endpoints,
            destinations=destinations,
            levels=self._levels(check, found),
            rows_checked=self._checked,
            waiting=sum(each.waiting for each in destinations),
            discrepancies=tuple(findings.first),
            counts=dict(findings.counts),
            doubtful=tuple(each.batch for each in progress.doubtful if plan.covers(each.endpoint)),
            not_checked=tuple(findings.not_checked),
            unread=tuple(source for source, _ in unread),
            parked=tuple(each for each in progress.held if plan.covers(each.endpoint)),
        )

    def _tell_gaps(self, found: LevelCounts) -> None:
        tell = self._findings.not_checked.append
        for delays in found.left_out:
            tell(f"the {delays} levels: --delays excludes them")
        if self._too_new:
            tell(
                f"{counted(self._too_new, 'timeout')} handed over while the levels were read: not "
                "looked for"
            )
        if self._uncounted:
            tell(f"{counted(self._uncounted, 'more timeout')} in no level: not looked for again")
        for gap in found.gaps if self._plan.is_scan else ():
            tell(f"messages that a level holds back: {gap}")

    def _levels(self, check: LevelCheck, found: LevelCounts) -> Sequence[LevelBalance]:
        ours, foreign = check.ours, check.foreign
        is_scan = self._plan.is_scan
        return tuple(
            LevelBalance(
                delays=delays,
                level=step.level,
                total=check.total(delays, step),
                ours=ours[delays, step.level] if is_scan else None,
                foreign=foreign[delays, step.level] if is_scan else None,
            )
            for delays, step in found.levels
        )

    # ── the rows of the ledger ──────────────────────────────────────────────────────────────

    def _read_rows(self, check: LevelCheck) -> None:
        """Look at every row of the ledger.

        Raises:
            StoreUnavailable, LedgerError, ConfigError: As ledger and evidence do.
        """
        context, rate = self._context, self._plan.rate
        begun_s, since = context.clock.monotonic_s(), context.clock.now() - _LONGEST_CLAIM
        at_once = min(PAGE_ROWS, rate or PAGE_ROWS)
        wanted = self._plan.endpoints
        after, done = 0, 0
        while page := context.queries.rows(after=after, at_most=at_once, endpoints=wanted):
            after, done = page[-1].id, done + len(page)
            self._met.extend(r.id for r in page if r.claimed_at and r.claimed_at >= since)
            self._judge_page(check, page)
            context.progress("rows", done)
            context.fault("verify.page")
            if rate:
                ahead_s = begun_s + self._checked / rate
                context.wait(max(ahead_s - context.clock.monotonic_s(), 0.0))
        late = 0  # rows whose claim was committed after the page they belong on was read
        while late < after and (
            ids := context.queries.claimed_since(since, after=late, at_most=_IDS_AT_ONCE)
        ):
            begin, late = bisect_left(self._met, ids[0]), ids[-1]
            met = {*self._met[begin : bisect_right(self._met, late)]}
            missed = [id_ for id_ in ids if id_ <= after and id_ not in met]
            for start in range(0, len(missed), PAGE_ROWS):
                some = missed[start : start + PAGE_ROWS]
                self._judge_page(check, context.queries.rows_called(some, endpoints=wanted))

    def _judge_page(self, check: LevelCheck, page: Sequence[EvidenceRecord]) -> None:
        now, evidence = self._context.clock.now(), self._evidence
        lines = list[EvidenceRecord]()
        judging: Iterable[tuple[EvidenceRecord, Seen | None]] = (
            check.met(page)
            if self._plan.is_scan
            else ((row, None) for row in page if self._plan.covers(row.endpoint))
        )
        for row, seen in judging:
            self._checked += 1
            if not row.is_intact:
                self._findings.add_line(Discrepancy.CONTENT_CHANGED, row, _CHANGED)
            if seen is not None and not seen.is_there and is_waiting(row, now=now):
                self._keep_unseen(row, check.began_at)
            if evidence is not None:
                lines.append(judge_record(row, now=now, seen=seen))
        if evidence is not None:
            evidence.write(lines)

    def _keep_unseen(self, line: EvidenceRecord, began_at: datetime) -> None:
        if line.handed_over_at is None or line.handed_over_at >= began_at:
            self._too_new += 1
        elif len(self._unseen) < _MOST_UNSEEN:
            self._unseen[line.id] = line
        else:
            self._uncounted += 1

    # ── sums ────────────────────────────────────────────────────────────────────────────────

    def _waiting(self, due_after: datetime) -> int:
        return sum(each.waiting for each in self._destinations(due_after))

    def _destinations(self, due_after: datetime) -> Sequence[DestinationBalance]:
        found = self._context.queries.destinations(now=due_after)
        return tuple(each for each in found if self._plan.covers(each.endpoint))

    def _balances(self) -> Sequence[EndpointBalance]:
        """Return the balance of each endpoint; what is not accounted for is a discrepancy."""
        explained = {gap.endpoint for gap in self._gaps()}

        def ask() -> Sequence[EndpointBalance]:
            found = self._context.queries.balances()
            return tuple(each for each in found if self._plan.covers(each.endpoint))

        def wrong(found: Sequence[EndpointBalance]) -> Sequence[EndpointBalance]:
            return [each for each in found if each.unaccounted and each.endpoint not in explained]

        found = ask()
        if wrong(found):
            found = ask()
        for each in wrong(found):
            self._findings.add(
                _gone_or_too_many(each.unaccounted),
                f"{counted(abs(each.unaccounted), 'row')}, of {grouped(each.claimed)} claimed",
                endpoint=each.endpoint,
            )
        return found

    def _gaps(self) -> Sequence[BatchGap]:
        """Report batches that have other rows than they should, twice."""
        found, more = _asked_twice(
            lambda: self._context.queries.gaps(self._plan.endpoints, at_most=ASKED),
            lambda gap: (gap.batch, gap.rows < gap.size - gap.purged),
        )
        for gap in found:
            should = gap.size - gap.purged
            self._findings.add(
                _gone_or_too_many(should - gap.rows),
                f"batch {gap.batch} ({gap.state}) has {counted(gap.rows, 'row')} and should have "
                + grouped(should),
                endpoint=gap.endpoint,
                batch=gap.batch,
            )
        self._findings.add_unnamed(
            Discrepancy.ROWS_GONE,
            more,
            "batch with missing or extra rows",
            "batches with missing or extra rows",
        )
        return found

    def _both_places(self, check: LevelCheck) -> Mapping[int, EvidenceRecord]:
        """Report timeouts that are in store and ledger, twice; return their lines."""
        rows, more = _asked_twice(
            lambda: self._context.queries.in_both_places(self._plan.endpoints, at_most=ASKED),
            lambda row: row.id,
        )
        now = self._context.clock.now()
        intact = self._context.queries.intact([row.id for row in rows])
        seen = check.seen(rows) if self._plan.is_scan else {}
        lines = [
            judge_record(
                row._replace(is_intact=intact.get(row.id, True)), now=now, seen=seen.get(row.id)
            )
            for row in rows
        ]
        for line in lines:
            detail = f"it is in {line.source}, and in the ledger as {line.state}"
            self._findings.add_line(Discrepancy.IN_BOTH_PLACES, line, detail)
        self._findings.add_unnamed(
            Discrepancy.IN_BOTH_PLACES,
            more,
            "timeout in both store and ledger",
            "timeouts in both store and ledger",
        )
        return {line.id: line._replace(verdict=Discrepancy.IN_BOTH_PLACES) for line in lines}


def _asked_twice(
    ask: Callable[[], tuple[int, Sequence[T]]], key: Callable[[T], object]
) -> tuple[Sequence[T], int]:
    """Return what both answers name, and how many more they count; one is enough if it is empty."""
    total, first = ask()
    if not total:
        return (), 0
    keys = {key(each) for each in first}
    total_again, again = ask()
    more = min(total - len(first), total_again - len(again))
    return [each for each in again if key(each) in keys], more


def _gone_or_too_many(missing: int) -> Discrepancy:
    return Discrepancy.ROWS_GONE if missing > 0 else Discrepancy.ROWS_TOO_MANY
