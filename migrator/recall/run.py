"""Recalling while nobody claims: what has to be so before the levels are gone through.

Rules of this file: the recall's own lease is held from the first look to the last
acknowledgement, so no lane of hand-over begins meanwhile; whatever is refused, is refused before
anything was changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from migrator.app import App
from migrator.app.recall import RecallWiring
from migrator.errors import PreflightRefused
from migrator.ledger.lease_keeper import HeldLease, LeaseKeeper, evict_dead
from migrator.ledger.owner import current_owner, is_surely_dead
from migrator.nservicebus.timeouts import RECALL_LANE, SCAN_LANE
from migrator.recall.rules import RecallScope
from migrator.recall.work import Recall, Recalled, RecallProgress, RecallTerms, demand_settled

_SETTLE_S: Final = 2.0
"""How long dead-lettering is given when nobody tells whether it is done."""
STAGED_PATIENCE_S: Final = 60.0


def recall(
    app: App,
    scope: RecallScope,
    terms: RecallTerms,
    *,
    progress: Callable[[RecallProgress], None],
) -> Recalled:
    """Bring back what *scope* means, and record it; nobody claims meanwhile.

    Raises:
        PreflightRefused: Somebody works on lanes, batches are open, or a level is too deep.
            Nothing was changed.
        LeaseLost, StoreUnavailable, TargetError: What was restored stays so; run it again.
    """
    wiring = RecallWiring(app)
    with alone(app) as held:
        demand_settled(app.books.open_batches(), scope)
        wait_until_routed(wiring)
        with wiring.open_levels() as levels:
            done = Recall(
                levels=levels,
                recalls=wiring.recalls,
                clock=app.clock,
                ledger_id=app.ledger_id,
                terms=terms,
                fault=app.fault,
                guard=held.check,
                progress=progress,
            ).run(scope, held.lease)
    app.runs.record("recalled", detail=done.counts, batch=None)
    return done


@contextmanager
def alone(app: App) -> Iterator[HeldLease]:
    """Hold the recall's lease; nobody takes a lane of hand-over meanwhile.

    Raises:
        PreflightRefused: Another recall runs, or somebody holds a lane.
    """
    keeper = LeaseKeeper(app.leases, owner=current_owner(), duration=app.plan.lease)
    evict_dead(app.leases, is_surely_dead)
    held = keeper.acquire(RECALL_LANE, doing=lambda: "recalling")
    if held is None:
        raise PreflightRefused("another recall is under way; wait until it has ended")
    keeper.start()
    try:
        if (owner := app.leases.owner_of(SCAN_LANE)) is not None:
            raise PreflightRefused(
                f"{owner} looks through the levels (`migrator verify --scan`); wait until it has "
                "ended"
            )
        busy = [f"lane {lane} ({who})" for lane, who in app.leases.holders() if lane < RECALL_LANE]
        if busy:
            raise PreflightRefused(
                f"somebody works on {', '.join(busy)}; stop every `migrator run` first"
            )
        yield held
    finally:
        keeper.stop()
        keeper.surrender(held)


def wait_until_routed(wiring: RecallWiring) -> None:
    """Return once the staging queues are empty: a receipt may be ahead of its messages."""
    until_s = time.monotonic() + STAGED_PATIENCE_S
    while (staged := wiring.still_staged()) != 0:
        if staged is None:
            time.sleep(_SETTLE_S)
            return
        if time.monotonic() > until_s:
            raise PreflightRefused(
                f"{staged} messages are still in migrator's staging queues; "
                "`migrator delays verify` tells why"
            )
        time.sleep(_SETTLE_S / 4)
