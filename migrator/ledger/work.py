"""Time, and the values that all sides name: endpoint, lease, batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from migrator.ledger.states import BatchState, Mode
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, RunId

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

    @property
    def current_attempt(self) -> Attempt:
        """The attempt that is under way or was the last."""
        return Attempt(batch=self.id, number=self.attempt)
