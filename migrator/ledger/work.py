"""What lanes work with: endpoint, lease and batch as values, the clock, and batches in the ledger.

``Clock`` and ``Batches`` are protocols because tests stop and kill lanes at each step of them.
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
"""What waits in it for an owner may be taken by any lane."""

FaultPoint = Callable[[str], None]
"""Called with the name of each step; tests make it kill the process, otherwise it does nothing."""


class Clock(Protocol):
    """The time of the legacy database, which all rows' due times refer to."""

    def now(self) -> datetime:
        """Return the database's time, carried on by a monotonic clock between samples.

        Raises:
            ClockInDoubt: It jumped, and nobody knows yet which time is right.
        """
        ...

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never jumps; for ages and deadlines."""
        ...


class Backoff:
    """When work that failed may be tried again: after twice as long each time, with jitter."""

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
        """Note a failure; return how many seconds to wait."""
        now_s = self._monotonic_s()
        if not self._failures:
            self._since_s = now_s
        wait_s = min(self._first_s * 2.0 ** min(self._failures, 10), self._most_s)
        wait_s *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._failures += 1
        self._ends_s = now_s + wait_s
        return wait_s

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0
        self._ends_s = float("-inf")

    @property
    def is_over(self) -> bool:
        """Whether it may be tried again."""
        return self._monotonic_s() >= self._ends_s

    @property
    def failing_s(self) -> float:
        """For how long nothing but failures has been seen."""
        return self._monotonic_s() - self._since_s if self._failures else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEndpoint:
    """One endpoint's timeouts in the store."""

    name: EndpointName
    """As the operator named it; when merely discovered, as the table shows it (dots are ``_``)."""
    source: str
    """Where its rows are, unique in the store: for SQL ``schema.table``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lane held by this process, until the deadline it was last renewed to."""

    lane: Lane
    owner: str
    token: int
    """Fencing token: grows with every change of owner; each write names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as the ledger has it."""

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
    """By which the evidence of a document store is found; None: by the ledger's present id."""

    fresh: Sequence[StoredTimeout] | None = field(default=None, compare=False, repr=False)
    """Its rows by row index, where a claim brought them along; not any more once it advanced."""

    @property
    def current_attempt(self) -> Attempt:
        """The attempt that is under way or was the last."""
        return Attempt(batch=self.id, number=self.attempt)


class Batches(Protocol):
    """Batches and their rows, as the owner of their lane works on them."""

    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        """Return the lane's batches in an ``OPEN`` state, in order of their id.

        Batches put into the lane by others (a quarantine retry) get the lease's token here.
        """
        ...

    def put_in(self, lease: Lease, *, not_of: Collection[RunId] = ()) -> Sequence[Batch]:
        """Return claimed batches that wait for a lane to take them; they are the lease's now.

        An operator put them into this lane or the shared one, or a lane passed them on. Those of
        the runs *not_of* are left. What ``open_batches`` returned is not among them. Looking
        writes nothing and locks nothing.

        Raises:
            LeaseLost: There are some, and the lane is somebody else's.
        """
        ...

    def pass_on(self, batch: Batch, lease: Lease) -> None:
        """Leave a claimed batch to whichever lane takes it next, of this process or another.

        What its earlier attempts left in the queue of this lane is waste, as they are lower.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...

    def find(self, batch: BatchId) -> Batch | None:
        """Return one batch in whatever state, or None when the ledger never had it."""
        ...

    def rows(self, batch: Batch) -> Sequence[StoredTimeout]:
        """Return the rows that share the batch's state (not the quarantined), by row index.

        Reads the ledger; ``readable`` spares that right after a claim.
        """
        ...

    def readable(self, batch: Batch) -> tuple[Sequence[StoredTimeout], Sequence[Quarantine]]:
        """Return what ``rows`` would but for rows that cannot be read, and why those cannot.

        What the claim brought along is not read again.
        """
        ...

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        """Record *event* and return the batch after it; a new attempt has a higher number.

        One ``UPDATE … WHERE id, state, attempt, token`` that is committed on return.

        Raises:
            IllegalTransition: The state table has no such step. Nothing was changed.
            LeaseLost: No row matched. Nothing was changed; stop touching the batch.
            StoreUnavailable: It may or may not have been recorded; ``find`` tells.
        """
        ...

    def quarantine(self, batch: Batch, findings: Collection[Quarantine], lease: Lease) -> None:
        """Mark rows of *batch* as quarantined, with code and detail; repeating is harmless.

        Raises:
            LeaseLost: Nothing was changed.
        """
        ...
