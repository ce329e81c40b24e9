"""Collecting discrepancies: all are counted, the first of each kind are named."""

from __future__ import annotations

from collections import Counter

from migrator.nservicebus.timeouts import BatchId, EndpointName
from migrator.verify.evidence import Line
from migrator.verify.report import Discrepancy, Found


class Findings:
    """What is wrong so far."""

    def __init__(self, shown: int) -> None:
        """Name the first *shown* of each kind."""
        self._shown = shown
        self._named: Counter[Discrepancy] = Counter()
        self.counts: Counter[Discrepancy] = Counter()
        self.first: list[Found] = []
        self.not_checked: list[str] = []

    def add(
        self,
        kind: Discrepancy,
        detail: str,
        *,
        endpoint: EndpointName | None = None,
        timeout_id: str | None = None,
        batch: BatchId | None = None,
    ) -> None:
        """Count one discrepancy, and name it if not too many of its kind are named already."""
        self.counts[kind] += 1
        if self._named[kind] < self._shown:
            self._named[kind] += 1
            self.first.append(
                Found(
                    kind=kind, endpoint=endpoint, timeout_id=timeout_id, batch=batch, detail=detail
                )
            )

    def add_unnamed(self, kind: Discrepancy, count: int, what: str) -> None:
        """Count *count* more of a kind that nobody named, and say so."""
        if count:
            self.counts[kind] += count
            self.not_checked.append(f"{count} {what} more are counted as {kind}, and not named")

    def add_line(self, kind: Discrepancy, line: Line, detail: str) -> None:
        """Count one of a timeout."""
        self.add(kind, detail, endpoint=line.endpoint, timeout_id=line.timeout_id, batch=line.batch)
