"""What was sent to queues that answer nothing: it may be taken, so it is not sent again for now.

The link that sent it goes on listening. Once an answer comes, or none can come any more because
the link is gone, it is known what to do. Shared by all threads of a process, and gone with it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from migrator.rabbitmq.messages import PublishResult

D = TypeVar("D", bound=Hashable)


class Sent(Enum):
    """What is known of a message."""

    NOT = auto()
    """It was never sent, or no queue took it, or nothing will be known of it: send it."""
    MAYBE = auto()
    """It was sent, and its answer may still come."""
    SURELY = auto()
    """A queue has it."""


@dataclass(frozen=True, slots=True)
class _Late(Generic[D]):
    result: PublishResult
    row_index: int
    destination: D
    noted_s: float

    @property
    def sent(self) -> Sent:
        if self.row_index in self.result.confirmed:
            return Sent.SURELY
        gone = (self.result.returned, self.result.refused, self.result.unknown)
        return Sent.NOT if any(self.row_index in rows for rows in gone) else Sent.MAYBE


class LateAnswers(Generic[D]):
    """Messages by what they are known by, and the destinations they were sent to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._late: dict[Hashable, _Late[D]] = {}
        self._not_heard: set[D] = set()
        """Destinations of whose answers nothing was said yet."""

    def __bool__(self) -> bool:
        """Return whether anything was sent and is not forgotten."""
        return bool(self._late)

    def note(self, rows: Mapping[Hashable, int], result: PublishResult, destination: D) -> None:
        """Remember messages for *destination*, each with its row, whose answer is in *result*."""
        with self._lock:
            now_s = time.monotonic()
            self._late |= {key: _Late(result, row, destination, now_s) for key, row in rows.items()}
            self._not_heard.add(destination)

    def sent(self, key: Hashable) -> Sent:
        """Return what is known of a message."""
        late = self._late.get(key)
        return Sent.NOT if late is None else late.sent

    def waiting(self, *, for_at_most_s: float = math.inf) -> Collection[D]:
        """Return the destinations that have not answered all that was sent to them so lately."""
        if not self._late:
            return ()
        noted_s = time.monotonic() - for_at_most_s
        with self._lock:
            return {
                each.destination
                for each in self._late.values()
                if each.noted_s >= noted_s and each.sent is Sent.MAYBE
            }

    def forget(self, keys: Collection[Hashable]) -> None:
        """Forget messages whose outcome is recorded elsewhere."""
        with self._lock:
            for key in keys:
                self._late.pop(key, None)

    def take_heard(self) -> Collection[D]:
        """Return, once, each destination that has answered all that was sent to it.

        What no queue took is forgotten.
        """
        if not self._not_heard:
            return ()
        with self._lock:
            found = {key: (late.destination, late.sent) for key, late in self._late.items()}
            for key, (_, sent) in found.items():
                if sent is Sent.NOT:
                    del self._late[key]
            waiting = {of for of, sent in found.values() if sent is Sent.MAYBE}
            heard = {of for of, sent in found.values() if sent is Sent.SURELY} & self._not_heard
            self._not_heard &= waiting
            return heard - waiting
