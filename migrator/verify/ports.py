"""What a verification asks store and ledger; nothing here changes anything.

Each answer is true at its own moment: a daemon may work meanwhile. Whoever compares two answers
has to allow for what happened in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from migrator.nservicebus.tags import RowTag
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.verify.report import BatchGap, DestinationBalance, EndpointBalance


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRow:
    """One row of the ledger: what it is and where it is."""

    id: int
    """The ledger's own, ascending."""
    batch: BatchId
    row_index: int
    endpoint: EndpointName
    source: str
    timeout_id: TimeoutId
    destination: str | None
    due_at: datetime
    """Aware, UTC."""
    state: str
    """The row's own, else its batch's."""
    reason: str | None
    """Why it is in quarantine."""
    content_hash: str
    """As it was claimed."""
    handed_over_at: datetime | None
    """When its batch was; None: it was not, or the row has a state of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSighting:
    """A message in a delay level that bears this ledger's mark."""

    row: RowTag
    body_hash: str
    """Hex SHA-256 of its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTimeout:
    """The row of the ledger whose mark was seen."""

    id: int
    """The ledger's own."""
    timeout_id: TimeoutId
    """The store's; another one than the message has if the ledger is not what it was."""
    batch: BatchId
    endpoint: EndpointName
    due_at: datetime
    """Aware, UTC."""
    state: str
    """The row's own, else its batch's."""
    is_same_body: bool


class Verifications(Protocol):
    """Reads the books.

    Raises, each of its methods:
        StoreUnavailable, LedgerError: They cannot be read now.
    """

    def balances(self) -> Sequence[EndpointBalance]:
        """Return every endpoint with batches in the ledger, sorted; all at one moment.

        Rows are counted one by one, not by what batches say of themselves.
        """
        ...

    def destinations(self, *, now: datetime) -> Sequence[DestinationBalance]:
        """Return what was handed over, or set aside, by endpoint and destination, sorted."""
        ...

    def gaps(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[BatchGap]]:
        """Return how many batches have other rows than they should, and the first of them.

        A batch should have as many rows as its size less what was purged of it.

        Args:
            endpoints: Whose; empty: of all.
            at_most: Bounds how many are returned, not how many are counted.
        """
        ...

    def rows(
        self, *, after: int, at_most: int, claimed_since: datetime | None = None
    ) -> Sequence[AuditedRow]:
        """Return the next rows of the ledger, ascending by their own id; empty at the end.

        Args:
            after: Exclusive; 0: from the first.
            at_most: Bounds the answer, and how long the database is kept busy.
            claimed_since: Only rows of batches that were claimed then or later; None: all.
        """
        ...

    def intact(self, ids: Collection[int]) -> Mapping[int, bool]:
        """Return of each row, by its own id, whether its content still has its hash.

        The database computes it. Rows that are gone are left out.
        """
        ...

    def in_both_places(
        self, endpoints: Collection[EndpointName], *, at_most: int
    ) -> tuple[int, Sequence[AuditedRow]]:
        """Return how many timeouts are in a legacy table and open in the ledger, and the first.

        Both are read in one statement per table, at one moment. Arguments are those of ``gaps``.
        """
        ...

    def known(self, sightings: Collection[LevelSighting]) -> Mapping[LevelSighting, KnownTimeout]:
        """Return those of *sightings* whose row the ledger has, in whatever state."""
        ...
