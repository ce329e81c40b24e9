"""Give back what was claimed and not handed over: the rows return to the legacy table.

Only batches of lanes that nobody works on are touched, lanes of dispatchers included. A batch that
may have reached the broker is left alone: `run` settles it, and what was handed over is brought
back by recall, not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from migrator.errors import SomeGone, SourceGone
from migrator.ledger.ports import Batches, Leases
from migrator.ledger.states import HALF_DONE, BatchState, Event, Mode
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, Lane, RunId
from migrator.stores.ports import Claims

RELEASABLE: Final = frozenset(
    {BatchState.CLAIMED, BatchState.STAGING, BatchState.STAGED, *HALF_DONE}
)
"""States of batches of which nothing can have left migrator's own queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackScope:
    """Which rows to give back."""

    endpoint: StoreEndpoint | None
    """None: of every endpoint."""
    run: RunId | None
    """None: of every run, and what is in quarantine, too."""

    def covers(self, batch: Batch) -> bool:
        """Return whether *batch* is meant."""
        is_run = self.run is None or batch.run == self.run
        return is_run and (self.endpoint is None or batch.source == self.endpoint.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack:
    """What was given back, or would be."""

    rows: int
    """Rows of batches, back in their tables."""
    batches: Sequence[BatchId]
    quarantined: int
    """Rows of settled batches that were in quarantine, back in their tables."""
    untouched: Sequence[BatchId]
    """Batches that may have reached the broker: their lane's next owner settles them."""
    dispatching: Sequence[BatchId]
    """Those of *untouched* that only a dispatcher settles."""
    busy: Sequence[tuple[Lane, str]]
    """Lanes that somebody works on, with their owners; stop those first."""
    left_in_quarantine: str | None = None
    """Why rows stay in quarantine: the store they came from is gone; None: none do for that."""
    stuck: Sequence[BatchId] = ()
    """Batches whose store is gone: of each source one was tried, and the others left alone."""


def dispatching(batches: Iterable[Batch]) -> Sequence[BatchId]:
    """Return those of *batches* that a dispatcher was sending."""
    return [batch.id for batch in batches if batch.mode is Mode.DISPATCH]


class AllLeases(Leases, Protocol):
    """Lanes of hand-over and of dispatchers alike."""

    def abandoned_lanes(self) -> Sequence[Lane]:
        """Return lanes that have open batches and no living owner, ascending."""
        ...


class Rollback:
    """Gives rows back, lane after lane."""

    def __init__(
        self,
        *,
        claims: Claims,
        leases: AllLeases,
        batches: Batches,
        owner: str,
        lease_duration: timedelta,
    ) -> None:
        """Work as *owner*, who must be nobody else's name."""
        self._claims = claims
        self._leases = leases
        self._batches = batches
        self._owner = owner
        self._duration = lease_duration

    def run(self, scope: RollbackScope) -> RolledBack:
        """Give back everything *scope* covers, as far as it was not handed over.

        Repeating is harmless; after a crash, repeating goes on.

        Raises:
            LeaseLost: Somebody took a lane meanwhile. What was given back before stays so.
            StoreUnavailable: As above.
        """
        busy = self._leases.holders()
        rows, done = 0, []
        untouched, stuck, gone = list[Batch](), list[BatchId](), set[str]()
        for batch, lease in self._batches_in(scope):
            if batch.state not in RELEASABLE:
                untouched.append(batch)
                continue
            if batch.source in gone:  # what is claimed can be handed over, as long as it stays so
                stuck.append(batch.id)
                continue
            try:
                rows += self._release(batch, lease)
            except SourceGone:
                gone.add(batch.source)
                stuck.append(batch.id)
            else:
                done.append(batch.id)
        quarantined, left = self._release_quarantined(scope)
        return RolledBack(
            rows=rows,
            batches=done,
            quarantined=quarantined,
            left_in_quarantine=left,
            untouched=[batch.id for batch in untouched],
            dispatching=dispatching(untouched),
            busy=busy,
            stuck=stuck,
        )

    def _batches_in(self, scope: RollbackScope) -> Iterator[tuple[Batch, Lease]]:
        for lane in self._leases.abandoned_lanes():
            lease = self._leases.acquire(lane, self._owner, self._duration)
            if lease is None:
                continue  # taken since; it shows as busy the next time
            try:
                for batch in self._batches.open_batches(lease):
                    if scope.covers(batch):
                        self._leases.renew(lease, self._duration, doing="rolling back")
                        yield batch, lease
            finally:
                self._leases.surrender(lease)

    def _release(self, batch: Batch, lease: Lease) -> int:
        if batch.state is BatchState.CLAIMING:
            claimed = self._claims.resume(batch, lease)
            if claimed is None:
                return 0  # all of it is somebody else's
            batch = claimed
        if batch.state in (BatchState.STAGING, BatchState.STAGED):
            # nothing was nacked before COMMITTING, so nothing has left the staging queue
            batch = self._batches.advance(batch, Event.ABANDON, lease)
        return self._claims.release(batch, lease)

    def _release_quarantined(self, scope: RollbackScope) -> tuple[int, str | None]:
        if scope.run is not None:
            return 0, None
        try:
            return self._claims.release_quarantined(scope.endpoint), None
        except SomeGone as exc:
            return exc.back, str(exc)
