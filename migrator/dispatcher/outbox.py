"""Items that wait until they are due, and the delivery or row to which each belongs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.dispatcher.link import Delivery, Route
from migrator.errors import ClockInDoubt
from migrator.ledger.work import Clock
from migrator.nservicebus.incoming import OutgoingMessage
from migrator.nservicebus.timeouts import BatchId, NativeMessage, StoredTimeout

MOST_AT_ONCE: Final = 500
"""Items sent at a time; items that get due meanwhile wait for their answers, some 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    batch: BatchId
    message: NativeMessage
    route: Route
    row: StoredTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """A message that came too late to be stored, sent when it is due."""

    delivery: Delivery
    message: NativeMessage
    route: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    delivery: Delivery
    message: NativeMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of a message: for a retry queue, the error queue, or the queue it came from."""

    delivery: Delivery
    message: OutgoingMessage
    queue: str
    is_final: bool

    @property
    def is_renewal(self) -> bool:
        return self.queue == self.delivery.queue


Item = StoredRow | PassedOn | Forwarded | Copy


class DatabaseTime:
    """The database's time, for a thread that must never wait for the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.read()

    def read(self) -> None:
        """Read the clock; may wait, so only background threads call it.

        Raises:
            ClockInDoubt: It jumped; ``now`` continues from the earlier of the two times.
        """
        try:
            self._show(self._clock.now())
        except ClockInDoubt as exc:
            self._show(exc.earliest)
            raise

    def _show(self, now: datetime) -> None:
        self._read_at = (now, self._clock.monotonic_s())  # one assignment: seen whole or not at all

    def now(self) -> datetime:
        now, at_s = self._read_at
        return now + timedelta(seconds=self._clock.monotonic_s() - at_s)

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


class Outbox:
    """Items by due time; none leaves earlier."""

    def __init__(self) -> None:
        self._waiting: list[tuple[datetime, int, Item]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item, *, due_at: datetime) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (due_at, self._count, item))

    @property
    def next_due_at(self) -> datetime | None:
        return self._waiting[0][0] if self._waiting else None

    def take(self, now: datetime) -> Sequence[Item]:
        """Remove and return at most ``MOST_AT_ONCE`` due items, soonest due first."""
        taken: list[Item] = []
        while self._waiting and self._waiting[0][0] <= now and len(taken) < MOST_AT_ONCE:
            taken.append(heapq.heappop(self._waiting)[2])
        return taken
