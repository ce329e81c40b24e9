"""Metrics: what the daemon counts itself, and what one look at it tells at scrape time.

``Instruments`` belong to one daemon and are in no global registry. Names are public: ``measures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from migrator.web.gauges import PanelCollector
from migrator.web.measures import MEASURES
from migrator.web.panel import Panel

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BATCH_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LATENESS_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
"""Fine round the second within which a dispatcher is to send, and the two of the promise."""


class _Named(TypedDict):
    name: str
    documentation: str
    labelnames: Sequence[str]


class Instruments:
    """What one daemon counts; every method may be called from any thread, and often."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._batch_seconds = Histogram(
            **_named("migrator_batch_seconds"),
            buckets=_BATCH_BUCKETS_S,
            registry=self.registry,
        )
        self._settled = Counter(
            **_named("migrator_settled_rows_total"),
            registry=self.registry,
        )
        self._lateness = Histogram(
            **_named("migrator_lateness_seconds"),
            buckets=_LATENESS_BUCKETS_S,
            registry=self.registry,
        )

    def batch_settled(self, endpoint: str, mode: str, *, seconds: float, rows: int) -> None:
        """Count a batch whose *rows* are handed over or dispatched, *seconds* after its claim."""
        self._batch_seconds.labels(endpoint, mode).observe(seconds)
        self._settled.labels(endpoint, mode).inc(rows)

    def sent(self, endpoint: str, *, lateness_s: float) -> None:
        """Count a timeout that was sent so long after its due time."""
        self._lateness.labels(endpoint).observe(max(lateness_s, 0.0))


def _named(name: str) -> _Named:
    measure = MEASURES[name]
    return {"name": name, "documentation": measure.what, "labelnames": measure.labels}


def scrape(panel: Panel, instruments: Instruments) -> bytes:
    """Return all metrics of one daemon in Prometheus' text format, of ``CONTENT_TYPE``."""
    looked_at = CollectorRegistry()
    looked_at.register(PanelCollector(panel))
    return generate_latest(instruments.registry) + generate_latest(looked_at)
