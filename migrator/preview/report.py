"""What a migration would do, as values: counted before anything is touched.

``preview.count`` fills them; ``preview_document`` is their public JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.due import MAX_DELAY_S
from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName, QueueName

SPANS: Final[tuple[tuple[str, timedelta], ...]] = (
    ("overdue", timedelta(0)),
    ("1m", timedelta(minutes=1)),
    ("1h", timedelta(hours=1)),
    ("1d", timedelta(days=1)),
    ("1w", timedelta(weeks=1)),
    ("30d", timedelta(days=30)),
    ("1y", timedelta(days=365)),
    ("8.5y", timedelta(seconds=MAX_DELAY_S)),
)
"""Steps of the histogram: a name, and the longest time until due that belongs to it."""
BEYOND: Final = "beyond"
_QUARTER_HOUR: Final = timedelta(minutes=15)
_LARGEST_ZONE: Final = timedelta(hours=14)
_TOLERANCE: Final = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class Quarantinable:
    """Rows that would go to quarantine, or stay, for one reason."""

    count: int = 0
    examples: list[str] = field(default_factory=list)
    """A few of their ids."""
    detail: str = ""
    """What was found in the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPreview:
    """What would become of one endpoint's rows.

    Every row is counted in exactly one of ``in_ledger``, ``without_due_time``, ``left``,
    ``beyond_horizon`` and ``to_migrate``; together they are ``stored``.
    """

    endpoint: EndpointName
    source: str
    is_complete: bool
    """False: there may be more rows than were looked at."""
    stored: int
    in_ledger: int
    """Claimed already, by id; such a row in the store is never claimed a second time."""
    without_due_time: int
    """No due time, or one no timeout manager would reach; they stay where they are."""
    left: int
    """Due before the cutoff; left to the timeout manager."""
    beyond_horizon: int
    """Due too late to be held natively, or by wish; they stay until near."""
    to_migrate: int
    """Would be claimed now, those that would be quarantined included."""
    overdue: int
    """Due already, whatever becomes of them."""
    quarantine: Mapping[Reason, Quarantinable]
    destinations: Mapping[QueueName, int]
    """Rows that would be handed over, by destination after renaming."""
    due: Mapping[str, int]
    """Rows with a due time, by the steps of ``SPANS`` and ``BEYOND``."""
    zone_offsets: Mapping[timedelta, int]
    """Rows whose due column is whole quarter hours away from their own header."""
    bytes: int
    """Bodies and headers of what would be handed over."""
    entry_levels: Mapping[int, int]
    """Messages by the level they would enter; those due at once enter none."""
    unclaimable: Mapping[str, Quarantinable] = field(default_factory=dict)
    """Of ``without_due_time``, those of which the store tells why, by that."""
    unmeasured: int = 0
    """Rows that would be handed over, and of which nobody knows how large their bodies are: they
    are not in ``bytes``, and may be too large for the broker."""

    reply_queues: Mapping[str, int] = field(default_factory=dict)
    """Rows that would be handed over, by the queue that replies to them would go to; the first
    thousand queues that were found."""

    @property
    def quarantined(self) -> int:
        """How many of ``to_migrate`` would be quarantined."""
        return sum(found.count for found in self.quarantine.values())

    @property
    def to_hand_over(self) -> int:
        """How many of ``to_migrate`` would reach the broker."""
        return self.to_migrate - self.quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """All endpoints, as they were at one moment, under one set of choices."""

    taken_at: datetime
    """Database time."""
    cutoff: timedelta
    horizon: timedelta | None
    version: DelaysVersion
    rate_per_s: float
    """Messages per second that the time estimate assumes."""
    endpoints: Sequence[EndpointPreview]

    @property
    def estimated(self) -> timedelta:
        """How long handing over would take at ``rate_per_s``."""
        messages = sum(endpoint.to_hand_over for endpoint in self.endpoints)
        return timedelta(seconds=round(messages / self.rate_per_s, 1))


def span_of(until_due: timedelta) -> str:
    """Return the histogram's step for a row that is due in *until_due*."""
    return next((name for name, longest in SPANS if until_due <= longest), BEYOND)


def zone_offset(difference: timedelta) -> timedelta | None:
    """Return *difference* as a time zone's offset, or None when it does not look like one.

    A driver that wrote local time is off by whole quarter hours; stores round by up to a second.
    """
    quarters = round(difference / _QUARTER_HOUR)
    offset = quarters * _QUARTER_HOUR
    is_zone = quarters and abs(offset) <= _LARGEST_ZONE and abs(difference - offset) <= _TOLERANCE
    return offset if is_zone else None


def preview_document(preview: Preview) -> dict[str, object]:
    """Return *preview* as plain values for JSON (``migrator/preview/1``, without the schema)."""
    return {
        "taken_at": preview.taken_at.isoformat(),
        "delays": str(preview.version),
        "cutoff_s": preview.cutoff.total_seconds(),
        "horizon_s": preview.horizon.total_seconds() if preview.horizon else None,
        "rate_per_s": preview.rate_per_s,
        "estimated_s": preview.estimated.total_seconds(),
        "endpoints": [_endpoint_document(endpoint) for endpoint in preview.endpoints],
    }


def _endpoint_document(endpoint: EndpointPreview) -> dict[str, object]:
    return {
        "endpoint": endpoint.endpoint,
        "source": endpoint.source,
        "is_complete": endpoint.is_complete,
        "stored": endpoint.stored,
        "in_ledger": endpoint.in_ledger,
        "without_due_time": endpoint.without_due_time,
        "left": endpoint.left,
        "beyond_horizon": endpoint.beyond_horizon,
        "to_migrate": endpoint.to_migrate,
        "to_hand_over": endpoint.to_hand_over,
        "overdue": endpoint.overdue,
        "quarantine": [
            {
                "reason": str(reason),
                "count": found.count,
                "examples": list(found.examples),
                "detail": found.detail,
            }
            for reason, found in sorted(endpoint.quarantine.items())
        ],
        "destinations": dict(sorted(endpoint.destinations.items())),
        "due": {name: endpoint.due.get(name, 0) for name in (*(n for n, _ in SPANS), BEYOND)},
        "zone_offsets_min": {
            str(offset // timedelta(minutes=1)): count
            for offset, count in sorted(endpoint.zone_offsets.items())
        },
        "bytes": endpoint.bytes,
        "unmeasured": endpoint.unmeasured,
        "unclaimable": [
            {"reason": why, "count": found.count, "examples": list(found.examples)}
            for why, found in sorted(endpoint.unclaimable.items())
        ],
        "reply_queues": dict(sorted(endpoint.reply_queues.items())),
        "entry_levels": {str(level): n for level, n in sorted(endpoint.entry_levels.items())},
    }
