"""The ledger: lanes as leases, batches and their rows, runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from migrator.ledger.states import Event
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine
from migrator.nservicebus.timeouts import BatchId, Lane, RunId, StoredTimeout


class Leases(Protocol):
    """Lanes as leases across the whole ledger, in database time."""

    @property
    def ledger_id(self) -> str:
        """The id that names this ledger's queues: lower case letters and digits."""
        ...

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        """Take a lane that is free, expired or already *owner*'s, with all its open batches.

        The token grows; the lane's open batches carry it from now on. None: somebody has it.

        Raises:
            LedgerAdopted: The ledger has another id by now than this process began with, whether
                or not the lane is free. Nothing was changed.
        """
        ...

    def renew(self, lease: Lease, duration: timedelta, *, doing: str) -> None:
        """Prolong *lease*, and record in a few words what its owner is doing (for status).

        Raises:
            LeaseLost: It expired and somebody else took the lane.
        """
        ...

    def surrender(self, lease: Lease) -> None:
        """Free the lane; without effect when it is no longer ours."""
        ...

    def orphaned_lanes(self) -> Sequence[Lane]:
        """Return lanes of hand-over with open batches and no living owner, ascending."""
        ...

    def lanes_with_work(self, sources: Collection[str]) -> Sequence[Lane]:
        """Return lanes of hand-over with open batches of *sources*, whoever holds them."""
        ...

    def holders(self) -> Sequence[tuple[Lane, str]]:
        """Return every lane whose lease is running, with its owner."""
        ...

    def owner_of(self, lane: Lane) -> str | None:
        """Return who holds *lane* now; None: nobody."""
        ...

    def evict(self, lane: Lane, owner: str) -> None:
        """End the lease of an *owner* whose process is surely dead; harmless when it changed."""
        ...


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


class Runs(Protocol):
    """Runs and the audit trail."""

    def begin(self, endpoint: StoreEndpoint, options: Mapping[str, str | int | bool]) -> RunId:
        """Record that a run begins; *options* carry no secrets."""
        ...

    def end(self, run: RunId, status: str) -> None:
        """Record how a run ended: ``done``, ``stopped`` or ``failed``."""
        ...

    def record(self, kind: str, *, detail: Mapping[str, object], batch: BatchId | None) -> None:
        """Append one event to the audit trail."""
        ...
