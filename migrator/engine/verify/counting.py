"""Comparing sums alone: do the levels hold as many messages as have to wait in them?

Counts lag behind by seconds, and a daemon may work meanwhile; so a sum that is too small is asked
for again, and only timeouts count that have to be there the whole time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from migrator.domain.ladder import Ladder
from migrator.domain.verification import SLACK, Discrepancy
from migrator.engine.verify.findings import Findings
from migrator.engine.verify.plan import Parts, VerifyPlan

_PATIENCE: Final = timedelta(seconds=8)
"""The broker renews its counts every 5 s."""
_ASK_AGAIN_S: Final = 1.0


def count_levels(
    parts: Parts, plan: VerifyPlan, findings: Findings, ladder: Ladder, *, waiting: int
) -> Ladder:
    """Report when all levels together hold too few; return what they hold by the last answer.

    Args:
        parts: Who is asked.
        plan: Which endpoints count.
        findings: Gets what is wrong, or not known.
        ladder: The broker's counts.
        waiting: Timeouts that have to be in the levels by now.
    """
    if _known(ladder) >= waiting:
        return ladder
    if ladder.gap:
        findings.not_checked.append(
            f"whether all {waiting} timeouts are in the levels: {_known(ladder)} messages are "
            f"known to be there, and {ladder.gap}"
        )
        return ladder
    until = parts.clock.now() + _PATIENCE
    demand = _waiting(parts, plan, due_after=until + SLACK)
    while _known(ladder) < demand and parts.clock.now() < until:
        parts.wait(_ASK_AGAIN_S)
        ladder = parts.ladder()
    if _known(ladder) < demand:
        demand = min(demand, _waiting(parts, plan, due_after=until + SLACK))
    if _known(ladder) < demand:
        findings.add(
            Discrepancy.TOO_FEW,
            f"the levels hold {_known(ladder)} messages, those of others included, and {demand} "
            "timeouts have to wait there; --scan tells which are missing",
        )
    return ladder


def _known(ladder: Ladder) -> int:
    return sum(step.known for step in ladder.steps)


def _waiting(parts: Parts, plan: VerifyPlan, *, due_after: datetime) -> int:
    found = parts.books.destinations(now=due_after)
    return sum(each.waiting for each in found if plan.covers(each.endpoint))
