"""What waits for its time, and what each thing that was sent goes back to."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.dispatcher.link import Delivery, Route
from migrator.errors import ClockInDoubt
from migrator.ledger.work import Clock
from migrator.nservicebus.incoming import RawMessage
from migrator.nservicebus.timeouts import BatchId, NativeMessage, StoredTimeout

MOST_AT_ONCE: Final = 500
"""Sent in one go; what gets due meanwhile waits for their answers, some 50 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A claimed row of the store, sent when it is due."""

    batch: BatchId
    message: NativeMessage
    route: Route
    row: StoredTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """A message that came so late that it was never stored, sent when it is due."""

    delivery: Delivery
    message: NativeMessage
    route: Route


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """A message on its way into the native delays."""

    delivery: Delivery
    message: NativeMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of a message: for a retry queue, the error queue, or its own queue."""

    delivery: Delivery
    message: RawMessage
    queue: str
    is_final: bool
    """It goes to the error queue."""

    @property
    def is_renewal(self) -> bool:
        """Whether it goes back to the queue that the message came from."""
        return self.queue == self.delivery.queue


Item = StoredRow | PassedOn | Forwarded | Copy


class DatabaseTime:
    """The database's time for a thread that must never wait for the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.read()

    def read(self) -> None:
        """Read the clock again, which may wait: for background threads.

        Raises:
            ClockInDoubt: It jumped; the earlier of the two times is shown from now on.
        """
        try:
            self._show(self._clock.now())
        except ClockInDoubt as exc:
            self._show(exc.earliest)
            raise

    def _show(self, now: datetime) -> None:
        self._read_at = (now, self._clock.monotonic_s())  # one assignment: seen whole or not at all

    def now(self) -> datetime:
        """Return the time, never ahead of the database's; never waits."""
        now, at_s = self._read_at
        return now + timedelta(seconds=self._clock.monotonic_s() - at_s)

    def monotonic_s(self) -> float:
        """Return seconds of a clock that never jumps."""
        return self._clock.monotonic_s()


class Outbox:
    """Items by the time they may leave; nothing leaves earlier."""

    def __init__(self) -> None:
        self._waiting: list[tuple[datetime, int, Item]] = []
        self._count = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return len(self._waiting)

    def add(self, item: Item, *, due_at: datetime) -> None:
        """Hold *item* until *due_at*."""
        self._count += 1
        heapq.heappush(self._waiting, (due_at, self._count, item))

    @property
    def next_due_at(self) -> datetime | None:
        """When the first of them may leave; None: nothing waits."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, now: datetime) -> Sequence[Item]:
        """Remove and return what is due, soonest due first, as much as one call may send."""
        taken: list[Item] = []
        while self._waiting and self._waiting[0][0] <= now and len(taken) < MOST_AT_ONCE:
            taken.append(heapq.heappop(self._waiting)[2])
        return taken
