"""How the database does: the time until it lets us at a table, and how far replicas are behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from migrator.daemon.throttles.base import Sample, Whom
from migrator.ports import StoreEndpoint
from migrator.stores.pulse import SqlPulse
from migrator.stores.replicas import ReplicaLag


def measure_latency(
    pulse: SqlPulse, endpoints: Sequence[StoreEndpoint], patience: timedelta
) -> Mapping[Whom, Sample]:
    """Return for each endpoint how long its table keeps us waiting; *patience* at most."""
    found: dict[Whom, Sample] = {}
    for endpoint in endpoints:
        took_s = pulse.answer_s(endpoint.source, patience=patience)
        is_cut = took_s >= patience.total_seconds()
        text = f"{endpoint.source} keeps us waiting for {'more than ' if is_cut else ''}"
        found[endpoint.name] = Sample(value=took_s, text=f"{text}{seconds(took_s)}")
    return found


def measure_lag(replicas: ReplicaLag) -> Mapping[Whom, Sample]:
    """Return how far the slowest replica is behind."""
    lag_s, name = replicas.worst_s()
    return {None: Sample(value=lag_s, text=f"replica {name} is {seconds(lag_s)} behind")}


def seconds(value: float) -> str:
    """Return a number of seconds as people read it."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
