"""What a verification finds: whether the books of store, ledger and broker agree, as values.

Rules of this file: what nobody looked at is *not checked*, never fine; a discrepancy names what is
wrong and where, and never holds what is in a message. Source: docs/verify.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.nservicebus.timeouts import BatchId, EndpointName

SLACK: Final = timedelta(seconds=5)
"""What is due this soon may have left its level, or not yet; nothing is concluded from it."""


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
    """All levels together hold fewer messages than timeouts of ours have to wait in them."""
    TWICE = "twice_in_levels"
    """A timeout is in the levels more than once."""
    DIFFERENT = "different_in_levels"
    """A message bears a row's mark, but not its body, or not its id."""
    STRAY = "stray_in_levels"
    """A timeout that was taken back, or set aside, is still in a level."""
    LATE = "late_in_levels"
    """A timeout is due, but still in a level."""


class Verdict(StrEnum):
    """What it comes to."""

    BALANCED = "balanced"
    """Everything that was looked at agrees."""
    DOUBTFUL = "doubtful"
    """Everything agrees, but there are batches of which nobody can tell."""
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
    waiting: int
    """Handed over, and not due yet."""
    left: int
    """Handed over, and due by now: they are with their destination, as far as the ledger knows."""
    quarantined: int


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
    level: int
    total: int | None
    """Messages of everybody, by the broker; None: nobody could look."""
    ours: int | None
    """Messages that were seen and bear the mark of a row of ours; None: nobody looked at each."""
    foreign: int | None
    """All others that were seen; None: nobody looked at each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The whole answer."""

    taken_at: datetime
    """Database time, aware, UTC."""
    endpoints: Sequence[EndpointBalance]
    destinations: Sequence[DestinationBalance]
    levels: Sequence[LevelBalance]
    """By generation, highest first; empty when there is none, or the broker was not asked."""
    rows_checked: int
    """Rows whose content was compared with its hash, by this verification."""
    rows_taken_over: int
    """Rows of which the one that was interrupted compared it, and that are as they were."""
    waiting: int
    """Timeouts that have to be in the levels."""
    discrepancies: Sequence[Found]
    """The first of each kind; ``counts`` has all."""
    counts: Mapping[Discrepancy, int]
    doubtful: Sequence[BatchId]
    not_checked: Sequence[str]
    """What nobody could look at, and why."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a timeout was seen."""

    level: int
    delay_s: int
    """What its routing key says: the whole delay, when it was published."""
    delays: DelaysVersion = DelaysVersion.V2

    def __str__(self) -> str:
        """Return its level as people read it: ``v2 level 07``."""
        return level_text(self.delays, self.level)


def level_text(delays: DelaysVersion, level: int) -> str:
    """Return how a level is called: ``v2 level 07``."""
    return f"{delays} level {level:02d}"


def is_another_copy(
    first: Place, second: Place, *, due_at: datetime, second_seen_at: datetime
) -> bool:
    """Return whether two sightings of one timeout prove that there are two messages of it.

    Levels are gone through downwards while messages move down, so the same message may be seen
    twice: in a level, and in a lower one after its time in the first was over. It is another
    one when it has another routing key, is in the same level or another generation, or when the
    first one's time in its level was not yet over.
    """
    if (first.delays, first.delay_s) != (second.delays, second.delay_s):
        return True
    if first.level == second.level:
        return True
    leaves_at = due_at - timedelta(seconds=first.delay_s & ((1 << first.level) - 1))
    return leaves_at > second_seen_at + SLACK


def can_be_in(level: int, *, due_in: timedelta) -> bool:
    """Return whether a message that is due in so long can be in *level*.

    It waits there for the rest of that level's time and for lower levels, together less than
    twice the level's time.
    """
    return due_in <= timedelta(seconds=2 ** (level + 1)) + SLACK
