"""Going through the rows of the ledger, page by page: is each whole, and was its message seen?

Rules of this file:

* of what an interrupted verification wrote, only that a row's content has its hash is taken over,
  and only where everything else about the row is as it was; what a row is, and whether its message
  was seen, is asked anew;
* ids are given before a claim commits, so a page may be read before a row that belongs on it is
  there: what was claimed meanwhile is gone through once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from migrator.verify.evidence import Line, Word
from migrator.verify.findings import Findings
from migrator.verify.judging import Seen, is_unseen, judge_line, line_of
from migrator.verify.places import Ids
from migrator.verify.plan import PAGE_ROWS, Parts, VerifyPlan
from migrator.verify.ports import AuditedRow
from migrator.verify.report import Discrepancy

_MOST_UNSEEN: Final = 100_000
"""Timeouts that are looked for again; where more are missing, more is wrong than one by one."""
_LONGEST_CLAIM: Final = timedelta(minutes=15)
"""The database ends a claim's statements and its idling long before."""
_CHANGED: Final = "headers or body in the ledger are not what was claimed"


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
        self.taken_over = 0
        """Rows of which an interrupted verification compared it."""
        self.unseen: dict[int, Line] = {}
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
            StoreUnavailable, LedgerError, ConfigError: As books and evidence do.
        """
        began_at, begun_s = self._parts.clock.now(), self._parts.clock.monotonic_s()
        evidence = self._parts.evidence
        earlier = _Earlier(() if evidence is None else evidence.taken_over())
        at_once = min(PAGE_ROWS, self._plan.rate or PAGE_ROWS)
        after, done = 0, 0
        while page := self._parts.books.rows(after=after, at_most=at_once):
            after, done = page[-1].id, done + len(page)
            self._page(page, earlier.up_to(after))
            self._parts.progress("rows", done)
            self._parts.fault("verify.page")
            if self._plan.rate:
                ahead_s = begun_s + self.checked / self._plan.rate
                self._parts.wait(max(ahead_s - self._parts.clock.monotonic_s(), 0.0))
        earlier.exhaust()
        self._late(began_at - _LONGEST_CLAIM, up_to=after)

    def _late(self, since: datetime, *, up_to: int) -> None:
        """Look at rows whose claim was committed after the page they belong on was read."""
        after = 0
        while page := self._parts.books.rows(after=after, at_most=PAGE_ROWS, claimed_since=since):
            after = page[-1].id
            if late := [row for row in page if row.id <= up_to and row.id not in self._met]:
                self._page(late, {})
            if after >= up_to:
                return

    def _page(self, page: Sequence[AuditedRow], earlier: Mapping[int, Line]) -> None:
        for row in page:
            self._met.add(row.id)
        rows = [row for row in page if self._plan.covers(row.endpoint)]
        taken = {row.id for row in rows if _is_as_it_was(row, earlier.get(row.id))}
        intact = self._parts.books.intact([row.id for row in rows if row.id not in taken])
        self.checked += len(intact)
        self.taken_over += len(taken)
        now = self._parts.clock.now()
        lines = []
        for row in rows:
            if row.id not in taken and row.id not in intact:
                continue  # purged since the page was read
            line = line_of(row, is_intact=row.id in taken or intact[row.id])
            line = judge_line(line, now=now, seen=self._seen)
            lines.append(line)
            if not line.is_intact:
                self._findings.add_line(Discrepancy.CONTENT_CHANGED, line, _CHANGED)
            self._find_unseen(line, row.handed_over_at)
        if self._parts.evidence is not None and lines:
            self._parts.evidence.write(lines)

    def _find_unseen(self, line: Line, handed_over_at: datetime | None) -> None:
        seen = self._seen
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


class _Earlier:
    """Lines of an interrupted verification, beside the pages of the ledger."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = iter(lines)
        self._next = next(self._lines, None)

    def up_to(self, last: int) -> Mapping[int, Line]:
        """Return the next lines, by id, as long as none is beyond *last*."""
        found = {}
        while self._next is not None and self._next.id <= last:
            found[self._next.id] = self._next
            self._next = next(self._lines, None)
        return found

    def exhaust(self) -> None:
        """Read what is left, of rows that the ledger no longer has."""
        while self._next is not None:
            self._next = next(self._lines, None)


def _is_as_it_was(row: AuditedRow, earlier: Line | None) -> bool:
    """Return whether *row* was intact, and nothing but its message may be elsewhere now."""
    if earlier is None or not earlier.is_intact:
        return False
    unjudged = replace(earlier, delays=None, level=None, verdict=Word.NOT_LOOKED)
    return unjudged == line_of(row, is_intact=True)
