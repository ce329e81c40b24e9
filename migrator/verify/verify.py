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

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from migrator import __version__
from migrator.delays.routing import TOP_LEVEL
from migrator.ledger.exclusive import scanning_alone
from migrator.ledger.leases import SqlLeases
from migrator.ledger.runs import SqlRuns
from migrator.nservicebus.timeouts import BatchId
from migrator.stores.ports import Store
from migrator.verify.evidence import open_evidence
from migrator.verify.levels import (
    FirstLook,
    Generations,
    MissingLook,
    Parts,
    VerifyPlan,
    generations,
    sweep,
)
from migrator.verify.report import (
    SLACK,
    BatchGap,
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    EvidenceRecord,
    Findings,
    LevelBalance,
    Verification,
    summary,
)
from migrator.verify.rules import (
    Ids,
    Seen,
    is_unseen,
    judge_record,
    level_text,
)

T = TypeVar("T")

PAGE_ROWS: Final = 1000
"""Rows whose content the database hashes in one statement."""
ASKED: Final = 1000
"""Of what may be wrong in great numbers, so many are named; all are counted."""
_MOST_UNSEEN: Final = 100_000
"""Timeouts that are looked for again; where more are missing, more is wrong than one by one."""
_LONGEST_CLAIM: Final = timedelta(minutes=15)
"""The database ends a claim's statements and its idling long before."""
_CHANGED: Final = "headers or body in the ledger are not what was claimed"
_PATIENCE: Final = timedelta(seconds=8)
"""The broker renews its counts every 5 s."""
_ASK_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Verifies, and records that; made by ``app.commands.new_verify``."""

    parts: Parts
    """Who is asked, without evidence."""
    store: Store
    """Knows endpoints that the ledger does not."""
    leases: SqlLeases
    lease_duration: timedelta
    """For how long that of a scan is taken at a time."""
    runs: SqlRuns
    """Gets the event."""

    def run(self, plan: VerifyPlan, evidence: Path | None) -> tuple[Verification, str | None]:
        """Return what agrees and what does not, and the digest of the evidence.

        Raises:
            UnknownEndpoint: Neither ledger nor store has one that is named.
            PreflightRefused: Somebody recalls, or looks through the levels already.
            TargetError, StoreUnavailable, LedgerError, ConfigError: As ``Verifier.run`` does.
        """
        known = {each.endpoint for each in self.parts.ledger.progress().endpoints}
        for name in sorted(plan.endpoints - known):
            self.store.find(name)
        alone = scanning_alone(self.leases, self.lease_duration)
        with alone if plan.is_scan else nullcontext():
            found, digest = self._verified(plan, evidence)
        self.runs.record("verified", detail=summary(found), batch=None)
        return found, digest

    def _verified(self, plan: VerifyPlan, evidence: Path | None) -> tuple[Verification, str | None]:
        parts = self.parts
        if evidence is None:
            return Verifier(parts, plan).run(), None
        about = {
            "taken_at": parts.clock.now().isoformat(),
            "ledger": parts.ledger_id,
            "version": __version__,
            "delays": "all" if plan.delays is None else str(plan.delays),
            "scan": plan.is_scan,
            "endpoints": sorted(plan.endpoints),
        }
        with open_evidence(evidence, about) as file:
            found = Verifier(replace(parts, evidence=file), plan).run()
            ended_at = parts.clock.now().isoformat()
            return found, file.finish({"ended_at": ended_at, **summary(found)})


class Verifier:
    """Looks at everything once, and at what looks wrong once more."""

    def __init__(self, parts: Parts, plan: VerifyPlan) -> None:
        """Prepare; nothing is asked yet."""
        self._parts = parts
        self._plan = plan
        self._findings = Findings()

    def run(self) -> Verification:
        """Return what agrees and what does not; the evidence has a line for every timeout then.

        Raises:
            TargetError: The broker cannot be asked. Nothing was changed.
            StoreUnavailable, LedgerError: Nor can the ledger.
            ConfigError: The evidence cannot be written.
        """
        parts, plan, findings = self._parts, self._plan, self._findings
        taken_at = parts.clock.now()
        found = generations(parts, plan)
        look = self._first_look(found) if plan.is_scan else None
        rows = RowPass(parts, plan, findings, look.seen if look else None)
        rows.run()
        changes: dict[int, EvidenceRecord] = {}
        if look is not None:
            changes |= MissingLook(parts, plan, findings).run(
                rows.unseen, handed_over_last=rows.handed_over_last
            )
            found = generations(parts, plan)  # what is with us while we look counts as consumed
        destinations = self._destinations()
        waiting = sum(each.waiting for each in destinations)
        if look is None:
            findings.not_checked.append(
                "which messages are in the levels: only --scan looks at each"
            )
            found = count_levels(parts, plan, findings, found, waiting=waiting)
        self._tell_gaps(rows, found, is_scanned=look is not None)
        endpoints = self._balances()
        changes |= self._both_places(look.seen if look else None)
        if parts.evidence is not None and changes:
            parts.evidence.amend(changes)
        return Verification(
            taken_at=taken_at,
            endpoints=endpoints,
            destinations=destinations,
            levels=_levels(found, look),
            rows_checked=rows.checked,
            waiting=waiting,
            discrepancies=tuple(findings.first),
            counts=dict(findings.counts),
            doubtful=self._doubtful(),
            not_checked=tuple(findings.not_checked),
        )

    def _doubtful(self) -> Sequence[BatchId]:
        doubtful = self._parts.ledger.progress().doubtful
        return tuple(each.batch for each in doubtful if self._plan.covers(each.endpoint))

    def _first_look(self, found: Generations) -> FirstLook:
        look = FirstLook(self._parts, self._plan, self._findings)
        levels = range(TOP_LEVEL, -1, -1)
        unread = sweep(self._parts, self._plan, found.depths, levels, look.meet)
        for (delays, level), why in unread.items():
            self._findings.not_checked.append(f"{level_text(delays, level)}: {why}")
        return look

    def _tell_gaps(self, rows: RowPass, found: Generations, *, is_scanned: bool) -> None:
        tell = self._findings.not_checked.append
        for delays in found.left_out:
            tell(f"the {delays} levels: --delays leaves them out")
        if rows.too_new:
            tell(
                f"{rows.too_new} timeouts that were handed over while the levels were gone "
                "through: they were not looked for"
            )
        if rows.uncounted:
            tell(f"{rows.uncounted} timeouts more were in no level; they were not looked for again")
        for gap in sorted({each.gap for each in found.depths if is_scanned and each.gap}):
            tell(f"messages that a level holds back: {gap}")

    # ── sums ────────────────────────────────────────────────────────────────────────────────

    def _destinations(self) -> Sequence[DestinationBalance]:
        now = self._parts.clock.now()
        found = self._parts.books.destinations(now=now + SLACK)
        return tuple(each for each in found if self._plan.covers(each.endpoint))

    def _balances(self) -> Sequence[EndpointBalance]:
        """Return the books of each endpoint; gaps in them are discrepancies."""
        gaps = self._gaps()
        found = self._covered()
        if any(_is_unexplained(each, gaps) for each in found):
            found = self._covered()
            for each in found:
                if _is_unexplained(each, gaps):
                    self._findings.add(
                        _gone_or_too_many(is_gone=each.unaccounted > 0),
                        f"{abs(each.unaccounted)} rows, of {each.claimed} that were claimed",
                        endpoint=each.endpoint,
                    )
        return found

    def _covered(self) -> Sequence[EndpointBalance]:
        found = self._parts.books.balances()
        return tuple(each for each in found if self._plan.covers(each.endpoint))

    def _gaps(self) -> Sequence[BatchGap]:
        """Report batches that have other rows than they should, twice."""
        found, more = _asked_twice(
            lambda: self._parts.books.gaps(self._plan.endpoints, at_most=ASKED),
            lambda gap: (gap.batch, gap.rows < gap.size - gap.purged),
        )
        for gap in found:
            should = gap.size - gap.purged
            self._findings.add(
                _gone_or_too_many(is_gone=gap.rows < should),
                f"batch {gap.batch} ({gap.state}) has {gap.rows} rows and should have {should}",
                endpoint=gap.endpoint,
                batch=gap.batch,
            )
        self._findings.add_unnamed(
            Discrepancy.ROWS_GONE, more, "batches with other rows than they should have"
        )
        return found

    def _both_places(self, seen: Seen | None) -> Mapping[int, EvidenceRecord]:
        """Report timeouts that are in store and ledger, twice; return their lines."""
        rows, more = _asked_twice(
            lambda: self._parts.books.in_both_places(self._plan.endpoints, at_most=ASKED),
            lambda row: row.id,
        )
        now = self._parts.clock.now()
        intact = self._parts.books.intact([row.id for row in rows])
        lines = [
            judge_record(replace(row, is_intact=intact.get(row.id, True)), now=now, seen=seen)
            for row in rows
        ]
        for line in lines:
            detail = f"it is in {line.source}, and in the ledger as {line.state}"
            self._findings.add_line(Discrepancy.IN_BOTH_PLACES, line, detail)
        self._findings.add_unnamed(
            Discrepancy.IN_BOTH_PLACES, more, "timeouts in both store and ledger"
        )
        return {line.id: replace(line, verdict=Discrepancy.IN_BOTH_PLACES) for line in lines}


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


def _gone_or_too_many(*, is_gone: bool) -> Discrepancy:
    return Discrepancy.ROWS_GONE if is_gone else Discrepancy.ROWS_TOO_MANY


def _is_unexplained(balance: EndpointBalance, gaps: Sequence[BatchGap]) -> bool:
    return balance.unaccounted != 0 and not any(g.endpoint == balance.endpoint for g in gaps)


def _levels(found: Generations, look: FirstLook | None) -> Sequence[LevelBalance]:
    return tuple(
        LevelBalance(
            delays=each.version,
            level=step.level,
            total=None if step.ready is None else step.known,
            ours=None if look is None else look.ours[each.version, step.level],
            foreign=None if look is None else look.foreign[each.version, step.level],
        )
        for each in found.depths
        for step in each.steps
        if step.exists
    )


# ── the rows of the ledger ────────────────────────────────────────────────────────────────────────


class RowPass:
    """Goes through the ledger once."""

    def __init__(
        self, parts: Parts, plan: VerifyPlan, findings: Findings, seen: Seen | None
    ) -> None:
        """Prepare; *seen* is what the levels brought to light, None: nobody looked."""
        self._parts = parts
        self._plan = plan
        self._findings = findings
        self._seen = seen
        self._met = Ids()
        self.checked = 0
        """Rows of which the content was compared."""
        self.unseen: dict[int, EvidenceRecord] = {}
        """Rows whose message should have been seen, by the ledger's id."""
        self.uncounted = 0
        """Such rows beyond those that are looked for again."""
        self.too_new = 0
        """Rows handed over after going through the levels began, and not seen."""
        self.handed_over_last: datetime | None = None
        """When the latest of the unseen was; None: there is none."""

    def run(self) -> None:
        """Look at every row.

        Raises:
            StoreUnavailable, LedgerError, ConfigError: As ledger and evidence do.
        """
        began_at, begun_s = self._parts.clock.now(), self._parts.clock.monotonic_s()
        at_once = min(PAGE_ROWS, self._plan.rate or PAGE_ROWS)
        after, done = 0, 0
        while page := self._parts.books.rows(after=after, at_most=at_once):
            after, done = page[-1].id, done + len(page)
            self._page(page)
            self._parts.progress("rows", done)
            self._parts.fault("verify.page")
            if self._plan.rate:
                ahead_s = begun_s + self.checked / self._plan.rate
                self._parts.wait(max(ahead_s - self._parts.clock.monotonic_s(), 0.0))
        self._late(began_at - _LONGEST_CLAIM, up_to=after)

    def _late(self, since: datetime, *, up_to: int) -> None:
        """Look at rows whose claim was committed after the page they belong on was read."""
        after = 0
        while page := self._parts.books.rows(after=after, at_most=PAGE_ROWS, claimed_since=since):
            after = page[-1].id
            if late := [row for row in page if row.id <= up_to and row.id not in self._met]:
                self._page(late)
            if after >= up_to:
                return

    def _page(self, page: Sequence[EvidenceRecord]) -> None:
        for row in page:
            self._met.add(row.id)
        rows = [row for row in page if self._plan.covers(row.endpoint)]
        intact = self._parts.books.intact([row.id for row in rows])
        self.checked += len(intact)
        now = self._parts.clock.now()
        lines = []
        for row in rows:
            if row.id not in intact:
                continue  # purged since the page was read
            line = replace(row, is_intact=intact[row.id])
            line = judge_record(line, now=now, seen=self._seen)
            lines.append(line)
            if not line.is_intact:
                self._findings.add_line(Discrepancy.CONTENT_CHANGED, line, _CHANGED)
            self._find_unseen(line)
        if self._parts.evidence is not None and lines:
            self._parts.evidence.write(lines)

    def _find_unseen(self, line: EvidenceRecord) -> None:
        seen, handed_over_at = self._seen, line.handed_over_at
        if seen is None or not is_unseen(line, now=self._parts.clock.now(), seen=seen):
            return
        if handed_over_at is None or handed_over_at >= seen.began_at:
            self.too_new += 1
            return
        self.handed_over_last = max(self.handed_over_last or handed_over_at, handed_over_at)
        if len(self.unseen) < _MOST_UNSEEN:
            self.unseen[line.id] = line
        else:
            self.uncounted += 1


# ── sums alone ────────────────────────────────────────────────────────────────────────────────────


def count_levels(
    parts: Parts, plan: VerifyPlan, findings: Findings, found: Generations, *, waiting: int
) -> Generations:
    """Report when all levels together hold too few; return what they hold by the last answer.

    Args:
        parts: Who is asked.
        plan: Which endpoints and generations count.
        findings: Gets what is wrong, or not known.
        found: The broker's counts.
        waiting: Timeouts that have to be in the levels by now.
    """
    if _known(found) >= waiting:
        return found
    if gap := _gap(found):
        findings.not_checked.append(
            f"whether all {waiting} timeouts are in the levels: {_known(found)} messages are "
            f"known to be there, and {gap}"
        )
        return found
    until = parts.clock.now() + _PATIENCE
    demand = _waiting(parts, plan, due_after=until + SLACK)
    while _known(found) < demand and parts.clock.now() < until:
        parts.wait(_ASK_AGAIN_S)
        found = generations(parts, plan)
    if _known(found) < demand:
        demand = min(demand, _waiting(parts, plan, due_after=until + SLACK))
    if _known(found) < demand:
        findings.add(
            Discrepancy.TOO_FEW,
            f"the levels hold {_known(found)} messages, those of others included, and {demand} "
            "timeouts have to wait there; --scan tells which are missing",
        )
    return found


def _gap(found: Generations) -> str:
    """Return why the rest may be where nobody counted; empty: it cannot."""
    if found.left_out:
        return f"--delays leaves the levels of {', '.join(found.left_out)} out"
    return "; ".join(sorted({each.gap for each in found.depths if each.gap}))


def _known(found: Generations) -> int:
    return sum(step.known for each in found.depths for step in each.steps)


def _waiting(parts: Parts, plan: VerifyPlan, *, due_after: datetime) -> int:
    found = parts.books.destinations(now=due_after)
    return sum(each.waiting for each in found if plan.covers(each.endpoint))
