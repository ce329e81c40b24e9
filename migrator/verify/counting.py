"""Comparing sums alone: do the levels hold as many messages as have to wait in them?

Counts lag behind by seconds, and a daemon may work meanwhile; so a sum that is too small is asked
for again, and only timeouts count that have to be there the whole time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from migrator.verify.findings import Findings
from migrator.verify.plan import Generations, Parts, VerifyPlan, generations
from migrator.verify.report import SLACK, Discrepancy

_PATIENCE: Final = timedelta(seconds=8)
"""The broker renews its counts every 5 s."""
_ASK_AGAIN_S: Final = 1.0


def count_levels(
    parts: Parts, plan: VerifyPlan, findings: Findings, found: Generations, *, waiting: int
) -> Generations:
    """Report when all levels together hold too few; return what they hold by the last answer.

    Args:
        parts: Who is asked.
        plan: Which endpoints and generations count.
        findings: Gets what is wrong, or not known.
        found: The broker's counts.
        waiting: Timeouts that have to be in the levels by now.
    """
    if _known(found) >= waiting:
        return found
    if gap := _gap(found):
        findings.not_checked.append(
            f"whether all {waiting} timeouts are in the levels: {_known(found)} messages are "
            f"known to be there, and {gap}"
        )
        return found
    until = parts.clock.now() + _PATIENCE
    demand = _waiting(parts, plan, due_after=until + SLACK)
    while _known(found) < demand and parts.clock.now() < until:
        parts.wait(_ASK_AGAIN_S)
        found = generations(parts, plan)
    if _known(found) < demand:
        demand = min(demand, _waiting(parts, plan, due_after=until + SLACK))
    if _known(found) < demand:
        findings.add(
            Discrepancy.TOO_FEW,
            f"the levels hold {_known(found)} messages, those of others included, and {demand} "
            "timeouts have to wait there; --scan tells which are missing",
        )
    return found


def _gap(found: Generations) -> str:
    """Return why the rest may be where nobody counted; empty: it cannot."""
    if found.left_out:
        return f"--delays leaves the levels of {', '.join(found.left_out)} out"
    return "; ".join(sorted({ladder.gap for ladder in found.ladders if ladder.gap}))


def _known(found: Generations) -> int:
    return sum(step.known for ladder in found.ladders for step in ladder.steps)


def _waiting(parts: Parts, plan: VerifyPlan, *, due_after: datetime) -> int:
    found = parts.books.destinations(now=due_after)
    return sum(each.waiting for each in found if plan.covers(each.endpoint))
