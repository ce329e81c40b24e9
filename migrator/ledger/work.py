"""What lanes work with: endpoint, lease and batch as values, the clock, and batches in the ledger.

``Clock`` and ``Batches`` are protocols because tests stop and kill lanes at each of their steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from migrator.ledger.states import BatchState, Event, Mode
from migrator.nservicebus.conversion import Quarantine
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, RunId, StoredTimeout

SHARED_LANE: Final = Lane(0)
"""Any lane may take a batch that waits in it for an owner."""

FaultPoint = Callable[[str], None]
"""Called with the name of each step. Only tests use it, to kill the process there."""


def no_fault(_step: str) -> None:
    """Do nothing."""


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the database's time, or raise ``ClockInDoubt`` while the right time is unknown."""
        ...

    def monotonic_s(self) -> float: ...


class Backoff:
    """When failed work may be tried again: after twice as long each time, with jitter."""

    def __init__(
        self, *, first_s: float, most_s: float, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._monotonic_s = monotonic_s
        self._failures = 0
        self._since_s = 0.0
        self._ends_s = float("-inf")

    def failed(self) -> float:
        now_s = self._monotonic_s()
        if not self._failures:
            self._since_s = now_s
        wait_s = min(self._first_s * 2.0 ** min(self._failures, 10), self._most_s)
        wait_s *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._failures += 1
        self._ends_s = now_s + wait_s
        return wait_s

    def succeeded(self) -> None:
        self._failures = 0
        self._ends_s = float("-inf")

    @property
    def is_over(self) -> bool:
        return self._monotonic_s() >= self._ends_s

    @property
    def failing_s(self) -> float:
        """Seconds since the first failure after the last success."""
        return self._monotonic_s() - self._since_s if self._failures else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEndpoint:
    name: EndpointName
    """As the operator named it; when discovered, as the table shows it (dots are ``_``)."""
    source: str
    """The place of its rows, unique in the store: for SQL ``schema.table``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Owned by this process until the deadline of its last renewal."""

    lane: Lane
    owner: str
    token: int
    """Fencing token: grows with every change of owner; each write checks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    id: BatchId
    run: RunId
    endpoint: EndpointName
    source: str
    lane: Lane
    mode: Mode
    state: BatchState
    attempt: int
    size: int
    """Rows claimed, quarantined ones included."""
    body_bytes: int
    ledger_id: str | None = None
    """The id under which evidence of a document store is found; None: the ledger's present id."""
    claimed_at: datetime | None = field(default=None, compare=False)
    """Aware, UTC; None: it was claimed a moment ago, or its claim is not done."""

    fresh: Sequence[StoredTimeout] | None = field(default=None, compare=False, repr=False)
    """Its rows by row index, right after a claim; None once it advanced."""

    @property
    def current_attempt(self) -> Attempt:
        return Attempt(batch=self.id, number=self.attempt)


class Batches(Protocol):
    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        """Return the lane's batches in an ``OPEN`` state, in order of their id.

        Batches that an operator put into the lane (a quarantine retry) get the lease's token here.
        """
        ...

    def put_in(self, lease: Lease, *, not_of: Collection[RunId] = ()) -> Sequence[Batch]:
        """Return claimed batches that waited for any lane; they belong to the lease from now on.

        An operator put them into this lane or the shared one, or another lane passed them on.
        Batches of the runs *not_of* are left. What ``open_batches`` returned is not among them.
        When there are none, nothing is written or locked.

        Raises:
            LeaseLost: There are some, and another process has the lane.
        """
        ...

    def pass_on(self, batch: Batch, lease: Lease) -> None:
        """Leave a claimed batch to the lane that takes it next, of this process or another.

        Messages of its earlier attempts in the queue of this lane are waste, as their attempt is
        lower.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...

    def find(self, batch: BatchId) -> Batch | None:
        """Return one batch in any state; None: the ledger never had it."""
        ...

    def rows(self, batch: Batch) -> Sequence[StoredTimeout]:
        """Without quarantined ones, by row index."""
        ...

    def readable(self, batch: Batch) -> tuple[Sequence[StoredTimeout], Sequence[Quarantine]]:
        """``rows`` without unreadable ones, and why those are; a claim's are not read again."""
        ...

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        """Record *event* and return the batch after it; a new attempt has a higher number.

        One ``UPDATE … WHERE id, state, attempt, token`` that is committed on return.

        Raises:
            IllegalTransition: The state table has no such step. Nothing was changed.
            LeaseLost: No row matched. Nothing was changed; stop touching the batch.
            StoreUnavailable: It may or may not have been recorded; ``find`` shows which.
        """
        ...

    def quarantine(self, batch: Batch, findings: Collection[Quarantine], lease: Lease) -> None:
        """Mark rows of *batch* as quarantined, with code and detail; repeating is harmless.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...
