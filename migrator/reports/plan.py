"""What a run would do, and what would go wrong: the document of ``migrator preview``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.config import EndpointMode
from migrator.delays.routing import DelaysVersion
from migrator.documents import Document
from migrator.nservicebus.timeouts import Count, EndpointName, QueueName
from migrator.preflight.context import Finding, Level, destination_rows, refusals, verdict
from migrator.preview.forecast import Burst
from migrator.preview.report import DispatchedCounts, EndpointCounts, Preview
from migrator.status.remaining import kept_text
from migrator.text import counted, size_words

_WAITS: Final = ("destinations", Level.WARNING)
"""Check and level of a finding whose subject is a destination that cannot be reached."""
_UNTOLD: Final = ("destinations", Level.NOT_CHECKED, "destinations")
"""The same, where the broker could not be asked; bindings alone may be unknown, too."""


class UncountedDocument(Document, title="migrator/preview/1"):
    """`migrator preview --json`, where the rows could not be counted."""

    verdict: Level
    asks_broker: bool
    waiting: Mapping[QueueName, Count] | None
    content_kept: str | None
    """What the ledger would keep for good; None: nothing."""
    findings: Sequence[Finding]


class PreviewDocument(UncountedDocument):
    """`migrator preview --json`."""

    taken_at: datetime
    delays: DelaysVersion
    cutoff_s: float
    horizon_s: float | None
    rate_per_s: float
    estimated_s: float
    late_at_full_pace_s: float
    endpoints: Sequence[EndpointCounts]
    modes: Mapping[EndpointName, EndpointMode]
    dispatched: Sequence[DispatchedCounts]
    dues_per_s: Count
    bursts: Sequence[Burst] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do, and what would go wrong."""

    preview: Preview | None
    """None: the rows could not be counted, and a finding says why."""
    findings: Sequence[Finding]
    asks_broker: bool
    """Whether checks that ask the broker are among them."""
    purge_after: timedelta | None

    @property
    def served(self) -> Collection[str]:
        """The endpoints that a run would serve, unless something refuses it as a whole."""
        counted = () if self.preview is None else self.preview.modes
        return counted.keys() - refusals(self.findings).keys() if counted else ()

    @property
    def waiting(self) -> Mapping[QueueName, int] | None:
        """Rows that would be parked until their destination can be reached, by that.

        None: it is unknown which destinations can.
        """
        untold = ((f.check, f.level, f.subject) == _UNTOLD for f in self.findings)
        if not self.asks_broker or any(untold):
            return None
        warned = {f.subject for f in self.findings if (f.check, f.level) == _WAITS}
        found = self.preview
        rows = destination_rows([*found.endpoints, *found.dispatched] if found else ())
        return {name: count for name, count in sorted(rows.items()) if name in warned}

    @property
    def content_kept(self) -> str | None:
        """What the ledger would keep for good; None: nothing."""
        moved = () if self.preview is None else self.preview.endpoints
        if not (rows := sum(each.to_hand_over for each in moved)):
            return None
        size = size_words(sum(each.bytes for each in moved))
        return kept_text(self.purge_after, f"{counted(rows, 'message')} ({size})")

    @property
    def document(self) -> UncountedDocument:
        """The same for programs; a ``PreviewDocument`` where the rows could be counted."""
        checked = UncountedDocument(
            verdict=verdict(self.findings),
            asks_broker=self.asks_broker,
            waiting=self.waiting,
            content_kept=self.content_kept,
            findings=self.findings,
        )
        found = self.preview
        if found is None:
            return checked
        return PreviewDocument(
            **dict(checked),
            taken_at=found.taken_at,
            delays=found.version,
            cutoff_s=found.cutoff.total_seconds(),
            horizon_s=found.horizon.total_seconds() if found.horizon else None,
            rate_per_s=found.rate_per_s,
            estimated_s=found.estimated.total_seconds(),
            late_at_full_pace_s=found.late_at_full_pace.total_seconds(),
            endpoints=[EndpointCounts.model_validate(each) for each in found.endpoints],
            modes={name: EndpointMode(mode) for name, mode in found.modes.items()},
            dispatched=[DispatchedCounts.model_validate(each) for each in found.dispatched],
            dues_per_s=round(found.dues_per_s),
            bursts=found.bursts
            and [replace(each, late_s=round(each.late_s, 1)) for each in found.bursts],
        )
