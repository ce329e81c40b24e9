"""Every metric of a daemon: its name, labels and meaning. Names are public.

``gauges`` and ``metrics`` look them up here, and docs/reference/metrics.md is written from here, so
that neither can say anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


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
