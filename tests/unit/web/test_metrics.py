"""Tests of ``migrator.web.metrics``, by a parser that is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from migrator.ledger.report import Progress
from migrator.throttle.reasons import Signal
from migrator.web.control import Liveness, Readiness
from migrator.web.metrics import Instruments, scrape
from tests.support.panel import NASTY, NOW, SALES, MemoryPanel, hold, some_remaining, some_snapshot

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(panel: MemoryPanel, instruments: Instruments | None = None) -> Samples:
    """Return every sample; none may come twice."""
    text = scrape(panel, instruments or Instruments()).decode()
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """Return one sample; None: there is no such."""
    return samples.get((name, frozenset(labels.items())))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("migrator_info", {"version": "1.2.3", "owner": "app1/1/2/3"}, 1),
        ("migrator_alive", {}, 1),
        ("migrator_ready", {}, 1),
        ("migrator_worker_silent_seconds", {"worker": "lane-worker-0"}, 0.5),
        ("migrator_snapshot_age_seconds", {}, 1.5),
        ("migrator_snapshot_gaps", {}, 1),
        ("migrator_handed_over_rows", {"endpoint": "Sales"}, 90),
        ("migrator_dispatched_rows", {"endpoint": "Sales"}, 7),
        ("migrator_in_flight_rows", {"endpoint": "Sales"}, 4),
        ("migrator_doubtful_rows", {"endpoint": "Sales"}, 10),
        ("migrator_quarantined_rows", {"endpoint": "Sales", "reason": "no-destination"}, 3),
        ("migrator_doubtful_batches", {}, 1),
        ("migrator_oldest_open_batch_seconds", {}, 300),
        ("migrator_waiting_destinations", {"endpoint": "Sales"}, 1),
        ("migrator_endpoint_info", {"endpoint": NASTY, "mode": "dispatch"}, 1),
        ("migrator_store_rows", {"endpoint": "Sales"}, 5000),
        ("migrator_rate_rows_per_second", {"endpoint": "Sales"}, 50),
        ("migrator_eta_seconds", {"endpoint": "Sales"}, 100),
        ("migrator_holds", {"signal": "paused", "endpoint": ""}, 0),
        ("migrator_lease_alive", {"lane": "0", "serves": ""}, 1),
        ("migrator_lease_age_seconds", {"lane": "0", "serves": ""}, 4),
        ("migrator_lease_open_batches", {"lane": "0", "serves": ""}, 2),
        ("migrator_level_messages", {"level": "03", "state": "ready"}, 12),
        ("migrator_level_messages", {"level": "03", "state": "held"}, 40),
        ("migrator_levels_missing", {}, 27),
        ("migrator_setting", {"setting": "batch_size"}, 1000),
        ("migrator_setting", {"setting": "cutoff"}, 60),
        ("migrator_due_rows", {"due": "up to 1h"}, 11),
        ("migrator_job_runs_total", {"job": "sweep"}, 90),
        ("migrator_job_missed_total", {"job": "sweep"}, 2),
        ("migrator_job_missed_total", {"job": "probe"}, 0),
        ("migrator_job_last_is_fine", {"job": "probe"}, 0),
        ("migrator_job_last_timestamp_seconds", {"job": "probe"}, NOW.timestamp()),
    ],
)
def test_a_look_is_told(name: str, labels: dict[str, str], expected: float) -> None:
    """Each number under its public name."""
    assert value(scraped(MemoryPanel()), name, **labels) == expected


def test_what_is_not_known_has_no_sample() -> None:
    """A 0 would be a claim."""
    panel = MemoryPanel()
    panel.shown = replace(panel.shown, levels=None)
    found = scraped(panel)
    for name in ("store_rows", "rate_rows_per_second", "eta_seconds"):
        assert value(found, f"migrator_{name}", endpoint=NASTY) is None
    assert value(found, "migrator_levels_missing") is None
    assert value(found, "migrator_setting", setting="mode") is None
    assert not any(name == "migrator_level_messages" for name, _ in found)


def test_holds_are_counted_by_signal_and_endpoint() -> None:
    """Two of a kind are one sample that began with the older; an alert sees each signal rise."""
    panel = MemoryPanel()
    panel.shown = some_snapshot(
        holds=[
            hold(Signal.PAUSED, SALES),
            hold(Signal.DESTINATION_DEPTH, SALES, minute=2),
            hold(Signal.DESTINATION_DEPTH, SALES, minute=1),
            hold(Signal.ALARM),
        ]
    )
    found = scraped(panel)
    depth = {"signal": "destination_depth", "endpoint": "Sales"}
    assert value(found, "migrator_holds", **depth) == 2
    of_all = {str(s): value(found, "migrator_holds", signal=s, endpoint="") for s in Signal}
    assert of_all == {str(signal): int(signal is Signal.ALARM) for signal in Signal}
    began = value(found, "migrator_hold_began_timestamp_seconds", **depth)
    assert began == NOW.timestamp() + 60


def test_a_name_that_comes_twice_does_not_cost_the_rest() -> None:
    """Whatever reads the metrics refuses all of them when a sample is there twice."""
    panel = MemoryPanel()
    (one, *_) = panel.shown.endpoints
    panel.shown = replace(panel.shown, endpoints=[one, replace(one, remaining=some_remaining(3))])
    assert value(scraped(panel), "migrator_store_rows", endpoint="Sales") == 3


def test_an_idle_ledger_is_told() -> None:
    """Nothing is open, nobody has a lane."""
    panel = MemoryPanel()
    nothing = Progress(
        taken_at=NOW, endpoints=[], quarantine=[], doubtful=[], oldest_open_age=None, lanes=[]
    )
    panel.shown = replace(panel.shown, progress=nothing)
    panel.liveness = Liveness(silent_s={}, is_alive=False)
    panel.readiness = Readiness(is_ready=False, reasons=["starting"])
    found = scraped(panel)
    assert value(found, "migrator_oldest_open_batch_seconds") == 0
    assert value(found, "migrator_alive") == value(found, "migrator_ready") == 0


def test_instruments_count() -> None:
    """Batches with their seconds and rows, and how late each timeout was; of this daemon alone."""
    instruments = Instruments()
    Instruments().sent("Sales", lateness_s=1)
    instruments.batch_settled("Sales", "staged", seconds=0.3, rows=1000)
    instruments.batch_settled("Sales", "staged", seconds=7, rows=500)
    instruments.sent("Sales", lateness_s=0.2)
    instruments.sent("Sales", lateness_s=-0.001)
    found = scraped(MemoryPanel(), instruments)
    staged = {"endpoint": "Sales", "mode": "staged"}
    assert value(found, "migrator_settled_rows_total", **staged) == 1500
    assert value(found, "migrator_batch_seconds_count", **staged) == 2
    assert value(found, "migrator_batch_seconds_bucket", **staged, le="0.5") == 1
    assert value(found, "migrator_lateness_seconds_count", endpoint="Sales") == 2
    assert value(found, "migrator_lateness_seconds_sum", endpoint="Sales") == pytest.approx(0.2)
    assert (value(found, "process_resident_memory_bytes") or 0) > 1e6
