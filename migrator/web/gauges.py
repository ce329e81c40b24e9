"""What one look at the daemon tells, as metrics.

Rules of this file: what is not known has no sample, never a 0; names and labels are public
(``measures``); a label is a name of ours or of an endpoint, never a text somebody wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from migrator.config.values import parse_duration
from migrator.delays.depths import LevelDepths
from migrator.ledger.pause_reasons import Hold, Signal
from migrator.ledger.report import LaneStatus, Progress
from migrator.web.control_values import Liveness, Readiness
from migrator.web.job_values import JobView
from migrator.web.measures import MEASURES
from migrator.web.panel import Panel
from migrator.web.snapshot import EndpointView, Snapshot

_Rows = Iterable[tuple[Sequence[str], float | None]]
"""Label values with a value each; None: not known."""

ALL_ENDPOINTS = ""
"""The label ``endpoint`` of what concerns every endpoint."""


class PanelCollector(Collector):
    """Looks at a panel when it is scraped."""

    def __init__(self, panel: Panel) -> None:
        """Look at nothing yet."""
        self._panel = panel

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that being registered is no look."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return every metric of this moment."""
        yield from _health(self._panel.live(), self._panel.ready())
        yield from snapshot_metrics(self._panel.snapshot())


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
    waiting = Counter(held.endpoint for held in progress.held)
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


def _holds(holds: Sequence[Hold]) -> Iterator[Metric]:
    """Return every signal for all endpoints, also those that hold nothing, so that it has a 0."""
    found = Counter((str(h.signal), h.endpoint or ALL_ENDPOINTS) for h in holds)
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
