"""Tests of ``migrator.engine.claiming``: what is held is left out, and choices may change."""

from __future__ import annotations

from datetime import timedelta

from migrator.domain.states import Mode
from migrator.domain.timeouts import EndpointName, RunId
from migrator.engine.claiming import Claimer, Selection
from migrator.ports import Claim, ClaimRequest, StoreEndpoint
from tests.unit.engine.memory import LEASE, MemoryClock, MemoryLedger, timeout

ENDPOINTS = [
    StoreEndpoint(name=EndpointName(name), source=f"public.{name}") for name in ("A", "B", "C")
]


class Store:
    """One heap of rows for each endpoint."""

    def __init__(self, rows: int) -> None:
        self.ledgers = {
            endpoint.name: MemoryLedger([timeout(n, 3600.0 + n) for n in range(rows)])
            for endpoint in ENDPOINTS
        }
        self.asked: list[EndpointName] = []

    def claim(self, request: ClaimRequest) -> Claim | None:
        self.asked.append(request.endpoint.name)
        return self.ledgers[request.endpoint.name].claim(request)


def claimed(claimer: Claimer, times: int) -> list[str]:
    """Return whose rows so many claims got; ``-`` where there was nothing."""
    batches = [claimer.claim(LEASE, max_rows=2) for _ in range(times)]
    return ["-" if batch is None else batch.endpoint for batch in batches]


def test_a_held_endpoint_is_left_out_and_the_others_go_round() -> None:
    """It is not even asked for, and has its turn again as soon as nothing holds it."""
    store, held = Store(20), {EndpointName("B")}
    claimer = Claimer(
        claims=store,  # type: ignore[arg-type]  # only what is asked
        clock=MemoryClock(),
        selection=lambda: Selection(cutoff=timedelta(minutes=1), horizon=None),
        endpoints=[(endpoint, RunId(n)) for n, endpoint in enumerate(ENDPOINTS)],
        mode=Mode.STAGED,
        max_bytes=1 << 20,
        is_held=lambda name: name in held,
    )
    assert claimed(claimer, 4) == ["A", "C", "A", "C"]
    assert "B" not in store.asked
    held.clear()
    assert sorted(claimed(claimer, 3)) == ["A", "B", "C"]
    held.update(endpoint.name for endpoint in ENDPOINTS)
    store.asked.clear()
    assert claimed(claimer, 1) == ["-"]
    assert store.asked == []


def test_a_new_cutoff_counts_from_the_next_claim_on() -> None:
    """Without anything being opened anew."""
    store, cutoff = Store(4), timedelta(hours=2)
    claimer = Claimer(
        claims=store,  # type: ignore[arg-type]  # only what is asked
        clock=MemoryClock(),
        selection=lambda: Selection(cutoff=cutoff, horizon=None),
        endpoints=[(ENDPOINTS[0], RunId(1))],
        mode=Mode.STAGED,
        max_bytes=1 << 20,
    )
    assert claimed(claimer, 1) == ["-"]
    cutoff = timedelta(minutes=1)
    assert claimed(claimer, 3) == ["A", "A", "-"]
