"""The queues of the delay levels: going through one, and moving what is in it elsewhere.

Whoever goes through a level only borrows it: what is not acknowledged goes back with its original
expiry when the scan ends (measured on classic and quorum queues). A message whose time is over
meanwhile is dead-lettered when it goes back; it is late by as long as it was held.
Source: design section 9; reference ``native-delays.md`` sections 5 and 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelMessage:
    """One message as it was found in the queue of a level; nothing in it can be trusted."""

    tag: int
    """Names it in its scan, and nowhere else."""
    routing_key: str
    seen_at: datetime
    """Aware, UTC: when it came to us."""
    headers: Mapping[str, object]
    """As AMQP values: str, bytes, bool, int, float, Decimal, datetime, list, dict or None."""
    message_id: str | None
    app_id: str | None = None
    raw_properties: bytes = field(repr=False)
    """Flags and properties as they came, ``x-death`` included."""
    body: bytes = field(repr=False)
    problem: str | None = None
    """Why routing key or properties could not be read; the fields above are then empty."""


class ScanEnd(Enum):
    """Why a scan delivers nothing more."""

    EMPTY = "empty"
    """The queue has nothing left that is not held by us."""
    SHARED = "shared"
    """Nothing is left for us, but somebody else consumes the queue, and may hold messages."""
    HELD_LONG_ENOUGH = "held long enough"
    """What is held had to go back; more may be in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """How much of a queue is held, and for how long."""

    prefetch: int = 2000
    """Messages delivered ahead of the caller; more consumers come as messages stay held."""
    hold_s: float = 20.0
    """After so long, nothing more is delivered; far below the broker's 30 minutes."""
    quiet_s: float = 0.1
    """The queue is asked whether it is empty when it has delivered nothing for so long."""


class LevelScan(Protocol):
    """One level queue while somebody goes through it; used by one thread only.

    Messages come in the order of the queue, each once, until ``receive`` returns nothing.
    """

    @property
    def end(self) -> ScanEnd | None:
        """Why nothing more comes; None while more may come."""
        ...

    def receive(self, *, at_most: int) -> Sequence[LevelMessage]:
        """Return the next messages, waiting for them; empty at the end of the scan.

        What earlier calls returned and nobody acknowledged counts as held from now on.

        Raises:
            DeliveryLimitNear: A message has come back so often that the broker would soon
                dead-letter it for that, before its time. All that is held goes back.
            TargetUnavailable: The connection went away; all that is held goes back.
        """
        ...

    def acknowledge(self, tags: Iterable[int]) -> None:
        """Settle messages; they never come back once the broker has read this.

        Raises:
            TargetUnavailable: The connection was already gone; they all come back.
        """
        ...

    def close(self) -> None:
        """Give back what is held; repeating is harmless, and so is a connection that is gone."""
        ...


class Levels(Protocol):
    """The level queues of one generation on one broker, over one connection."""

    def scan(self, level: int, limits: ScanLimits) -> LevelScan:
        """Begin to consume the queue of *level*.

        Raises:
            TargetError: It does not exist, or may not be read.
        """
        ...

    def ready(self) -> Mapping[int, int]:
        """Return how many messages wait in each level queue that exists; changes nothing.

        What consumers hold, and what waits for a place to be dead-lettered to, is not counted.
        """
        ...
