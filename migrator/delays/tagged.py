"""Messages that bear the tag of a row of ours, as they were found in a level.

Whoever scans the levels keeps these and nothing else: neither headers nor bodies.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.timeouts import BatchId, TimeoutId


class Place(NamedTuple):
    """Where a message was found."""

    level: int
    delay_s: int
    """What its routing key says: the whole delay, when it was published."""
    version: DelaysVersion = DelaysVersion.V2

    def __str__(self) -> str:
        return level_text(self.version, self.level)


def level_text(version: str, level: int) -> str:
    """Return how a level is called: ``v2 level 07``."""
    return f"{version} level {level:02d}"


class TaggedMessage(NamedTuple):
    """One message with the tag of a row of ours, without what is in it."""

    batch: BatchId
    row_index: int
    timeout_id: TimeoutId
    """Of the timeout that it says it is."""
    attempt: int
    """At handing over its batch."""
    body_bytes: int
    body_hash: str
    """Hex SHA-256; empty: it was not asked for."""
    version: str
    level: int
    delay_s: int
    """What its routing key says; 0 where that cannot be read."""
    seen_at_s: float
    """By the clock of the scan, since the Epoch."""

    @property
    def row(self) -> tuple[BatchId, int]:
        """Which row of ours it is: batch and index."""
        return self.batch, self.row_index

    @property
    def place(self) -> Place:
        """Where it was found."""
        return Place(level=self.level, delay_s=self.delay_s, version=DelaysVersion(self.version))

    @property
    def seen_at(self) -> datetime:
        """When it was delivered to us: aware, UTC."""
        return datetime.fromtimestamp(self.seen_at_s, UTC)
