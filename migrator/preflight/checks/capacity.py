"""Has the broker room for what will wait in it?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from migrator.errors import NotChecked
from migrator.preflight.findings import Finding, Level
from migrator.preflight.ports import BrokerFacts
from migrator.stores.endpoints import EndpointPreview

NAME: Final = "capacity"
OVERHEAD_BYTES: Final = 500
"""Per message: routing key, properties, what the queue itself writes."""
FACTOR: Final = 2
"""A message is written to staging and to its level; old segments are freed late."""


def check(broker: BrokerFacts, previews: Sequence[EndpointPreview] | None) -> Iterator[Finding]:
    """Compare a cautious estimate of the bytes on disk with what the fullest node has left."""
    if previews is None:
        yield _not_checked("the rows were not looked at")
        return
    if not all(preview.is_complete for preview in previews):
        yield _not_checked("not all rows were looked at")
        return
    if unmeasured := sum(preview.unmeasured for preview in previews):
        yield _not_checked(f"nobody knows how large the bodies of {unmeasured} rows are")
        return
    messages = sum(preview.to_hand_over for preview in previews)
    payload = sum(preview.bytes for preview in previews)
    needed = FACTOR * (payload + messages * OVERHEAD_BYTES)
    room = broker.room()
    if isinstance(room, NotChecked):
        yield _not_checked(f"{messages} messages need about {_mib(needed)}; {room.reason}")
        return
    left = room.disk_free_bytes - room.disk_limit_bytes
    facts = f"{messages} messages need about {_mib(needed)} of the {_mib(left)} left on disk"
    if needed > left:
        yield _finding(Level.REFUSED, facts, "make room, or take fewer rows with --horizon")
    elif 2 * needed > left:
        yield _finding(Level.WARNING, facts, "watch the disk while migrating")
    else:
        yield _finding(Level.OK, facts)


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB".replace(",", " ")


def _not_checked(text: str) -> Finding:
    return _finding(Level.NOT_CHECKED, text)


def _finding(level: Level, text: str, remedy: str = "") -> Finding:
    return Finding(check=NAME, level=level, subject="disk", text=text, remedy=remedy)
