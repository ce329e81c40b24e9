"""The JSON documents about the delay levels."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field

from migrator.delays.probe import Arrival
from migrator.delays.routing import DelaysVersion
from migrator.documents import Document, Part
from migrator.nservicebus.timeouts import Count


class CreateDocument(Document, title="migrator/delays-create/1"):
    """`migrator delays create --json`."""

    delays: DelaysVersion
    created: Count
    existed: Count


class LevelCounts(Part):
    """One level queue; null: not known, or no such queue."""

    level: Count
    exists: bool
    ready: Count | None
    unacknowledged: Count | None
    held: Count | None
    consumers: Count | None
    queue: str
    wait_s: Count
    longest_delay_s: Count


class LevelTotals(Part):
    """All level queues together."""

    ready: Count | None
    unacknowledged: Count | None
    held: Count | None
    consumers: Count | None


class DelayLevels(Part):
    """The delay levels, highest first."""

    delays: DelaysVersion
    not_known: str | None
    levels: Sequence[LevelCounts]
    total: LevelTotals


class ArrivedProbe(Part):
    """One probe, once it is back or lost."""

    level: Count
    delay_s: Count
    late_s: Annotated[
        float | None, BeforeValidator(lambda late_s: None if late_s is None else round(late_s, 4))
    ]
    arrival: Arrival


class ProbeDocument(Document, title="migrator/delays-probe/1"):
    """`migrator delays probe --json`."""

    delays: DelaysVersion = Field(validation_alias="version")
    is_fine: bool
    left_queue: Annotated[str | None, BeforeValidator(lambda name: name or None)]
    probes: Sequence[ArrivedProbe]


class MeasuredBurst(Part):
    """Many messages of one delay, published at once."""

    delay_s: Count
    exchanges: Count
    messages: Count
    per_second: float
    is_released_slower: bool


class CapacityDocument(Document, title="migrator/delays-capacity/1"):
    """`migrator delays probe --capacity --json`."""

    exchange_cost_s: float
    measured_at: datetime
    delays: DelaysVersion
    broker_version: str
    cluster: str
    vhost: str
    bursts: Sequence[MeasuredBurst]
    is_kept: bool
