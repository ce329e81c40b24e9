"""Metrics: what the daemon counts itself, and what one look at it tells at scrape time.

Rules of this file: names and labels are public, and docs/reference/metrics.md is written from
``MEASURES``; what is not known has no sample, never a 0; a label is a name of ours or of an
endpoint, never a text somebody wrote. ``Instruments`` belong to one daemon and are in no global
registry.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

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

from migrator.config.values import parse_duration
from migrator.delays.depths import LevelDepths
from migrator.ledger.pause_reasons import PauseReason, Signal
from migrator.ledger.report import LaneStatus, Progress
from migrator.web.control import StatusService
from migrator.web.status import EndpointView, JobView, Liveness, Readiness, Snapshot


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
        Measure("migrator_info", ("version", "owner"), "Always 1; what runs."),
        Measure("migrator_alive", (), "1 while every loop goes on, as /live."),
        Measure("migrator_ready", (), "1 while the daemon does its work, as /ready."),
        Measure(
            "migrator_worker_silent_seconds",
            ("worker",),
            "Since when a worker's loop did not go on.",
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
            "migrator_knob",
            ("knob",),
            "What is set now: rows, messages per second, lanes, seconds.",
        ),
        Measure(
            "migrator_holds",
            ("signal", "endpoint"),
            "Reasons why nothing is claimed; endpoint empty: of all endpoints. Each signal has a 0 "
            "while it holds nothing.",
        ),
        Measure(
            "migrator_hold_began_timestamp_seconds",
            ("signal", "endpoint"),
            "When the oldest hold of the kind began.",
        ),
        Measure(
            "migrator_job_runs_total",
            ("job",),
            "How often something scheduled was begun: sweep, canary …",
            "counter",
        ),
        Measure(
            "migrator_job_missed_total",
            ("job",),
            "How often it was not when it should have been; the log has it as job_missed.",
            "counter",
        ),
        Measure(
            "migrator_job_last_is_fine",
            ("job",),
            "1 when nobody has to look at what came of it the last time; only of jobs that tell, "
            "such as canary.",
        ),
        Measure("migrator_job_last_timestamp_seconds", ("job",), "When that was."),
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
            "migrator_lateness_seconds",
            ("endpoint",),
            "How long after its due time a dispatcher sent a timeout.",
            "histogram",
        ),
        Measure(
            "migrator_endpoint_info",
            ("endpoint", "mode"),
            "Always 1; what is done for an endpoint.",
        ),
        Measure("migrator_store_rows", ("endpoint",), "Rows in its table."),
        Measure(
            "migrator_rate_rows_per_second",
            ("endpoint",),
            "Handed over or dispatched, over the last minute.",
        ),
        Measure("migrator_eta_seconds", ("endpoint",), "Until its table is empty at that rate."),
        Measure("migrator_due_rows", ("due",), "Rows in the tables by how soon they are due."),
    ),
    "The ledger": (
        Measure(
            "migrator_handed_over_rows", ("endpoint",), "Given to the broker, by its own answer."
        ),
        Measure("migrator_dispatched_rows", ("endpoint",), "Sent when due, and confirmed."),
        Measure("migrator_in_flight_rows", ("endpoint",), "Claimed, and not settled yet."),
        Measure("migrator_doubtful_rows", ("endpoint",), "In batches of which nobody can tell."),
        Measure("migrator_doubtful_batches", (), "Batches a person has to look at."),
        Measure(
            "migrator_quarantined_rows", ("endpoint", "reason"), "Rows kept aside with a reason."
        ),
        Measure(
            "migrator_oldest_open_batch_seconds",
            (),
            "Since the oldest batch that is not settled was claimed; 0: none is open.",
        ),
        Measure(
            "migrator_waiting_destinations",
            ("endpoint",),
            "Destinations that cannot be reached; their rows wait in the store.",
        ),
        Measure(
            "migrator_lease_alive",
            ("lane", "serves"),
            "1 while somebody has the lane; serves: whose dispatcher it is, else empty.",
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


def scrape(status: StatusService, instruments: Instruments) -> bytes:
    """Return all metrics of one daemon in Prometheus' text format, of ``CONTENT_TYPE``."""
    looked_at = CollectorRegistry()
    looked_at.register(StatusCollector(status))
    return generate_latest(instruments.registry) + generate_latest(looked_at)


_Rows = Iterable[tuple[Sequence[str], float | None]]
"""Label values with a value each; None: not known."""

ALL_ENDPOINTS = ""
"""The label ``endpoint`` of what concerns every endpoint."""


class StatusCollector(Collector):
    """Looks at the daemon when it is scraped."""

    def __init__(self, status: StatusService) -> None:
        """Look at nothing yet."""
        self._status = status

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that being registered is no look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every metric of this moment."""
        yield from _health(self._status.live(), self._status.ready())
        yield from snapshot_metrics(self._status.snapshot())


def snapshot_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    """Return the metrics of one look."""
    yield _gauge("migrator_info", [((snapshot.version, snapshot.owner), 1)])
    yield _single("migrator_snapshot_age_seconds", snapshot.age_s)
    yield _single("migrator_snapshot_gaps", len(snapshot.gaps))
    yield from _ledger(snapshot.progress)
    yield from _endpoints(snapshot.endpoints)
    yield from _holds(snapshot.holds)
    yield from _leases(snapshot.progress)
    yield from _levels(snapshot.ladder)
    yield from _jobs(snapshot.jobs)
    yield _gauge(
        "migrator_knob",
        [((knob,), _number(value)) for knob, value in snapshot.knobs.items()],
    )
    yield _gauge("migrator_due_rows", [((span,), rows) for span, rows in snapshot.due])


def _health(live: Liveness, ready: Readiness) -> Iterator[Metric]:
    yield _single("migrator_alive", live.is_alive)
    yield _single("migrator_ready", ready.is_ready)
    yield _gauge(
        "migrator_worker_silent_seconds",
        [((worker,), silent_s) for worker, silent_s in live.silent_s.items()],
    )


def _ledger(progress: Progress) -> Iterator[Metric]:
    endpoints = progress.endpoints
    for name, rows in (
        ("handed_over", [e.handed_over for e in endpoints]),
        ("dispatched", [e.dispatched for e in endpoints]),
        ("in_flight", [e.in_flight for e in endpoints]),
        ("doubtful", [e.doubtful for e in endpoints]),
    ):
        yield _gauge(
            f"migrator_{name}_rows",
            [((e.endpoint,), count) for e, count in zip(endpoints, rows, strict=True)],
        )
    yield _gauge(
        "migrator_quarantined_rows",
        [((q.endpoint, q.reason), q.rows) for q in progress.quarantine],
    )
    yield _single("migrator_doubtful_batches", len(progress.doubtful))
    age = progress.oldest_open_age
    yield _single(
        "migrator_oldest_open_batch_seconds",
        0 if age is None else age.total_seconds(),
    )
    waiting = collections.Counter(held.endpoint for held in progress.held)
    yield _gauge(
        "migrator_waiting_destinations",
        [((name,), waiting[name]) for name in sorted({*waiting, *(e.endpoint for e in endpoints)})],
    )


def _endpoints(endpoints: Sequence[EndpointView]) -> Iterator[Metric]:
    yield _gauge("migrator_endpoint_info", [((e.name, e.mode), 1) for e in endpoints])
    for name, values in (
        ("store_rows", [e.in_store for e in endpoints]),
        ("rate_rows_per_second", [e.rate_per_s for e in endpoints]),
        ("eta_seconds", [e.eta_s for e in endpoints]),
    ):
        yield _gauge(
            f"migrator_{name}",
            [((e.name,), value) for e, value in zip(endpoints, values, strict=True)],
        )


def _holds(holds: Sequence[PauseReason]) -> Iterator[Metric]:
    """Return every signal for all endpoints, also those that hold nothing, so that it has a 0."""
    found = collections.Counter((str(h.signal), h.endpoint or ALL_ENDPOINTS) for h in holds)
    keys = sorted({*found, *((str(signal), ALL_ENDPOINTS) for signal in Signal)})
    yield _gauge("migrator_holds", [(key, found[key]) for key in keys])
    began = {
        (str(h.signal), h.endpoint or ALL_ENDPOINTS): h.since.timestamp()
        for h in sorted(holds, key=lambda h: h.since, reverse=True)  # the earliest stays
    }
    yield _gauge("migrator_hold_began_timestamp_seconds", sorted(began.items()))


def _leases(progress: Progress) -> Iterator[Metric]:
    lanes = [((str(lane.lane), lane.serves or ""), lane) for lane in progress.lanes]
    yield _gauge("migrator_lease_alive", [(key, lane.is_alive) for key, lane in lanes])
    yield _gauge(
        "migrator_lease_age_seconds", [(key, _age_s(lane, progress)) for key, lane in lanes]
    )
    yield _gauge("migrator_lease_open_batches", [(key, lane.open_batches) for key, lane in lanes])


def _jobs(jobs: Sequence[JobView]) -> Iterator[Metric]:
    for name, counts in (
        ("migrator_job_runs_total", [job.runs for job in jobs]),
        ("migrator_job_missed_total", [job.missed for job in jobs]),
    ):
        measure = MEASURES[name]
        family = CounterMetricFamily(name, measure.what, labels=measure.labels)
        for job, count in zip(jobs, counts, strict=True):
            family.add_metric([job.name], count)
        yield family
    last = [(job.name, job.last) for job in jobs if job.last is not None]
    yield _gauge("migrator_job_last_is_fine", [((name,), report.is_fine) for name, report in last])
    yield _gauge(
        "migrator_job_last_timestamp_seconds",
        [((name,), report.at.timestamp()) for name, report in last],
    )


def _levels(ladder: LevelDepths | None) -> Iterator[Metric]:
    steps = () if ladder is None else ladder.steps
    yield _gauge(
        "migrator_level_messages",
        [
            ((f"{step.level:02d}", state), count)
            for step in steps
            if step.exists
            for state, count in (
                ("ready", step.ready),
                ("unacknowledged", step.unacknowledged),
                ("held", step.held),
            )
        ],
    )
    yield _single("migrator_levels_missing", None if ladder is None else len(ladder.missing))


def _age_s(lane: LaneStatus, progress: Progress) -> float:
    return (progress.taken_at - lane.renewed_at).total_seconds()


def _number(value: str) -> float | None:
    """Return a knob's value: a number as it is, a duration in seconds; None: it is neither."""
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return parse_duration(value).total_seconds()
    except ValueError:
        return None


def _single(name: str, value: float | None) -> GaugeMetricFamily:
    return _gauge(name, [((), value)])


def _gauge(name: str, rows: _Rows) -> GaugeMetricFamily:
    measure = MEASURES[name]
    family = GaugeMetricFamily(name, measure.what, labels=measure.labels)
    # the same labels twice would cost the whole scrape
    for values, value in {tuple(values): value for values, value in rows}.items():
        if value is not None:
            family.add_metric(values, float(value))
    return family
