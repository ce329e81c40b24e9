"""What operators read of the ledger, as values: progress, lanes, quarantine, history.

``queries`` and ``quarantine`` fill them; the command line, metrics and the web page render them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.ledger.run_terms import BrokerPlace
from migrator.ledger.states import OPEN, BatchState, Mode, RowState
from migrator.nservicebus.timeouts import BatchId, Count, EndpointName, Lane, TimeoutId


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointProgress:
    """Rows of one endpoint by state; rows still in the store are not included."""

    endpoint: EndpointName
    rows: Mapping[str, int]
    """By effective state: the row's own (``RowState``), else its batch's (``BatchState``)."""

    def count(self, state: BatchState | RowState) -> int:
        return self.rows.get(state, 0)

    @property
    def claimed_total(self) -> int:
        """Every row that was ever claimed."""
        return sum(self.rows.values())

    @property
    def released(self) -> int:
        """Given back to the store."""
        return self.count(RowState.RELEASED)

    @property
    def in_flight(self) -> int:
        """Rows in open batches; doubtful ones are not included."""
        return sum(self.rows.get(state, 0) for state in OPEN)

    @property
    def handed_over(self) -> int:
        return self.count(BatchState.HANDED_OVER)

    @property
    def dispatched(self) -> int:
        return self.count(BatchState.DISPATCHED)

    @property
    def parked(self) -> int:
        return self.count(BatchState.PARKED)

    @property
    def quarantined(self) -> int:
        return self.count(RowState.QUARANTINED)

    @property
    def doubtful(self) -> int:
        return self.count(BatchState.DOUBTFUL)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineCount:
    endpoint: EndpointName
    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtfulBatch:
    batch: BatchId
    endpoint: EndpointName
    lane: Lane
    mode: Mode
    attempt: int
    size: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    lane: Lane
    owner: str | None
    doing: str | None
    until: datetime
    renewed_at: datetime
    is_alive: bool
    """The lane has an owner, and its lease has not run out."""
    open_batches: int
    serves: str | None = None
    """The table whose dispatcher has this lane; None: a lane of hand-over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDestination:
    """A destination that takes no messages now; its rows are parked."""

    endpoint: EndpointName
    source: str
    destination: str
    reason: str
    """A code of ``conversion.Reason``."""
    detail: str
    tries: Count
    since: datetime
    next_try_at: datetime
    rows: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRows:
    endpoint: EndpointName
    destination: str
    reason: str
    detail: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    taken_at: datetime
    """Database time."""
    endpoints: Sequence[EndpointProgress]
    """Sorted by name; may be empty."""
    quarantine: Sequence[QuarantineCount]
    """Sorted by endpoint and reason."""
    doubtful: Sequence[DoubtfulBatch]
    """Oldest first."""
    oldest_open_age: timedelta | None
    """How long ago the oldest open batch was claimed; None: none is open."""
    lanes: Sequence[LaneStatus]
    """Ascending."""
    held: Sequence[HeldDestination] = ()
    """Sorted by endpoint and destination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineFilter:
    """None means any."""

    endpoints: Collection[str] | None = None
    reason: str | None = None
    timeout_id: str | None = None
    mode: Mode | None = None

    @property
    def endpoint(self) -> str | None:
        """The one endpoint that the filter names; None: any."""
        if self.endpoints is None:
            return None
        (only,) = self.endpoints
        return only


ANY_QUARANTINED: Final = QuarantineFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRow:
    key: int
    """Position in the ledger, for paging."""
    endpoint: EndpointName
    source: str
    timeout_id: TimeoutId
    batch: BatchId
    destination: str | None
    due_at: datetime
    body_bytes: int
    reason: str
    """A ``conversion.Reason`` code."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedTimeout:
    row: QuarantinedRow
    saga_id: str | None
    headers_text: str | None
    """Exactly as stored."""
    body: bytes | None
    persistence_version: str | None
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    id: int
    at: datetime
    kind: str
    batch: BatchId | None
    endpoint: EndpointName | None
    actor: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchElsewhere:
    """An open batch for another broker or delays version than this process uses."""

    batch: BatchId
    lane: Lane
    place: BrokerPlace
