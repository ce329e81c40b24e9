"""Keeping others away: leases that are held for as long as one command works.

What one holds of the delay levels is hidden from everybody else. Recalls, settlements and
decommissions hold the recall's lane, for which every lane of hand-over has to be free; those who
only look hold the scan's, beside which lanes of hand-over go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper, current_owner, is_surely_dead
from migrator.ledger.leases import SqlLeases
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE, Lane


def evict_dead(leases: SqlLeases, is_dead: Callable[[str], bool] = is_surely_dead) -> None:
    """End the leases of owners whose processes are provably gone, whatever their lanes are for."""
    for lane, owner in leases.holders():
        if is_dead(owner):
            leases.evict(lane, owner)


@contextmanager
def exclusive(
    leases: SqlLeases,
    lanes: Mapping[Lane, str],
    *,
    doing: str,
    duration: timedelta,
    owner: str | None = None,
) -> Iterator[Sequence[HeldLease]]:
    """Hold all of *lanes* while this lasts; each comes with why it is refused when it is taken.

    Leases of dead owners are ended first. *owner* is this process unless it is given.

    Raises:
        PreflightRefused: Somebody else has one of them; none is held any more.
    """
    evict_dead(leases)
    keeper = LeaseKeeper(leases, owner=owner or current_owner(), duration=duration)
    held: list[HeldLease] = []
    keeper.start()
    try:
        for lane, refusal in lanes.items():
            found = keeper.acquire(lane, doing=lambda: doing)
            if found is None:
                raise PreflightRefused(refusal)
            held.append(found)
        yield held
    finally:
        keeper.stop()
        for each in held:
            keeper.surrender(each)


@contextmanager
def recalling_alone(leases: SqlLeases, duration: timedelta) -> Iterator[HeldLease]:
    """Hold the recall's lease; nobody takes a lane of hand-over meanwhile.

    Raises:
        PreflightRefused: Another recall runs, or somebody holds a lane.
    """
    lanes = {RECALL_LANE: "another recall is under way; wait until it has ended"}
    with exclusive(leases, lanes, doing="recalling", duration=duration) as held:
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
        yield held[0]


@contextmanager
def scanning_alone(leases: SqlLeases, duration: timedelta) -> Iterator[None]:
    """Hold the lease of those who look through the levels.

    Should it be lost, nothing is wrong: a level that somebody else consumes is told by itself.

    Raises:
        PreflightRefused: Somebody recalls, or looks through the levels already.
    """
    evict_dead(leases)
    recaller = leases.owner_of(RECALL_LANE)
    refusal = (
        "another `migrator verify --scan` looks through the levels; wait until it has ended"
        if recaller is None
        else f"{recaller} recalls; --scan waits until it has ended"
    )
    lanes = {SCAN_LANE: refusal}
    with exclusive(leases, lanes, doing="looking through the levels", duration=duration):
        yield
