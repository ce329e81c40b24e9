"""Rows whose destination cannot be reached wait in the store, and go on once it can.

Rules of this file: a destination is held before its rows go back, so that no claim takes them
again at once; what is held is left out of every claim until a look, or a message that arrived,
shows that it can be reached. What no claim could leave out, because its Destination column does
not say where it goes, is put into quarantine instead. The dispatcher does the same.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from migrator.delays.routing import Unreachable
from migrator.errors import (
    MigratorError,
    StoreError,
    StoreUnavailable,
    TargetError,
)
from migrator.ledger.held_destinations import (
    HeldDestinations,
    SqlHeldDestinations,
    can_be_held,
    is_over,
)
from migrator.ledger.report import HeldDestination, HeldRows
from migrator.ledger.work import Batch, Batches, Clock, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine, destination_of
from migrator.nservicebus.timeouts import EncodedTimeout, QueueName
from migrator.stores.ports import Store
from migrator.stores.sql.claims import SqlClaims

_log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = timedelta(seconds=15)
"""A look is cheap, and whoever has just made a queue waits for its timeouts."""
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A message of a claimed row that would not reach its destination."""

    message: EncodedTimeout
    column: str | None
    """The row's Destination column, as stored."""
    why: Unreachable


@dataclass(kw_only=True, eq=False)
class Holding:
    """What is held of the endpoints that are handed over; shared by all lanes of a process.

    ``begin`` reads what an earlier process held.
    """

    ledger: SqlHeldDestinations
    """Where the ledger keeps what is held."""
    batches: Batches
    """For what has to go to quarantine."""
    claims: SqlClaims | None
    """Gives single rows back; None: the store takes none, they go to quarantine."""
    look_for: Callable[[Collection[QueueName]], Mapping[QueueName, Unreachable]]
    """Binds destinations, and returns those that cannot be reached; remembers nothing."""
    forget: Callable[[Collection[QueueName]], None]
    """Has lanes ask again for some, whatever they remember of them."""
    clock: Clock
    renamed: Mapping[str, str]
    """Old queue name to new one."""

    def __post_init__(self) -> None:
        """Hold nothing yet."""
        self._lock = threading.RLock()
        self._held: dict[str, HeldDestinations] = {}

    def begin(self, endpoints: Collection[StoreEndpoint]) -> None:
        """Take over what the ledger has of *endpoints*, and look at all of it once."""
        with self._lock:
            for endpoint in endpoints:
                self._of(endpoint).load()
        self._look(due_until=_FOREVER)

    def not_for(self, endpoint: StoreEndpoint) -> Collection[str]:
        """Return the Destination columns whose rows no claim may take now."""
        with self._lock:
            held = self._held.get(endpoint.source)
            return held.left_out(self.clock.now()) if held else ()

    def set_aside(self, batch: Batch, lost: Sequence[Lost], lease: Lease) -> Batch:
        """Hold the destinations of *lost* and put these rows back into the store.

        Returns the batch without them. What cannot wait there goes to quarantine.

        Raises:
            LeaseLost: The rows are where they were.
            StoreUnavailable, LedgerError: As above; repeating is harmless.
        """
        endpoint = StoreEndpoint(name=batch.endpoint, source=batch.source)
        waiting = {each.message.row_index: each for each in lost if self.says_where(each)}
        for column, why in {each.column: each.why for each in waiting.values()}.items():
            with self._lock:
                self._of(endpoint).note_lost(column or "", why, now=self.clock.now())
        detail = ""
        if waiting and self.claims is not None:
            try:
                batch = self.claims.give_back(batch, waiting.keys(), lease)
            except StoreUnavailable:
                raise
            except StoreError as exc:
                waiting, detail = {}, f"; the store did not take it back: {exc}"
        elif waiting:
            waiting, detail = {}, "; this kind of store does not take single rows back"
        aside = [
            Quarantine(
                row_index=each.message.row_index,
                timeout_id=each.message.timeout_id,
                reason=each.why.reason,
                detail=each.why.detail + detail,
            )
            for each in lost
            if each.message.row_index not in waiting
        ]
        if aside:
            self.batches.quarantine(batch, aside, lease)
        return batch

    def reached(self, batch: Batch, columns: Collection[str | None]) -> None:
        """Messages for the rows with these Destination *columns* arrived, so nothing holds them."""
        with self._lock:
            if held := self._held.get(batch.source):
                held.free(columns)

    def look(self) -> bool:
        """Look at what is to be tried again now; return whether anything can be reached again.

        What keeps it from looking, a clock in doubt or a database that is away, is logged.
        """
        with self._lock:
            if not any(self._held.values()):
                return False
        try:
            return self._look(due_until=self.clock.now())
        except MigratorError as exc:
            _not_looked_at(exc)
            return False

    def parked(self) -> Sequence[HeldDestination]:
        """Return every destination whose rows wait."""
        with self._lock:
            return [each for held in self._held.values() for each in held.to_try(_FOREVER)]

    def rows(self, store: Store, endpoints: Collection[StoreEndpoint]) -> Sequence[HeldRows]:
        """Return how many rows wait for what is held, by destination; reads all rows.

        A destination that no row in the store waits for is held no longer.

        Raises:
            StoreError, LedgerError: The store, or the ledger, cannot be read now.
        """
        return [found for endpoint in endpoints for found in self._rows_of(store, endpoint)]

    def _rows_of(self, store: Store, endpoint: StoreEndpoint) -> Sequence[HeldRows]:
        with self._lock:
            held = {each.destination: each for each in self._of(endpoint).to_try(_FOREVER)}
        if not held:
            return ()
        counts: Counter[str | None] = Counter()
        for rows in store.scan(endpoint):
            counts.update(each.destination for each in rows if not each.is_in_ledger)
        with self._lock:
            self._of(endpoint).free(name for name in held if not counts[name])
        return [
            HeldRows(
                endpoint=endpoint.name,
                destination=name,
                reason=each.reason,
                detail=each.detail,
                rows=counts[name],
            )
            for name, each in sorted(held.items())
            if counts[name]
        ]

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _of(self, endpoint: StoreEndpoint) -> HeldDestinations:
        found = self._held.get(endpoint.source)
        if found is None:
            found = HeldDestinations(self.ledger, endpoint, longest_wait=_LONGEST_WAIT)
            self._held[endpoint.source] = found
        return found

    def says_where(self, lost: Lost) -> bool:
        """Return whether the row's column names its destination, so that it can wait for it."""
        column = lost.column or ""
        return can_be_held(column) and self._queue_of(column) == lost.message.destination

    def _queue_of(self, column: str) -> QueueName:
        return destination_of(column, {}, self.renamed)

    def _look(self, *, due_until: datetime) -> bool:
        with self._lock:
            due = [(of, held) for of in self._held.values() for held in of.to_try(due_until)]
        if not due:
            return False
        names = {held.destination: self._queue_of(held.destination) for _, held in due}
        try:
            lost = self.look_for({*names.values()})
        except TargetError as exc:
            _not_looked_at(exc)
            return False
        self.forget([name for name in names.values() if name not in lost])
        return any([self._judge(of, held, lost.get(names[held.destination])) for of, held in due])

    def _judge(self, of: HeldDestinations, held: HeldDestination, why: Unreachable | None) -> bool:
        """Hold it for longer, or no longer; return whether its rows may be claimed again."""
        now = self.clock.now()
        with self._lock:
            if why is not None:
                of.hold(held.destination, why, now=now)
                return False
            if not is_over(held, now=now):
                return True  # its next message decides
            of.free([held.destination])
        _log.info(
            "a destination can be reached again; its timeouts are handed over",
            extra={
                "action": "destination_reached",
                "endpoint": of.endpoint.name,
                "destination": held.destination,
            },
        )
        return True


def _not_looked_at(exc: MigratorError) -> None:
    _log.info(
        "held destinations could not be checked now; they are checked again later",
        extra={"action": "held_not_looked_at", "error": str(exc)},
    )
