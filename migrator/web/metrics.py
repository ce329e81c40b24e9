"""Metrics: what the daemon counts itself, and what one look at it tells at scrape time.

Rules of this file: names and labels are public, and docs/reference/metrics.md is written from
``MEASURES``; what is not known has no sample, never a 0; a label is a name of migrator's or of an
endpoint, never free text. ``Instruments`` belong to one daemon and are in no global
registry.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from migrator.delays.depths import LevelDepths
from migrator.ledger.report import Progress
from migrator.status.remaining import Phase, SentBy
from migrator.status.snapshot import EndpointView, Snapshot
from migrator.text import parse_duration
from migrator.throttle.reasons import PauseReason, Signal
from migrator.web.control import Liveness, Readiness, StatusService


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric."""

    name: str
    labels: Sequence[str]
    what: str
    """What it tells, as people read it and as a scrape explains it."""
    kind: str = "gauge"
    """``gauge``, ``counter`` or ``histogram``."""


GROUPS: Final[Mapping[str, Sequence[Measure]]] = {
    "The daemon itself": (
        Measure("migrator_info", ("version", "owner"), "Always 1; the labels say what runs."),
        Measure("migrator_alive", (), "1 while every loop is running, as /live."),
        Measure("migrator_ready", (), "1 while the daemon does its work, as /ready."),
        Measure(
            "migrator_worker_silent_seconds",
            ("worker",),
            "Time since a worker's loop last ran.",
        ),
        Measure(
            "migrator_snapshot_age_seconds",
            (),
            "How old the numbers of ledger, tables and broker are.",
        ),
        Measure(
            "migrator_snapshot_gaps",
            (),
            "Things that could not be read this time; `migrator status --daemon` says which.",
        ),
        Measure(
            "migrator_setting",
            ("setting",),
            "Current settings: rows, messages per second, lanes, seconds.",
        ),
        Measure(
            "migrator_holds",
            ("signal", "endpoint"),
            "Reasons why nothing is claimed; endpoint empty: for all endpoints. Each signal has a "
            "0 while it holds nothing.",
        ),
        Measure(
            "migrator_hold_began_timestamp_seconds",
            ("signal", "endpoint"),
            "When the oldest hold of the kind began.",
        ),
        Measure(
            "migrator_job_runs_total",
            ("job",),
            "How often a scheduled job was started: scan, probe …",
            "counter",
        ),
        Measure(
            "migrator_job_missed_total",
            ("job",),
            "How often it was not started when it should have been; the log has it as job_missed.",
            "counter",
        ),
        Measure(
            "migrator_job_last_is_fine",
            ("job",),
            "1 when its last result needs no attention; only of jobs that have one, such as probe.",
        ),
        Measure(
            "migrator_job_last_timestamp_seconds", ("job",), "When its last result was reported."
        ),
    ),
    "The work": (
        Measure(
            "migrator_settled_rows_total",
            ("endpoint", "mode"),
            "Rows this process handed over or dispatched.",
            "counter",
        ),
        Measure(
            "migrator_batch_seconds",
            ("endpoint", "mode"),
            "From the claim of a batch until it was settled.",
            "histogram",
        ),
        Measure(
            "migrator_paced_seconds_total",
            (),
            "How long batches waited for room in the delay levels, all lanes together.",
            "counter",
        ),
        Measure(
            "migrator_lateness_seconds",
            ("endpoint",),
            "How long after its due time a dispatcher sent a timeout.",
            "histogram",
        ),
        Measure(
            "migrator_endpoint_info",
            ("endpoint", "mode"),
            "Always 1; the mode of an endpoint.",
        ),
        Measure("migrator_store_rows", ("endpoint",), "Rows in its table."),
        Measure(
            "migrator_rate_rows_per_second",
            ("endpoint",),
            "Handed over or dispatched, over the last minute.",
        ),
        Measure("migrator_eta_seconds", ("endpoint",), "Until all is moved at that rate."),
        Measure(
            "migrator_endpoint_state",
            ("endpoint", "state"),
            "1 for the state an endpoint is in: moving, waiting, or finished when nothing is left "
            "to move; only of those whose rows are moved.",
        ),
        Measure(
            "migrator_left_rows",
            ("endpoint", "due", "sent_by"),
            "Rows that the cutoff leaves in the table; due is overdue or soon, sent_by is "
            "migrator, timeout_manager, nobody or not_known.",
        ),
        Measure("migrator_due_rows", ("due",), "Rows in the tables by how soon they are due."),
    ),
    "The ledger": (
        Measure(
            "migrator_handed_over_rows",
            ("endpoint",),
            "Handed over to the broker, as it confirmed.",
        ),
        Measure("migrator_dispatched_rows", ("endpoint",), "Sent when due, and confirmed."),
        Measure("migrator_in_flight_rows", ("endpoint",), "Claimed, and not settled yet."),
        Measure(
            "migrator_parked_rows",
            ("endpoint",),
            "Parked in the ledger: their destination takes no messages.",
        ),
        Measure(
            "migrator_parked_destination_rows",
            ("endpoint", "destination", "reason"),
            "The same by destination, of the 100 with most rows.",
        ),
        Measure(
            "migrator_doubtful_rows",
            ("endpoint",),
            "Rows of doubtful batches: it is not known whether the broker has them.",
        ),
        Measure("migrator_doubtful_batches", (), "Batches that an operator has to decide about."),
        Measure(
            "migrator_quarantined_rows", ("endpoint", "reason"), "Rows in quarantine, by reason."
        ),
        Measure(
            "migrator_oldest_open_batch_seconds",
            (),
            "Since the oldest batch that is not settled was claimed; 0: none is open.",
        ),
        Measure(
            "migrator_waiting_destinations",
            ("endpoint",),
            "Destinations that take no messages; their rows are parked in the ledger.",
        ),
        Measure(
            "migrator_lease_alive",
            ("lane", "serves"),
            "1 while a process has the lane; serves: whose dispatcher it is, else empty.",
        ),
        Measure("migrator_lease_age_seconds", ("lane", "serves"), "Since the lease was renewed."),
        Measure(
            "migrator_lease_open_batches",
            ("lane", "serves"),
            "Batches of the lane that are not settled.",
        ),
    ),
    "The broker": (
        Measure(
            "migrator_level_messages",
            ("level", "state"),
            "Messages in a delay level; state is ready, unacknowledged, or held: expired, and not "
            "passed on.",
        ),
        Measure("migrator_levels_missing", (), "Delay levels without a queue."),
    ),
}
"""By what they are about, in the order in which people read of them."""

MEASURES: Final[Mapping[str, Measure]] = {
    each.name: each for group in GROUPS.values() for each in group
}
"""The same by name."""


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BATCH_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_MOST_DESTINATIONS: Final = 100
_LATENESS_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
"""Fine round the second within which a dispatcher is to send, and the two of the promise."""


class Instruments:
    """What one daemon counts; every method may be called from any thread, and often."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._batch_seconds = self._histogram("migrator_batch_seconds", _BATCH_BUCKETS_S)
        self._lateness = self._histogram("migrator_lateness_seconds", _LATENESS_BUCKETS_S)
        settled = MEASURES["migrator_settled_rows_total"]
        self._settled = Counter(settled.name, settled.what, settled.labels, registry=self.registry)
        paced = MEASURES["migrator_paced_seconds_total"]
        self._paced = Counter(paced.name, paced.what, paced.labels, registry=self.registry)

    def _histogram(self, name: str, buckets: Sequence[float]) -> Histogram:
        measure = MEASURES[name]
        return Histogram(
            name, measure.what, measure.labels, registry=self.registry, buckets=buckets
        )

    def batch_settled(self, endpoint: str, mode: str, rows: int, seconds: float) -> None:
        """Count a batch whose *rows* are handed over or dispatched, *seconds* after its claim."""
        self._batch_seconds.labels(endpoint, mode).observe(seconds)
        self._settled.labels(endpoint, mode).inc(rows)

    def paced(self, seconds: float) -> None:
        """Count the time that a batch waited until the levels had room for it."""
        self._paced.inc(seconds)

    def sent(self, endpoint: str, lateness_s: float) -> None:
        """Count a timeout that was sent so long after its due time."""
        self._lateness.labels(endpoint).observe(max(lateness_s, 0.0))


def scrape(status: StatusService, instruments: Instruments) -> bytes:
    """Return all metrics of one daemon in Prometheus' text format, of ``CONTENT_TYPE``."""
    looked_at = CollectorRegistry()
    looked_at.register(StatusCollector(status))
    return generate_latest(instruments.registry) + generate_latest(looked_at)


_Samples = Mapping[str, Iterable[tuple[Sequence[str], float | None]]]
"""By metric, label values with a value each; None: not known."""

ALL_ENDPOINTS = ""
"""The label ``endpoint`` of what concerns every endpoint."""


class StatusCollector(Collector):
    """Looks at the daemon when it is scraped."""

    def __init__(self, status: StatusService) -> None:
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that being registered is no look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every metric of this moment."""
        snapshot = self._status.snapshot()
        for samples in (
            _health(self._status.live(), self._status.ready()),
            _daemon(snapshot),
            _work(snapshot),
            _ledger(snapshot.progress),
            _holds(snapshot.holds),
            _levels(snapshot.levels),
        ):
            for name, rows in samples.items():
                measure = MEASURES[name]
                family = _FAMILIES[measure.kind](name, measure.what, labels=measure.labels)
                # the same labels twice would cost the whole scrape
                for values, value in {tuple(values): value for values, value in rows}.items():
                    if value is not None:
                        family.add_metric(values, float(value))
                yield family


_FAMILIES: Final = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def _health(live: Liveness, ready: Readiness) -> _Samples:
    return {
        "migrator_alive": [((), live.is_alive)],
        "migrator_ready": [((), ready.is_ready)],
        "migrator_worker_silent_seconds": [((name,), s) for name, s in live.silent_s.items()],
    }


def _daemon(snapshot: Snapshot) -> _Samples:
    last = [(job.job, job.last) for job in snapshot.jobs if job.last is not None]
    return {
        "migrator_info": [((snapshot.version, snapshot.owner), 1)],
        "migrator_snapshot_age_seconds": [((), snapshot.age_s)],
        "migrator_snapshot_gaps": [((), len(snapshot.gaps))],
        "migrator_setting": [
            ((setting,), _number(value)) for setting, value in snapshot.settings.items()
        ],
        "migrator_job_runs_total": [((job.job,), job.runs) for job in snapshot.jobs],
        "migrator_job_missed_total": [((job.job,), job.missed) for job in snapshot.jobs],
        "migrator_job_last_is_fine": [((name,), report.is_fine) for name, report in last],
        "migrator_job_last_timestamp_seconds": [
            ((name,), report.at.timestamp()) for name, report in last
        ],
    }


def _work(snapshot: Snapshot) -> _Samples:
    endpoints = snapshot.endpoints
    return {
        "migrator_endpoint_info": [((e.endpoint, e.mode), 1) for e in endpoints if e.mode],
        "migrator_store_rows": [((e.endpoint,), e.in_store) for e in endpoints],
        "migrator_rate_rows_per_second": [((e.endpoint,), e.rate_per_s) for e in endpoints],
        "migrator_eta_seconds": [((e.endpoint,), e.eta_s) for e in endpoints],
        "migrator_endpoint_state": [
            ((e.endpoint, phase), e.phase is phase) for e in endpoints if e.phase for phase in Phase
        ],
        "migrator_left_rows": [*_left(endpoints)],
        "migrator_due_rows": [((span,), rows) for span, rows in snapshot.due],
    }


def _left(endpoints: Sequence[EndpointView]) -> Iterator[tuple[Sequence[str], float]]:
    """Yield remaining rows; 0 where another sender sends them: that can change."""
    for endpoint in endpoints:
        if (found := endpoint.remaining) is None or endpoint.phase is None:
            continue
        for sender in SentBy:
            for due, rows in (("overdue", found.overdue), ("soon", found.left - found.overdue)):
                yield (
                    (endpoint.endpoint, due, sender),
                    rows if sender is found.sent_by else 0,
                )


def _ledger(progress: Progress) -> _Samples:
    endpoints, age = progress.endpoints, progress.oldest_open_age
    waiting = collections.Counter(held.endpoint for held in progress.held)
    waiting.update({e.endpoint: 0 for e in endpoints})
    lanes = [((str(lane.lane), lane.serves or ""), lane) for lane in progress.lanes]
    return {
        "migrator_handed_over_rows": [((e.endpoint,), e.handed_over) for e in endpoints],
        "migrator_dispatched_rows": [((e.endpoint,), e.dispatched) for e in endpoints],
        "migrator_in_flight_rows": [((e.endpoint,), e.in_flight) for e in endpoints],
        "migrator_parked_rows": [((e.endpoint,), e.parked) for e in endpoints],
        "migrator_parked_destination_rows": [
            ((h.endpoint, h.destination, h.reason), h.rows)
            for h in sorted(progress.held, key=lambda h: -h.rows)[:_MOST_DESTINATIONS]
        ],
        "migrator_doubtful_rows": [((e.endpoint,), e.doubtful) for e in endpoints],
        "migrator_quarantined_rows": [
            ((q.endpoint, q.reason), q.rows) for q in progress.quarantine
        ],
        "migrator_doubtful_batches": [((), len(progress.doubtful))],
        "migrator_oldest_open_batch_seconds": [((), age.total_seconds() if age else 0)],
        "migrator_waiting_destinations": [((name,), waiting[name]) for name in sorted(waiting)],
        "migrator_lease_alive": [(key, lane.is_alive) for key, lane in lanes],
        "migrator_lease_age_seconds": [
            (key, (progress.taken_at - lane.renewed_at).total_seconds()) for key, lane in lanes
        ],
        "migrator_lease_open_batches": [(key, lane.open_batches) for key, lane in lanes],
    }


def _holds(holds: Sequence[PauseReason]) -> _Samples:
    """Return every signal for all endpoints, also those that hold nothing, so that it has a 0."""
    found = collections.Counter((str(h.signal), h.endpoint or ALL_ENDPOINTS) for h in holds)
    found.update({(str(signal), ALL_ENDPOINTS): 0 for signal in Signal})
    began = {
        (str(h.signal), h.endpoint or ALL_ENDPOINTS): h.since.timestamp()
        for h in sorted(holds, key=lambda h: h.since, reverse=True)  # the earliest stays
    }
    return {
        "migrator_holds": sorted(found.items()),
        "migrator_hold_began_timestamp_seconds": sorted(began.items()),
    }


def _levels(depths: LevelDepths | None) -> _Samples:
    if depths is None:
        return {}
    return {
        "migrator_level_messages": [
            ((f"{step.level:02d}", state), getattr(step, state))
            for step in depths.steps
            if step.exists
            for state in ("ready", "unacknowledged", "held")
        ],
        "migrator_levels_missing": [((), len(depths.missing))],
    }


def _number(value: str) -> float | None:
    """Return what a setting has: a number as it is, a duration in seconds; None: neither."""
    for read in (float, lambda text: parse_duration(text).total_seconds()):
        with suppress(ValueError):
            return read(value)
    return None
