"""Tests of ``migrator.recall.rules``: which open batches a recall has to wait for."""

from __future__ import annotations

import pytest

from migrator.errors import PreflightRefused
from migrator.ledger.states import HALF_DONE, OPEN, BatchState, Mode
from migrator.ledger.work import Batch
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, RunId
from migrator.recall.rules import RecallScope, demand_settled

SALES = "public.Sales_TimeoutData"
BILLING = "public.Billing_TimeoutData"


def batch(state: BatchState, source: str = SALES, run: int = 1) -> Batch:
    """Return a batch of ten rows."""
    return Batch(
        id=BatchId(7),
        run=RunId(run),
        endpoint=EndpointName("Sales"),
        source=source,
        lane=Lane(0),
        mode=Mode.STAGED,
        state=state,
        attempt=1,
        size=10,
        body_bytes=1000,
    )


@pytest.mark.parametrize("state", sorted(OPEN))
@pytest.mark.parametrize(
    "scope", [RecallScope(), RecallScope(source=SALES), RecallScope(run=RunId(1))]
)
def test_an_open_batch_that_is_meant_is_settled_first(
    state: BatchState, scope: RecallScope
) -> None:
    """Whatever its state: its rows would be handed over again afterwards."""
    with pytest.raises(PreflightRefused, match="batches 7 may be on their way"):
        demand_settled([batch(state)], scope)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_others_are_in_the_way_only_while_they_are_on_their_way(state: BatchState) -> None:
    """What another endpoint, or another run, has claimed is all in the ledger."""
    scope = RecallScope(source=SALES, run=RunId(1))
    for other in (batch(state, BILLING), batch(state, SALES, run=2)):
        if state in HALF_DONE | {BatchState.CLAIMED}:
            demand_settled([other], scope)
        else:
            with pytest.raises(PreflightRefused):
                demand_settled([other], scope)
