"""What is asked of a store about rows, and what it returns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from migrator.ledger.states import Mode
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import Lane, RunId, TimeoutId

_FAR: Final = datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far claims have come; opaque outside the store."""

    due_at: datetime
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Which rows to claim, soonest due first, and into which lane."""

    run: RunId
    endpoint: StoreEndpoint
    lease: Lease
    mode: Mode
    due_after: datetime | None
    """Exclusive; None: from the earliest time a timeout manager knows."""
    due_until: datetime
    """Inclusive."""
    max_rows: int
    max_bytes: int
    """Bound on the sum of body and headers; one larger row is still claimed, alone."""
    cursor: Cursor | None
    """Only rows behind it; None: from the start of the range."""
    only: Collection[TimeoutId] | None = None
    """Only these ids, of whatever form; None: any."""
    but_for: Collection[str] = ()
    """Rows called so are left where they are."""


def trial_request(run: RunId, endpoint: StoreEndpoint) -> ClaimRequest:
    """Return a request for one row, whichever, of a claim that is rolled back."""
    return ClaimRequest(
        run=run,
        endpoint=endpoint,
        lease=Lease(lane=Lane(0), owner="trial", token=0),
        mode=Mode.STAGED,
        due_after=None,
        due_until=_FAR,
        max_rows=1,
        max_bytes=1024 * 1024,
        cursor=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A batch that has just moved from the store into the ledger."""

    batch: Batch
    cursor: Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRow:
    """One stored row as preview and claims read it, without its body."""

    id: str
    destination: str | None = None
    due_at: datetime | None = None
    """None: no due time, or one no timeout manager would ever reach; the row stays where it is."""
    headers_text: str | None = None
    body_bytes: int | None = None
    """None: the store does not tell."""
    is_in_ledger: bool = False
    """The ledger already has this id of this source in an open state: it will not be claimed."""
    why_unclaimable: str | None = None
    """Why no claim ever takes it, where the store tells more than that it has no due time."""
    why_unreadable: str | None = None
    """Why nothing is known of its texts; a claim puts it into quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What a database has to know to count rows."""

    due_after: datetime | None
    """Rows due later are to migrate (exclusive); None: all that a timeout manager reaches."""
    due_until: datetime
    """Inclusive."""
    headers_max_bytes: int | None
    """Longer headers, as the database keeps them, are odd; None: none is too long."""
    body_max_bytes: int
    """A larger body is odd."""
    max_rows: int | None = None
    """Only the first of them, in the order of the key; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows that are alike as far as the database can tell."""

    slot: int | None
    """In which span they are due, by its place; None: no due time that can be used."""
    destination: str | None
    """The column, letter by letter."""
    is_in_ledger: bool
    is_odd: bool
    """By their sizes, or because their headers are no JSON object at first sight."""
    rows: int
    bytes: int
    """Bodies and headers."""
    an_id: str
    """Of the first of them."""
    first_due: datetime | None = None
    """Aware, UTC; None: no due time that can be used."""
    last_due: datetime | None = None
