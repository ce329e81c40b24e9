"""What waits for its time, and what each thing that was sent goes back to."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from migrator.delays.routing import DelaysVersion, address, delay_s
from migrator.dispatcher.delivery import sent_at
from migrator.dispatcher.ports import Delivery, Letter, Route
from migrator.nservicebus.incoming import RawMessage
from migrator.nservicebus.timeouts import BatchId, NativeMessage, StoredTimeout
from migrator.rabbitmq.messages import PublishResult

MOST_LETTERS: Final = 500
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


@dataclass(slots=True)
class Sent:
    """What became of the items of one call, in the order in which they were sent."""

    confirmed: list[Item] = field(default_factory=list)
    returned: list[Item] = field(default_factory=list)
    """Unroutable."""
    refused: list[Item] = field(default_factory=list)
    """The broker said no (nack), or the connection went away before it said anything."""


class Outbox:
    """Items by the time they may leave; nothing leaves earlier."""

    def __init__(self) -> None:
        """Hold nothing."""
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
        while self._waiting and self._waiting[0][0] <= now and len(taken) < MOST_LETTERS:
            taken.append(heapq.heappop(self._waiting)[2])
        return taken


def letters(
    items: Iterable[Item], *, version: DelaysVersion, now: Callable[[], datetime]
) -> Iterator[Letter]:
    """Yield the letter of each item, its key being its position, made when it is asked for."""
    for key, item in enumerate(items):
        yield _letter(key, item, version, now())


def _letter(key: int, item: Item, version: DelaysVersion, now: datetime) -> Letter:
    if isinstance(item, Copy):
        return Letter(key=key, exchange="", routing_key=item.queue, message=item.message)
    message = item.message
    if isinstance(item, Forwarded):
        where = address(version, delay_s(message.due_at, now=now), message.destination)
        exchange, routing_key = where.exchange, where.routing_key
    else:
        exchange, routing_key = item.route.exchange, item.route.routing_key
    if isinstance(item, StoredRow):
        message = sent_at(message, now)
    return Letter(key=key, exchange=exchange, routing_key=routing_key, message=message)


def sorted_out(items: Sequence[Item], answers: PublishResult) -> Sent:
    """Return *items* by what the broker said about their letters."""
    sent = Sent()
    for key, item in enumerate(items):
        if key in answers.returned:
            sent.returned.append(item)
        elif key in answers.confirmed:
            sent.confirmed.append(item)
        else:
            sent.refused.append(item)
    return sent
