"""What a migration would do, as values: counted before anything is touched.

``preview.count`` and ``preview.forecast`` fill them; the models below are their public form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from migrator.delays.releases import RECEIVING, late_at_full_speed_s, paced_s
from migrator.delays.routing import DelaysVersion
from migrator.documents import Counts, Part, sorted_by_name
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import MAX_DELAY_S, Count, EndpointName
from migrator.preview.forecast import Burst, dues_per_s
from migrator.stores.endpoints import EndpointPreview, Quarantinable

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
    """Whether hand-over keeps to the release rate of the levels."""
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


class QuarantinedRows(Part):
    """Rows that would go to quarantine for one reason."""

    reason: str
    count: Count
    examples: Sequence[str]
    """A few of their ids."""
    detail: str
    """What was found in the first of them."""


class UnclaimableRows(Part):
    """Rows that are never claimed for one reason."""

    reason: str
    count: Count
    examples: Sequence[str]
    """A few of their ids."""


def _quarantined(found: Mapping[Reason, Quarantinable]) -> list[QuarantinedRows]:
    return [
        QuarantinedRows(reason=why, count=rows.count, examples=rows.examples, detail=rows.detail)
        for why, rows in sorted(found.items())
    ]


def _unclaimable(found: Mapping[str, Quarantinable]) -> list[UnclaimableRows]:
    return [
        UnclaimableRows(reason=why, count=rows.count, examples=rows.examples)
        for why, rows in sorted(found.items())
    ]


def _by_step(found: Mapping[str, int]) -> dict[str, int]:
    return {step: found.get(step, 0) for step in (*(name for name, _ in SPANS), BEYOND)}


def _in_minutes(found: Mapping[timedelta, int]) -> dict[int, int]:
    return {offset // timedelta(minutes=1): rows for offset, rows in sorted(found.items())}


Quarantine = Annotated[Sequence[QuarantinedRows], BeforeValidator(_quarantined)]


class SampleCounts(Part):
    """What was found in the rows that were converted to see whether that can be done."""

    rows: Count
    quarantine: Quarantine


class EndpointCounts(Part):
    """What would become of the rows of an endpoint; made of an ``EndpointPreview``."""

    endpoint: str
    source: str
    is_complete: bool
    sample: SampleCounts | None
    stored: Count
    in_ledger: Count
    without_due_time: Count
    left: Count
    beyond_horizon: Count
    to_migrate: Count
    first_due: datetime | None
    last_due: datetime | None
    overdue: Count
    quarantine: Quarantine
    destinations: Counts
    due: Annotated[dict[str, Count], BeforeValidator(_by_step)]
    bytes: Count
    entry_levels: Annotated[dict[int, Count], BeforeValidator(sorted_by_name)]
    unclaimable: Annotated[Sequence[UnclaimableRows], BeforeValidator(_unclaimable)]
    unmeasured: Count
    reply_queues: Counts
    machine_addresses: Counts
    to_hand_over: Count
    zone_offsets_min: Annotated[dict[int, Count], BeforeValidator(_in_minutes)] = Field(
        validation_alias="zone_offsets"
    )

    @property
    def quarantined(self) -> int:
        """How many would be quarantined."""
        return sum(found.count for found in self.quarantine)


class DispatchedCounts(Part):
    """What would become of the rows of an endpoint that are sent when due."""

    endpoint: str
    source: str
    stored: Count
    overdue: Count
    in_ledger: Count
    without_due_time: Count
    quarantined: Count
    first_due: datetime | None
    last_due: datetime | None
    sample: SampleCounts | None
    to_send: Count
    destinations: Counts
