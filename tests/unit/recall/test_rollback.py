"""Which open batches a rollback gives back, and which a recall has to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.errors import PreflightRefused, SourceGone
from migrator.ledger.states import OPEN, BatchState, Event, Mode, next_state
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import FIRST_DISPATCHER_LANE, BatchId, EndpointName, Lane, RunId
from migrator.recall.rollback import Rollback, RollbackReport, RollbackScope
from migrator.recall.rules import RecallScope, demand_settled

SALES = StoreEndpoint(name=EndpointName("Sales"), source="Sales_TimeoutData")
BILLING = "Billing_TimeoutData"
EVERYTHING = RollbackScope(endpoint=None, run=None)


def batch(
    number: int, state: BatchState, *, lane: int = 0, run: int = 1, source: str = SALES.source
) -> Batch:
    """Return a batch of ten rows."""
    return Batch(
        id=BatchId(number),
        run=RunId(run),
        endpoint=SALES.name,
        source=source,
        lane=Lane(lane),
        mode=Mode.STAGED,
        state=state,
        attempt=1,
        size=10,
        body_bytes=1000,
    )


class Ledger:
    """Batches, leases and claims in memory, as far as giving back needs them."""

    def __init__(self, *batches: Batch) -> None:
        self.batches = {each.id: each for each in batches}
        self.living: dict[Lane, str] = {}
        self.taken: set[Lane] = set()
        self.others_had_all: set[BatchId] = set()
        self.gone: set[BatchId] = set()
        self.quarantine_asked: list[StoreEndpoint | None] = []
        self.held: set[Lane] = set()

    def acquire(self, lane: Lane, owner: str, duration: timedelta) -> Lease | None:
        if lane in self.taken:
            return None
        self.held.add(lane)
        return Lease(lane=lane, owner=owner, token=1)

    def renew(self, lease: Lease, duration: timedelta, *, doing: str) -> None:
        assert lease.lane in self.held

    def surrender(self, lease: Lease) -> None:
        self.held.discard(lease.lane)

    def abandoned_lanes(self) -> Sequence[Lane]:
        lanes = {each.lane for each in self.batches.values() if each.state in OPEN}
        return sorted(lanes - self.living.keys())

    def holders(self) -> Sequence[tuple[Lane, str]]:
        return sorted(self.living.items())

    def open_batches(self, lease: Lease) -> Sequence[Batch]:
        mine = (b for b in self.batches.values() if b.lane == lease.lane and b.state in OPEN)
        return sorted(mine, key=lambda each: each.id)

    def advance(self, batch: Batch, event: Event, lease: Lease) -> Batch:
        assert lease.lane in self.held
        after = replace(batch, state=next_state(batch.state, event))
        self.batches[batch.id] = after
        return after

    def release(self, batch: Batch, lease: Lease) -> int:
        if batch.id in self.gone:  # it is recorded first, and then the store is asked
            self.batches[batch.id] = replace(batch, state=BatchState.RELEASING)
            raise SourceGone("there is no such table")
        return self.advance(batch, Event.RELEASE, lease).size

    def resume(self, batch: Batch, lease: Lease) -> Batch | None:
        if batch.id in self.gone:
            raise SourceGone("there is no such table")
        if batch.id in self.others_had_all:
            del self.batches[batch.id]
            return None
        return self.advance(batch, Event.ALL_TAKEN, lease)

    def release_quarantined(self, endpoint: StoreEndpoint | None) -> int:
        self.quarantine_asked.append(endpoint)
        return 3

    def states(self) -> Mapping[int, BatchState]:
        return {number: each.state for number, each in self.batches.items()}


def rolled_back(ledger: Any, scope: RollbackScope = EVERYTHING) -> RollbackReport:
    """Roll back; no lane may be held afterwards, and there is nothing left to do."""
    unused = dict.fromkeys(("books", "runs", "recalls", "clock", "new_recall", "held"), ledger)
    duration = timedelta(seconds=20)
    rollback = Rollback(
        claims=ledger, leases=ledger, batches=ledger, lease_duration=duration, settle=None, **unused
    )
    done = rollback.release(scope)
    assert not ledger.held
    assert rollback.release(scope).rows == 0
    return done


@pytest.mark.parametrize("state", [BatchState.CLAIMED, BatchState.STAGING])
def test_what_cannot_have_reached_the_broker_goes_back(state: BatchState) -> None:
    """Nothing is nacked before committing, so a staged batch is still all ours."""
    ledger = Ledger(batch(1, state), batch(2, state, lane=3))
    done = rolled_back(ledger)
    assert (done.rows, list(done.batches), done.quarantined) == (20, [1, 2], 3)
    assert ledger.states() == {1: BatchState.RELEASED, 2: BatchState.RELEASED}


@pytest.mark.parametrize("state", [BatchState.COMMITTING, BatchState.PUBLISHING])
def test_what_may_have_reached_the_broker_is_left_alone(state: BatchState) -> None:
    """The lane's next owner settles it."""
    ledger = Ledger(batch(1, state), batch(2, BatchState.CLAIMED))
    done = rolled_back(ledger)
    assert (list(done.batches), list(done.untouched)) == ([2], [1])
    assert ledger.states()[1] is state


def test_what_is_half_done_with_a_document_store_is_finished_and_goes_back() -> None:
    """Of a claim of which others had all, nothing is left to give back."""
    ledger = Ledger(
        batch(1, BatchState.CLAIMING),
        batch(2, BatchState.RELEASING),
        batch(3, BatchState.CLAIMING),
    )
    ledger.others_had_all.add(BatchId(3))
    done = rolled_back(ledger)
    assert (done.rows, list(done.batches), list(done.untouched)) == (20, [1, 2, 3], [])
    assert ledger.states() == {1: BatchState.RELEASED, 2: BatchState.RELEASED}


def test_what_came_from_a_store_that_is_gone_stops_nothing_else() -> None:
    """Only a person can go on with it; the batch behind it goes back."""
    ledger = Ledger(batch(1, BatchState.CLAIMING), batch(2, BatchState.CLAIMED, source="There"))
    ledger.gone.add(BatchId(1))
    done = rolled_back(ledger)
    assert (list(done.batches), list(done.stuck), list(done.untouched)) == ([2], [1], [])
    assert ledger.states()[1] is BatchState.CLAIMING


def test_of_a_store_that_is_gone_one_batch_is_tried() -> None:
    """It is half-done from then on; the others are as they were, and can still be handed over."""
    ledger = Ledger(*(batch(number, BatchState.CLAIMED) for number in (1, 2, 3)))
    ledger.gone |= {BatchId(number) for number in (1, 2, 3)}
    done = rolled_back(ledger)
    assert (list(done.batches), list(done.stuck)) == ([], [1, 2, 3])
    assert ledger.states() == {
        1: BatchState.RELEASING,
        2: BatchState.CLAIMED,
        3: BatchState.CLAIMED,
    }


def test_lanes_of_others_are_left_alone() -> None:
    """Whoever works there is named; one that was taken in between is its new owner's."""
    ledger = Ledger(*(batch(lane + 1, BatchState.CLAIMED, lane=lane) for lane in range(3)))
    ledger.living[Lane(1)] = "host/1/2/3"
    ledger.taken.add(Lane(2))
    done = rolled_back(ledger)
    assert list(done.batches) == [1]
    assert list(done.busy) == [(1, "host/1/2/3")]


def test_a_dispatchers_lane_goes_back_too() -> None:
    """What it claimed and did not begin to send; the rest is for the next dispatcher."""
    claimed, publishing = (
        replace(batch(number, state, lane=FIRST_DISPATCHER_LANE), mode=Mode.DISPATCH)
        for number, state in ((1, BatchState.CLAIMED), (2, BatchState.PUBLISHING))
    )
    done = rolled_back(Ledger(claimed, publishing, batch(3, BatchState.PUBLISHING)))
    assert (list(done.batches), list(done.untouched)) == ([1], [3, 2])
    assert list(done.dispatching) == [2]


@pytest.mark.parametrize(
    ("scope", "quarantined", "asked"),
    [
        (RollbackScope(endpoint=SALES, run=None), 3, [SALES] * 2),
        (RollbackScope(endpoint=None, run=RunId(2)), 0, []),  # rows tell no run
    ],
)
def test_only_what_is_meant_goes_back(
    scope: RollbackScope, quarantined: int, asked: list[StoreEndpoint]
) -> None:
    """One endpoint with its quarantine, or one run without: rows do not tell which they are of."""
    ledger = Ledger(
        batch(1, BatchState.CLAIMED, run=2),
        batch(2, BatchState.CLAIMED, run=1, source=BILLING if scope.endpoint else SALES.source),
    )
    done = rolled_back(ledger, scope)
    assert (list(done.batches), done.quarantined) == ([1], quarantined)
    assert ledger.quarantine_asked == asked


# ── what a recall has to wait for ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(OPEN))
@pytest.mark.parametrize(
    "scope", [RecallScope(), RecallScope(source=SALES.source), RecallScope(run=RunId(1))]
)
def test_an_open_batch_that_is_meant_is_settled_first(
    state: BatchState, scope: RecallScope
) -> None:
    """Whatever its state: its rows would be handed over again afterwards."""
    with pytest.raises(PreflightRefused, match=r"batches 7 (may be on their way|are claimed)"):
        demand_settled([batch(7, state)], scope)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_others_are_in_nobodys_way(state: BatchState) -> None:
    """What another endpoint, or another run, sends into the levels meanwhile is left there."""
    scope = RecallScope(source=SALES.source, run=RunId(1))
    demand_settled([batch(7, state, source=BILLING), batch(7, state, run=2)], scope)
