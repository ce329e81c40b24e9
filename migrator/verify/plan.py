"""How a verification works, and what it needs from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import ScanLimits
from migrator.ledger.queries import SqlBooks
from migrator.ledger.work import Clock, FaultPoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.verify.evidence_port import Evidence
from migrator.verify.ports import Verifications

if TYPE_CHECKING:
    from migrator.delays.access import LevelAccess

CHUNK: Final = 500
"""Messages asked for, and judged, at a time."""
PAGE_ROWS: Final = 1000
"""Rows whose content the database hashes in one statement."""
ASKED: Final = 1000
"""Of what may be wrong in great numbers, so many are named; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What to look at, and how gently."""

    endpoints: frozenset[EndpointName] = frozenset()
    """Empty: all."""
    delays: DelaysVersion | None = None
    """Which generation to look into; None: each that exists."""
    is_scan: bool = False
    """Whether each message in the levels is looked at."""
    scan: ScanLimits = field(default_factory=ScanLimits)
    deepest: int = 200_000
    """Levels with more messages are not looked into."""
    rate: int = 0
    """Rows hashed in a second; 0: as fast as they come."""
    shown: int = 20
    """Discrepancies of a kind that are named; all are counted."""

    def covers(self, endpoint: EndpointName) -> bool:
        """Return whether *endpoint* is meant."""
        return not self.endpoints or endpoint in self.endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a verification asks, and whom it tells."""

    books: Verifications
    ledger_id: str
    """By whose mark our messages are known."""
    access: LevelAccess
    """``seen_at`` of its messages is the time of ``clock``."""
    ledger: SqlBooks
    """Which batches are doubtful."""
    clock: Clock
    """The database's time."""
    wait: Callable[[float], None]
    """Waits for so many seconds."""
    evidence: Evidence | None = None
    fault: FaultPoint = lambda _step: None
    """Called after each page of rows."""
    progress: Callable[[str, int], None] = lambda _what, _done: None
    """Called with what is being looked at, and how much of it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """The delays that exist on the broker."""

    ladders: Sequence[LevelDepths]
    """Those that are looked into."""
    left_out: Sequence[DelaysVersion]
    """Those that the plan leaves out; whatever was not seen may be there."""


def generations(parts: Parts, plan: VerifyPlan) -> Generations:
    """Return what exists, with its counts by now."""
    found = [ladder for ladder in parts.access.depths() if not ladder.is_absent]
    return Generations(
        ladders=[each for each in found if plan.delays in (None, each.version)],
        left_out=[each.version for each in found if plan.delays not in (None, each.version)],
    )
