"""Batches and their rows as lanes work on them; tests stop and kill at each step of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from migrator.ledger.states import Event
from migrator.ledger.work import Batch, Lease
from migrator.nservicebus.conversion import Quarantine
from migrator.nservicebus.timeouts import BatchId, StoredTimeout


class Batches(Protocol):
    """Batches and their rows, as the owner of their lane works on them."""

    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        """Return the lane's batches in an ``OPEN`` state, in order of their id.

        Batches put into the lane by others (a quarantine retry) get the lease's token here.
        """
        ...

    def put_in(self, lease: Lease) -> Sequence[Batch]:
        """Return claimed batches that an operator put into the lane; they are the lease's now.

        What ``open_batches`` returned is not among them. Looking writes nothing and locks nothing.

        Raises:
            LeaseLost: There are some, and the lane is somebody else's.
        """
        ...

    def find(self, batch: BatchId) -> Batch | None:
        """Return one batch in whatever state, or None when the ledger never had it."""
        ...

    def rows(self, batch: Batch) -> Sequence[StoredTimeout]:
        """Return the rows that share the batch's state (not the quarantined), by row index."""
        ...

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        """Record *event* and return the batch after it; events that start a pass raise attempt.

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
