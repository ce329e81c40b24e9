"""Tests of ``migrator.recall.rules``: which open batches a recall has to wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.errors import PreflightRefused
from migrator.ledger.states import OPEN, BatchState, Mode
from migrator.ledger.work import Batch, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, RunId
from migrator.recall.rules import Scope, demand_settled

SALES, BILLING = "Sales_TimeoutData", "Billing_TimeoutData"
OF_SALES = Scope(endpoints=[StoreEndpoint(name=EndpointName("Sales"), source=SALES)])


def batch(number: int, state: BatchState, *, run: int = 1, source: str = SALES) -> Batch:
    """Return a batch of ten rows."""
    return Batch(
        id=BatchId(number),
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
@pytest.mark.parametrize("scope", [Scope(), OF_SALES, Scope(run=RunId(1))])
def test_an_open_batch_that_is_meant_is_settled_first(state: BatchState, scope: Scope) -> None:
    """Whatever its state: its rows would be handed over again afterwards."""
    with pytest.raises(PreflightRefused, match=r"batches 7 (may be on their way|are claimed)"):
        demand_settled([batch(7, state)], scope)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_others_are_in_nobodys_way(state: BatchState) -> None:
    """What another endpoint, or another run, sends into the levels meanwhile is left there."""
    scope = replace(OF_SALES, run=RunId(1))
    demand_settled([batch(7, state, source=BILLING), batch(7, state, run=2)], scope)
