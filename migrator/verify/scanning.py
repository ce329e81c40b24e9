"""Looking through the levels while nobody else does: what each holds is hidden from the others.

A lease of its own keeps recalls and other verifications away; lanes of hand-over go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from migrator.app import App
from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.owner import current_owner, is_surely_dead
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE


@contextmanager
def looking_through(app: App) -> Iterator[None]:
    """Hold the lease of those who look through the levels.

    Should it be lost, nothing is wrong: a level that somebody else consumes is told by itself.

    Raises:
        PreflightRefused: Somebody recalls, or looks through the levels already.
    """
    for lane in (RECALL_LANE, SCAN_LANE):
        owner = app.leases.owner_of(lane)
        if owner is not None and is_surely_dead(owner):
            app.leases.evict(lane, owner)
    keeper = LeaseKeeper(app.leases, owner=current_owner(), duration=app.plan.lease)
    held = keeper.acquire(SCAN_LANE, doing=lambda: "looking through the levels")
    if held is None:
        raise PreflightRefused(_busy(app))
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()
        keeper.surrender(held)


def _busy(app: App) -> str:
    owner = app.leases.owner_of(RECALL_LANE)
    if owner is not None:
        return f"{owner} recalls; --scan waits until it has ended"
    return "another `migrator verify --scan` looks through the levels; wait until it has ended"
