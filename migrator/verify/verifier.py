"""One verification: the levels, the rows, what is missing, the sums; then the verdict.

The order matters: levels first, so that whatever the ledger said to be handed over before must
have been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from migrator.delays.routing import TOP_LEVEL
from migrator.nservicebus.timeouts import BatchId
from migrator.verify.counting import count_levels
from migrator.verify.evidence import Line
from migrator.verify.findings import Findings
from migrator.verify.judging import Seen, judge_line, line_of
from migrator.verify.missing import MissingLook
from migrator.verify.plan import ASKED, Generations, Parts, VerifyPlan, generations
from migrator.verify.report import (
    SLACK,
    BatchGap,
    DestinationBalance,
    Discrepancy,
    EndpointBalance,
    LevelBalance,
    Verification,
    level_text,
)
from migrator.verify.rows import RowPass
from migrator.verify.sweep import FirstLook, sweep

T = TypeVar("T")


class Verifier:
    """Looks at everything once, and at what looks wrong once more."""

    def __init__(self, parts: Parts, plan: VerifyPlan) -> None:
        """Prepare; nothing is asked yet."""
        self._parts = parts
        self._plan = plan
        self._findings = Findings(plan.shown)

    def run(self) -> Verification:
        """Return what agrees and what does not; the evidence has a line for every timeout then.

        Raises:
            TargetError: The broker cannot be asked. Nothing was changed.
            StoreUnavailable, LedgerError: Nor can the ledger.
            ConfigError: The evidence cannot be written; what was written is kept.
        """
        parts, plan, findings = self._parts, self._plan, self._findings
        taken_at = parts.clock.now()
        found = generations(parts, plan)
        look = self._first_look(found) if plan.is_scan else None
        rows = RowPass(parts, plan, findings, look.seen if look else None)
        rows.run()
        changes: dict[int, Line] = {}
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
            rows_taken_over=rows.taken_over,
            waiting=waiting,
            discrepancies=tuple(findings.first),
            counts=dict(findings.counts),
            doubtful=tuple(
                d.batch for d in parts.ledger.progress().doubtful if plan.covers(d.endpoint)
            ),
            not_checked=tuple(findings.not_checked),
        )

    def _doubtful(self) -> Sequence[BatchId]:
        doubtful = self._parts.ledger.progress().doubtful
        return tuple(each.batch for each in doubtful if self._plan.covers(each.endpoint))

    def _first_look(self, found: Generations) -> FirstLook:
        look = FirstLook(self._parts, self._plan, self._findings)
        levels = range(TOP_LEVEL, -1, -1)
        unread = sweep(self._parts, self._plan, found.ladders, levels, look.meet)
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
        for gap in sorted({ladder.gap for ladder in found.ladders if is_scanned and ladder.gap}):
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

    def _both_places(self, seen: Seen | None) -> Mapping[int, Line]:
        """Report timeouts that are in store and ledger, twice; return their lines."""
        rows, more = _asked_twice(
            lambda: self._parts.books.in_both_places(self._plan.endpoints, at_most=ASKED),
            lambda row: row.id,
        )
        now = self._parts.clock.now()
        intact = self._parts.books.intact([row.id for row in rows])
        lines = [
            judge_line(line_of(row, is_intact=intact.get(row.id, True)), now=now, seen=seen)
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
            delays=ladder.version,
            level=step.level,
            total=None if step.ready is None else step.known,
            ours=None if look is None else look.ours[ladder.version, step.level],
            foreign=None if look is None else look.foreign[ladder.version, step.level],
        )
        for ladder in found.ladders
        for step in ladder.steps
        if step.exists
    )
