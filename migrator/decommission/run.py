"""Decommissioning while nobody else begins anything.

The recall's lane keeps hand-over, recalls and other decommissions from beginning, the lane of the
endpoint's dispatcher keeps that away; both are held from the last look before the first cut until
all is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from migrator.app import App
from migrator.app.dispatchers import DispatcherWiring
from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper
from migrator.ledger.owner import is_surely_dead
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import RECALL_LANE


@contextmanager
def alone(app: App, endpoint: StoreEndpoint, *, owner: str) -> Iterator[Callable[[], None]]:
    """Hold both leases; yield what raises when one of them is lost.

    Raises:
        PreflightRefused: Somebody recalls, decommissions, or is the endpoint's dispatcher.
    """
    keeper = LeaseKeeper(app.leases, owner=owner, duration=app.plan.lease)
    for lane, holder in app.leases.holders():
        if is_surely_dead(holder):
            app.leases.evict(lane, holder)
    lanes = {
        RECALL_LANE: "a recall or another decommission is under way; wait until it has ended",
        DispatcherWiring(app).dispatching.lane(endpoint): (
            f"migrator is the timeout manager of {endpoint.name} now; stop that `migrator run`"
        ),
    }
    held: list[HeldLease] = []
    keeper.start()
    try:
        for lane, otherwise in lanes.items():
            found = keeper.acquire(lane, doing=lambda: f"decommissioning {endpoint.name}")
            if found is None:
                raise PreflightRefused(otherwise)
            held.append(found)
        yield lambda: _check(held)
    finally:
        keeper.stop()
        for each in held:
            keeper.surrender(each)


def _check(held: list[HeldLease]) -> None:
    for each in held:
        each.check()
