"""How the database does: the time until it lets us at a table, and how far replicas are behind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta

from migrator.database.replicas import ReplicaLag
from migrator.errors import StoreError, StoreUnavailable
from migrator.ledger.work import StoreEndpoint
from migrator.service.throttles.base import Sample, Whom
from migrator.stores.ports import Store


def measure_latency(
    store: Store, endpoints: Sequence[StoreEndpoint], patience: timedelta
) -> Mapping[Whom, Sample]:
    """Return for each endpoint how long its table keeps us waiting; *patience* at most.

    A table that refuses us keeps nobody else waiting.

    Raises:
        StoreUnavailable: The database cannot be reached.
    """
    return {each.name: _latency(store, each.source, patience) for each in endpoints}


def _latency(store: Store, source: str, patience: timedelta) -> Sample:
    try:
        took_s = store.answer_s(source, patience=patience)
    except StoreUnavailable:
        raise
    except StoreError as exc:
        return Sample(value=math.inf, text=str(exc))
    more = "more than " if took_s >= patience.total_seconds() else ""
    return Sample(value=took_s, text=f"{source} keeps us waiting for {more}{seconds(took_s)}")


def measure_lag(replicas: ReplicaLag) -> Mapping[Whom, Sample]:
    """Return how far the slowest replica is behind."""
    lag_s, name = replicas.worst_s()
    return {None: Sample(value=lag_s, text=f"replica {name} is {seconds(lag_s)} behind")}


def seconds(value: float) -> str:
    """Return a number of seconds as people read it."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
