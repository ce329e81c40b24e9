"""Keeping others away from the delay levels: what one holds there is hidden from everybody else.

Recalls and settlements hold the recall's lane, for which every lane of hand-over has to be free;
those who only look hold the scan's, beside which lanes of hand-over go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper, evict_dead
from migrator.ledger.leases import SqlLeases
from migrator.ledger.owner import current_owner, is_surely_dead
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE


@contextmanager
def recalling_alone(leases: SqlLeases, duration: timedelta) -> Iterator[HeldLease]:
    """Hold the recall's lease; nobody takes a lane of hand-over meanwhile.

    Raises:
        PreflightRefused: Another recall runs, or somebody holds a lane.
    """
    keeper = LeaseKeeper(leases, owner=current_owner(), duration=duration)
    evict_dead(leases, is_surely_dead)
    held = keeper.acquire(RECALL_LANE, doing=lambda: "recalling")
    if held is None:
        raise PreflightRefused("another recall is under way; wait until it has ended")
    keeper.start()
    try:
        if (owner := leases.owner_of(SCAN_LANE)) is not None:
            raise PreflightRefused(
                f"{owner} looks through the levels (`migrator verify --scan`); wait until it has "
                "ended"
            )
        busy = [f"lane {lane} ({who})" for lane, who in leases.holders() if lane < RECALL_LANE]
        if busy:
            raise PreflightRefused(
                f"somebody works on {', '.join(busy)}; stop every `migrator run` first"
            )
        yield held
    finally:
        keeper.stop()
        keeper.surrender(held)


@contextmanager
def scanning_alone(leases: SqlLeases, duration: timedelta) -> Iterator[None]:
    """Hold the lease of those who look through the levels.

    Should it be lost, nothing is wrong: a level that somebody else consumes is told by itself.

    Raises:
        PreflightRefused: Somebody recalls, or looks through the levels already.
    """
    for lane in (RECALL_LANE, SCAN_LANE):
        owner = leases.owner_of(lane)
        if owner is not None and is_surely_dead(owner):
            leases.evict(lane, owner)
    keeper = LeaseKeeper(leases, owner=current_owner(), duration=duration)
    held = keeper.acquire(SCAN_LANE, doing=lambda: "looking through the levels")
    if held is None:
        if (owner := leases.owner_of(RECALL_LANE)) is not None:
            raise PreflightRefused(f"{owner} recalls; --scan waits until it has ended")
        raise PreflightRefused(
            "another `migrator verify --scan` looks through the levels; wait until it has ended"
        )
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()
        keeper.surrender(held)
