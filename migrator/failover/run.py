"""Settling a failover while nobody claims: what the broker holds puts the books right.

Rules of this file: the ledger keeps that it failed over until all is settled, so it may end
anywhere and be run again; what is taken away are leftovers in our own queues, whose rows are
known to be in the store or in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from migrator import __version__
from migrator.app import App
from migrator.app.recall import RecallWiring
from migrator.delays.scan import MAX_PREFETCH, LevelMessage, RabbitLevels, ScanLimits
from migrator.errors import NotChecked, PreflightRefused
from migrator.failover.rules import Settlement
from migrator.failover.store import FailoverTerms
from migrator.failover.work import own_tag, seen_in_levels, timeout_of, whole
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.tags import Attempt, MessageTag
from migrator.nservicebus.timeouts import Lane, TimeoutId
from migrator.rabbitmq.names import receipts_queue, staging_name
from migrator.recall.run import STAGED_PATIENCE_S, alone, wait_until_routed
from migrator.recall.work import RecallProgress, RecallTerms

_CLOCKS_APART: Final = timedelta(minutes=1)
"""How much the clocks of the two servers may differ."""
_ASK_AGAIN_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leftovers:
    """What our own queues hold."""

    queues: Sequence[str]
    passes: frozenset[Attempt]
    timeouts: frozenset[TimeoutId]


def settle_failover(
    app: App,
    endpoints: Sequence[StoreEndpoint],
    lanes: Collection[Lane],
    terms: RecallTerms,
    *,
    is_dry_run: bool,
    progress: Callable[[RecallProgress], None],
) -> Settlement:
    """Find what was handed over in the lost window, and record it; nobody claims meanwhile.

    Raises:
        PreflightRefused: Somebody works, or the broker could not be seen to its end. Nothing was
            changed.
    """
    failover = app.sql_side(wanted_for="settling a failover").failover
    wiring = RecallWiring(app)
    sign = failover.last_sign()
    with alone(app) as held:
        wait_until_routed(wiring)
        wait_until_passed_on(lambda: app.broker_facts.stuck(app.plan.delays))
        with wiring.open_levels() as levels:
            left = _leftovers(app, levels, lanes, terms)
            if lost := failover.nowhere(left.timeouts):
                raise PreflightRefused(
                    f"our queues hold messages of {len(lost)} timeouts that neither the store nor "
                    f"the ledger has ({min(lost)} is one): look before anything is taken away; "
                    "nothing was changed"
                )
            seen = seen_in_levels(
                levels,
                ledger_id=app.ledger_id,
                terms=terms,
                guard=held.check,
                progress=progress,
            )
            cutoff = min({app.selection.cutoff, *failover.cutoffs(sign)})
            settling = FailoverTerms(
                endpoints=endpoints,
                mode=app.plan.mode,
                tool_version=__version__,
                doubtful_from=sign - _CLOCKS_APART + cutoff if sign and cutoff else None,
                left_until=app.clock.now() + terms.margin,
                receipts=left.passes,
            )
            found = failover.settle(seen, settling, held.lease, None)
            if is_dry_run:
                return found
            app.fault("failover.found")
            _take_away(app, levels, left, found, terms)
        app.fault("failover.taken_away")

        def finish(connection: Connection, found: Settlement) -> None:
            app.adoption.finish_failover(connection, found.counts)

        held.check()
        return failover.settle(seen, settling, held.lease, finish)


def wait_until_passed_on(
    ask: Callable[[], Mapping[int, int] | NotChecked], *, patience_s: float = STAGED_PATIENCE_S
) -> None:
    """Return once no message hangs between two levels, where nobody sees it; or nobody tells.

    Raises:
        PreflightRefused: Some do all the time; nothing was changed.
    """
    until_s = time.monotonic() + patience_s
    while stuck := ask():
        if isinstance(stuck, NotChecked):
            return
        if time.monotonic() > until_s:
            listed = ", ".join(f"level {level:02d}: {n}" for level, n in sorted(stuck.items()))
            raise PreflightRefused(
                f"messages hang on their way out of a level, where they cannot be seen ({listed}); "
                "after a broker node failed they go on within 6 minutes, else `migrator delays "
                "verify` tells why; nothing was changed: run this again"
            )
        time.sleep(min(_ASK_AGAIN_S, patience_s))


def _leftovers(
    app: App, levels: RabbitLevels, lanes: Collection[Lane], terms: RecallTerms
) -> _Leftovers:
    """Return what is in the staging and receipts queues of *lanes*; all of it goes back."""
    names = [staging_name(app.plan.delays, app.ledger_id, lane) for lane in lanes]
    names += [receipts_queue(app.ledger_id, lane) for lane in lanes]
    there = [name for name, probe in app.broker_facts.queues(names).items() if probe is not None]
    passes, timeouts = set[Attempt](), set[TimeoutId]()
    for name in there:
        for message in whole(levels.queue(name, _limits(terms)), name):
            tag = own_tag(message, app.ledger_id)
            if tag is None:
                raise PreflightRefused(
                    f"{name} holds a message of somebody else; nothing was changed"
                )
            passes.add(tag.attempt)
            if tag.row_index is not None and (timeout := timeout_of(message)) is not None:
                timeouts.add(timeout)
    return _Leftovers(queues=there, passes=frozenset(passes), timeouts=frozenset(timeouts))


def _take_away(
    app: App, levels: RabbitLevels, left: _Leftovers, found: Settlement, terms: RecallTerms
) -> None:
    """Take away what would be passed again anyhow, and receipts of what is unknown."""

    def may_go(message: LevelMessage) -> bool:
        tag = own_tag(message, app.ledger_id)
        return tag is not None and _is_leftover(tag, found)

    for name in left.queues:
        for _ in whole(levels.queue(name, _limits(terms)), name, may_go=may_go):
            pass


def _is_leftover(tag: MessageTag, found: Settlement) -> bool:
    """Return whether nothing is to be learnt from a message: a receipt may prove a commit."""
    return tag.row_index is not None or tag.attempt not in found.committed


def _limits(terms: RecallTerms) -> ScanLimits:
    """Return limits of a queue that has one active consumer at a time."""
    return ScanLimits(prefetch=MAX_PREFETCH, hold_s=terms.hold.total_seconds())
