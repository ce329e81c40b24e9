"""Going through the rows of the ledger, page by page: is each whole, and was its message seen?

What an interrupted verification wrote about rows is taken over, and judged anew only where levels
decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from migrator.domain.evidence import Line, Word
from migrator.domain.verification import Discrepancy
from migrator.engine.verify.findings import Findings
from migrator.engine.verify.judging import Seen, is_unseen, judge_line, line_of
from migrator.engine.verify.plan import PAGE_ROWS, Parts, VerifyPlan
from migrator.ports.verification import AuditedRow

_MOST_UNSEEN: Final = 100_000
"""Timeouts that are looked for again; where more are missing, more is wrong than one by one."""
_CHANGED: Final = "headers or body in the ledger are not what was claimed"
_DECIDED_LATER: Final = frozenset({*Discrepancy, Word.NOT_SEEN}) - {Discrepancy.CONTENT_CHANGED}
"""Verdicts that an interrupted verification had from levels, or from its end."""


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
        self.checked = 0
        """Rows of which the content was compared, those taken over included."""
        self.unseen: dict[int, Line] = {}
        """Rows whose message should have been seen, by the ledger's id."""
        self.uncounted = 0
        """Such rows beyond those that are looked for again."""
        self.too_new = 0
        """Rows handed over after going through the levels began, and not seen."""
        self.handed_over_last: datetime | None = None
        """When the latest of the unseen was; None: there is none."""
        self.changes: dict[int, Line] = {}
        """Lines that were written, and are otherwise now."""

    def run(self) -> None:
        """Look at every row.

        Raises:
            StoreUnavailable, LedgerError, ConfigError: As books and evidence do.
        """
        after = self._take_over()
        at_once = min(PAGE_ROWS, self._plan.rate or PAGE_ROWS)
        begun_s, done = self._parts.clock.monotonic_s(), 0
        while page := self._parts.books.rows(after=after, at_most=at_once):
            after, done = page[-1].id, done + len(page)
            self._page([row for row in page if self._plan.covers(row.endpoint)])
            self._parts.progress("rows", done)
            self._parts.fault("verify.page")
            if self._plan.rate:
                ahead_s = begun_s + done / self._plan.rate - self._parts.clock.monotonic_s()
                self._parts.wait(max(ahead_s, 0.0))

    def _take_over(self) -> int:
        """Count what an interrupted verification wrote; return the id of its last row."""
        if self._parts.evidence is None:
            return 0
        after = 0
        for line in self._parts.evidence.taken_over():
            after = line.id
            now = judge_line(line, now=self._parts.clock.now(), seen=self._seen)
            if now.verdict != line.verdict and not _DECIDED_LATER.isdisjoint(
                (now.verdict, line.verdict)
            ):
                self.changes[line.id] = now
            self._count(now)
            if self._seen is not None and self._is_unseen(now, self._seen):
                self._remember(now, self._seen.began_at)  # at the latest: the line is older
        return after

    def _page(self, rows: Sequence[AuditedRow]) -> None:
        now = self._parts.clock.now()
        lines = [judge_line(line_of(row), now=now, seen=self._seen) for row in rows]
        for row, line in zip(rows, lines, strict=True):
            self._count(line)
            if self._seen is None or not self._is_unseen(line, self._seen):
                continue
            handed_over_at = row.handed_over_at
            if handed_over_at is not None and handed_over_at < self._seen.began_at:
                self._remember(line, handed_over_at)
            else:
                self.too_new += 1
        if self._parts.evidence is not None and lines:
            self._parts.evidence.write(lines)

    def _is_unseen(self, line: Line, seen: Seen) -> bool:
        return is_unseen(line, now=self._parts.clock.now(), seen=seen)

    def _count(self, line: Line) -> None:
        self.checked += 1
        if not line.is_intact:
            self._findings.add_line(Discrepancy.CONTENT_CHANGED, line, _CHANGED)

    def _remember(self, line: Line, handed_over_at: datetime) -> None:
        self.handed_over_last = max(self.handed_over_last or handed_over_at, handed_over_at)
        if len(self.unseen) < _MOST_UNSEEN:
            self.unseen[line.id] = line
        else:
            self.uncounted += 1
