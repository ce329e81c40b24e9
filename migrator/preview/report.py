"""What a migration would do, as values: counted before anything is touched.

``preview.count`` and ``preview.forecast`` fill them; ``preview_document`` is their public JSON
form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.releases import RECEIVING, late_at_full_speed_s, paced_s
from migrator.delays.routing import DelaysVersion
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import MAX_DELAY_S, EndpointName
from migrator.preview.forecast import Burst, dues_per_s
from migrator.stores.endpoints import EndpointPreview, Quarantinable, Sample

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
SHOWN_BURSTS: Final = 5
"""Of what will come late, to people; the JSON document has all."""
FULL_RATE_PER_S: Final = 6_000.0
"""Rows a second that a forecast of full pace assumes: the most that one process has reached."""


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
    """Those whose rows are moved into the native delays."""
    dispatched: Sequence[EndpointPreview] = ()
    """Those in mode dispatch: their rows are sent when due."""
    modes: Mapping[EndpointName, str] = field(default_factory=dict)
    """Of all of them."""
    attended: Collection[str] = ()
    """Those whose rows before the cutoff our dispatcher sends."""
    exchange_cost_s: float
    """The broker's time for one exchange."""
    keeps_to_levels: bool = True
    """Whether hand-over keeps to what the levels let go of."""
    bursts: Sequence[Burst] | None = None
    """What comes late of what is stored, the latest first; None: the store cannot count."""

    @property
    def dues_per_s(self) -> float:
        """Timeouts that may be due in each second before the broker is late with them."""
        return dues_per_s(self.exchange_cost_s)

    @property
    def estimated(self) -> timedelta:
        """How long handing over would take at ``rate_per_s``, or at the levels' pace."""
        messages = sum(endpoint.to_hand_over for endpoint in self.endpoints)
        at_rate_s = messages / self.rate_per_s
        return timedelta(seconds=round(max(at_rate_s, self._paced_s), 1))

    @property
    def is_paced(self) -> bool:
        """Whether the levels, and not ``rate_per_s``, set how long handing over would take."""
        messages = sum(endpoint.to_hand_over for endpoint in self.endpoints)
        return self._paced_s > messages / self.rate_per_s

    @property
    def _paced_s(self) -> float:
        if not self.keeps_to_levels:
            return 0.0
        return paced_s(
            self._entry_levels,
            exchange_cost_s=self.exchange_cost_s,
            receiving=RECEIVING[self.version],
        )

    @property
    def _entry_levels(self) -> Counter[int]:
        levels: Counter[int] = Counter()
        for endpoint in self.endpoints:
            levels.update(endpoint.entry_levels)
        return levels

    @property
    def late_at_full_pace(self) -> timedelta:
        """How late the last one would be with ``handover.pace = "full"``, by the model, at least.

        Entry levels are what is known of when rows are due; within one they are taken as spread.
        """
        due = [
            (float(2**level), 2.0 ** (level + 1), rows)
            for level, rows in sorted(self._entry_levels.items())
        ]
        late_s = late_at_full_speed_s(
            due, rows_per_s=FULL_RATE_PER_S, exchange_cost_s=self.exchange_cost_s
        )
        return timedelta(seconds=round(late_s, 1))


def span_of(until_due: timedelta) -> str:
    """Return the histogram's step for a row that is due in *until_due*."""
    return next((name for name, longest in SPANS if until_due <= longest), BEYOND)


def preview_document(preview: Preview) -> dict[str, object]:
    """Return *preview* as plain values for JSON (``migrator/preview/1``, without the schema)."""
    return {
        "taken_at": preview.taken_at.isoformat(),
        "delays": str(preview.version),
        "cutoff_s": preview.cutoff.total_seconds(),
        "horizon_s": preview.horizon.total_seconds() if preview.horizon else None,
        "rate_per_s": preview.rate_per_s,
        "estimated_s": preview.estimated.total_seconds(),
        "late_at_full_pace_s": preview.late_at_full_pace.total_seconds(),
        "endpoints": [_endpoint_document(endpoint) for endpoint in preview.endpoints],
        "modes": dict(preview.modes),
        "dispatched": [_dispatched_document(endpoint) for endpoint in preview.dispatched],
        "dues_per_s": round(preview.dues_per_s),
        "bursts": None if preview.bursts is None else [*map(_burst_document, preview.bursts)],
    }


def _endpoint_document(endpoint: EndpointPreview) -> dict[str, object]:
    """Return the fields of *endpoint*, whose names are public, in values that JSON has."""
    found = {each.name: getattr(endpoint, each.name) for each in fields(endpoint)}
    del found["zone_offsets"]
    return found | {
        "first_due": _moment(endpoint.first_due),
        "last_due": _moment(endpoint.last_due),
        "to_hand_over": endpoint.to_hand_over,
        "quarantine": _quarantine_document(endpoint.quarantine),
        "sample": _sample_document(endpoint.sample),
        "destinations": dict(sorted(endpoint.destinations.items())),
        "due": {name: endpoint.due.get(name, 0) for name in (*(n for n, _ in SPANS), BEYOND)},
        "zone_offsets_min": {
            str(offset // timedelta(minutes=1)): count
            for offset, count in sorted(endpoint.zone_offsets.items())
        },
        "unclaimable": [
            {"reason": why, "count": rows.count, "examples": rows.examples}
            for why, rows in sorted(endpoint.unclaimable.items())
        ],
        "reply_queues": dict(sorted(endpoint.reply_queues.items())),
        "machine_addresses": dict(sorted(endpoint.machine_addresses.items())),
        "entry_levels": {str(level): n for level, n in sorted(endpoint.entry_levels.items())},
    }


def _moment(due_at: datetime | None) -> str | None:
    return None if due_at is None else due_at.isoformat()


def _quarantine_document(found: Mapping[Reason, Quarantinable]) -> list[dict[str, object]]:
    return [
        {
            "reason": str(reason),
            "count": rows.count,
            "examples": rows.examples,
            "detail": rows.detail,
        }
        for reason, rows in sorted(found.items())
    ]


def _sample_document(sample: Sample | None) -> dict[str, object] | None:
    if sample is None:
        return None
    return {"rows": sample.rows, "quarantine": _quarantine_document(sample.quarantine)}


def _burst_document(burst: Burst) -> dict[str, object]:
    return {
        "due_from": burst.due_from.isoformat(),
        "due_until": burst.due_until.isoformat(),
        "rows": burst.rows,
        "late_s": round(burst.late_s, 1),
    }


def _dispatched_document(found: EndpointPreview) -> dict[str, object]:
    names = (
        *("endpoint", "source", "stored", "overdue", "in_ledger", "without_due_time"),
        "quarantined",
    )
    return {name: getattr(found, name) for name in names} | {
        "first_due": _moment(found.first_due),
        "last_due": _moment(found.last_due),
        "sample": _sample_document(found.sample),
        "to_send": found.to_hand_over + found.beyond_horizon,
        "destinations": dict(sorted(found.destinations.items())),
    }
