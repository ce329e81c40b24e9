"""What a verification finds: whether store, ledger and broker agree, as values.

Rules of this file: what was not read is *not checked*, never fine; a discrepancy names what is
wrong and where, and never holds what is in a message. Source: docs/verify.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from migrator.delays.routing import DelaysVersion
from migrator.ledger.report import HeldDestination
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.nservicebus.timeouts import BatchId, Count, EndpointName, TimeoutId
from migrator.text import counted

RowKey = tuple[BatchId, int]
"""A row of the ledger: its batch, and its index in there."""
SHOWN: Final = 20
"""Discrepancies of a kind that are named; all are counted."""
SLACK: Final = timedelta(seconds=5)
"""What is due this soon may have left its level, or not yet; nothing is concluded from it."""

STATES: Final = (
    ("parked", BatchState.PARKED),
    ("handed over", BatchState.HANDED_OVER),
    ("dispatched", BatchState.DISPATCHED),
    ("quarantined", RowState.QUARANTINED),
    ("released", RowState.RELEASED),
    ("recalled", RowState.RECALLED),
    ("discarded", RowState.DISCARDED),
    ("doubtful", BatchState.DOUBTFUL),
)
"""States that a balance tells, by the names that people and documents see."""


class Discrepancy(StrEnum):
    """What does not agree. Public: codes are stable."""

    ROWS_GONE = "rows_gone"
    """The ledger has fewer rows of a batch than were claimed and are not purged."""
    ROWS_TOO_MANY = "rows_too_many"
    """The ledger has more rows of a batch than were claimed."""
    CONTENT_CHANGED = "content_changed"
    """Headers or body of a row in the ledger are not what was claimed."""
    IN_BOTH_PLACES = "in_both_places"
    """A timeout is in its legacy table, and in the ledger in an open state."""
    MISSING = "missing_from_levels"
    """A timeout was handed over, is not due, and is in no level."""
    TOO_FEW = "too_few_in_levels"
    """All levels together hold fewer messages than migrated timeouts have to wait in them."""
    TWICE = "twice_in_levels"
    """A timeout is in the levels more than once."""
    DIFFERENT = "different_in_levels"
    """A message bears a row's tag, but not its body, or not its id."""
    STRAY = "stray_in_levels"
    """A timeout that was taken back, or set aside, is still in a level."""
    LATE = "late_in_levels"
    """A timeout is due, but still in a level."""


class RowStatus(StrEnum):
    """What was found of a timeout when nothing is wrong with it. Public: codes are stable."""

    AGREES = "agrees"
    """It is as the ledger says, as far as its state can be looked at."""
    LEFT = "left"
    """It was handed over and is due by now: it can no longer be read."""
    NOT_LOOKED = "not_looked"
    """It should be in a level; the levels were not read."""
    NOT_SEEN = "not_seen"
    """It should be in a level and was not seen, but that does not prove that it is missing."""


class Verdict(StrEnum):
    """What it comes to."""

    BALANCED = "balanced"
    """Everything that was looked at agrees."""
    DOUBTFUL = "doubtful"
    """Everything agrees, but the outcome of some batches is unknown."""
    DISCREPANT = "discrepant"
    """Something does not agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One discrepancy."""

    kind: Discrepancy
    endpoint: EndpointName | None
    timeout_id: str | None
    """As in the store; None: it concerns a batch, or all levels."""
    batch: BatchId | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointBalance:
    """Every row ever claimed of one endpoint, accounted for; rows are counted one by one."""

    endpoint: EndpointName
    source: str
    in_store: int | None
    """Rows in its legacy table now; None: the table is gone, or not where the settings point."""
    claimed: int
    """Rows that all its batches took, less those that were given back as if never claimed."""
    purged: int
    """Rows the ledger was told to forget, or forgot after they had been sent."""
    rows: Mapping[str, int]
    """Rows the ledger has, by effective state: the row's own, else its batch's."""

    @property
    def in_flight(self) -> int:
        """Claimed and not settled yet."""
        return sum(self.rows.get(state, 0) for state in OPEN)

    def count(self, state: BatchState | RowState) -> int:
        """Return how many rows are in *state*."""
        return self.rows.get(state, 0)

    @property
    def unaccounted(self) -> int:
        """Rows claimed that are in no state; negative: there are more rows than were claimed."""
        return self.claimed - self.purged - sum(self.rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationBalance:
    """What was handed over for one destination."""

    endpoint: EndpointName
    destination: str | None
    """As in the Destination column."""
    waiting: Count
    """Handed over, and not due yet."""
    left: Count
    """Handed over, and due by now: they are with their destination, as far as the ledger knows."""
    quarantined: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGap:
    """A batch whose rows are not all there, or too many."""

    batch: BatchId
    endpoint: EndpointName
    state: BatchState
    size: int
    purged: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBalance:
    """One level, compared with the ledger."""

    delays: DelaysVersion
    level: Count
    total: Count | None
    """Messages of everybody: those that were seen, if all were, and what the level holds back; else
    what the broker counts. None: unknown."""
    ours: Count | None
    """Messages that bear the tag of a migrated row; None: they were not read one by one."""
    foreign: Count | None
    """All others that were seen; None: they were not read one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """The whole answer."""

    taken_at: datetime
    """Database time, aware, UTC."""
    endpoints: Sequence[EndpointBalance]
    destinations: Sequence[DestinationBalance]
    levels: Sequence[LevelBalance]
    """By generation, highest first; empty when there is none, or the broker was not asked."""
    rows_checked: int
    """Rows whose content was compared with its hash, by this verification."""
    waiting: int
    """Timeouts that have to be in the levels."""
    discrepancies: Sequence[Found]
    """The first of each kind; ``counts`` has all."""
    counts: Mapping[Discrepancy, int]
    doubtful: Sequence[BatchId]
    not_checked: Sequence[str]
    """What could not be checked, and why."""
    unread: Sequence[str] = ()
    """Tables that could not be read, so that the ledger was not compared with them."""
    parked: Sequence[HeldDestination] = ()
    """Destinations whose rows wait in the store."""

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        if any(self.counts.values()):
            return Verdict.DISCREPANT
        return Verdict.DOUBTFUL if self.doubtful else Verdict.BALANCED

    @property
    def is_complete(self) -> bool:
        """Whether everything was looked at."""
        return not self.not_checked


class EvidenceRecord(NamedTuple):
    """One row of the ledger: what it is, where it is, and what was found of it."""

    id: int
    """The ledger's own, ascending."""
    endpoint: EndpointName
    source: str
    timeout_id: TimeoutId
    batch: BatchId
    row_index: int
    destination: str | None
    due_at: datetime
    """Aware, UTC."""
    state: str
    """The row's own, else its batch's."""
    reason: str | None
    """Why it is in quarantine."""
    content_hash: str
    """As it was claimed."""
    claimed_at: datetime | None
    """When its batch was; None: the batch is gone."""
    handed_over_at: datetime | None
    """When its batch was; None: it was not, or the row has a state of its own."""
    body_hash: str | None = None
    """Hex SHA-256 of its body; None: not requested."""
    is_intact: bool = True
    delays: DelaysVersion | None = None
    """Where its message was seen; None: it was not seen, or the levels were not read."""
    level: int | None = None
    verdict: RowStatus | Discrepancy = RowStatus.NOT_LOOKED

    @property
    def row(self) -> RowKey:
        """What the tag of its message names."""
        return self.batch, self.row_index


class Findings:
    """What is wrong so far."""

    def __init__(self) -> None:
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
        if self.counts[kind] <= SHOWN:
            self.first.append(
                Found(
                    kind=kind, endpoint=endpoint, timeout_id=timeout_id, batch=batch, detail=detail
                )
            )

    def add_unnamed(self, kind: Discrepancy, count: int, one: str, several: str) -> None:
        """Count *count* more of a kind without naming them, and say so."""
        if count:
            self.counts[kind] += count
            more = counted(count, f"more {one} is", f"more {several} are")
            self.not_checked.append(f"{more} counted as {kind}, but not listed")

    def add_line(self, kind: Discrepancy, line: EvidenceRecord, detail: str) -> None:
        """Count one of a timeout."""
        self.add(kind, detail, endpoint=line.endpoint, timeout_id=line.timeout_id, batch=line.batch)


def headline(
    verdict: Verdict, *, contradictions: int, doubtful: int, quarantined: int, not_checked: int
) -> str:
    """Return what people read first: good, or what keeps it from being good."""
    if verdict is Verdict.DISCREPANT:
        return f"Not verified: {counted(contradictions, 'contradiction')}"
    if doubtful:
        return f"Not settled: {counted(doubtful, 'doubtful batch', 'doubtful batches')}"
    if not_checked:
        return f"No contradiction found, but {counted(not_checked, 'thing')} not checked"
    if quarantined:
        return f"Not finished: {counted(quarantined, 'timeout')} in quarantine"
    return "Verified: every timeout is accounted for"


def summary(found: VerifyResult) -> dict[str, object]:
    """Return verdict and counts: for the ledger's events, and the evidence's last line."""
    return {
        "verdict": str(found.verdict),
        "rows_checked": found.rows_checked,
        "waiting": found.waiting,
        "doubtful": found.doubtful,
        "not_checked": found.not_checked,
        "discrepancies": counts_of(found),
    }


def counts_of(found: VerifyResult) -> Mapping[str, int]:
    """Return how many things of each kind do not agree, without those of which there are none."""
    return {str(kind): count for kind, count in sorted(found.counts.items()) if count}
