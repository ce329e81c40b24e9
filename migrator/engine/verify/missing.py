"""Looking once more for timeouts that were in no level; what stays unseen is missing, or hidden.

Rules of this file: only what the ledger still says to be handed over, and not due, can be missing;
a level that could not be read, or that holds back messages, hides what may be in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from migrator.domain.evidence import Line, Word
from migrator.domain.ladder import Ladder
from migrator.domain.routing import TOP_LEVEL
from migrator.domain.states import BatchState
from migrator.domain.timeouts import TimeoutId
from migrator.domain.verification import SLACK, Discrepancy, can_be_in
from migrator.engine.verify.findings import Findings
from migrator.engine.verify.plan import CHUNK, Parts, VerifyPlan
from migrator.engine.verify.sweep import SecondLook, sweep
from migrator.ports.verification import LevelSighting

_ROUTED: Final = timedelta(seconds=6)
"""A receipt may be ahead of its messages, and the broker's counts are renewed every 5 s."""
_STAGED_PATIENCE_S: Final = 10.0


class MissingLook:
    """Decides about timeouts that were not seen."""

    def __init__(self, parts: Parts, plan: VerifyPlan, findings: Findings) -> None:
        """Prepare; nothing is asked yet."""
        self._parts = parts
        self._plan = plan
        self._findings = findings

    def run(
        self, unseen: Mapping[int, Line], *, handed_over_last: datetime | None
    ) -> Mapping[int, Line]:
        """Look for *unseen* again; return the lines that are otherwise now.

        Args:
            unseen: Rows by the ledger's id.
            handed_over_last: When the latest of them was.

        Raises:
            TargetError, StoreUnavailable: Nobody can tell; run it again.
        """
        if not unseen or handed_over_last is None:
            return {}
        staged = self._routed(handed_over_last)
        wanted: dict[TimeoutId, list[int]] = defaultdict(list)
        for line in unseen.values():
            wanted[line.timeout_id].append(line.id)
        look = SecondLook(wanted)
        soonest = min(self._due_in(line) for line in unseen.values())
        levels = [n for n in range(TOP_LEVEL, -1, -1) if can_be_in(n, due_in=soonest)]
        unread = sweep(self._parts, self._plan, self._parts.ladder(), levels, look.meet)
        changes = {
            id_: replace(unseen[id_], level=level, verdict=_found(unseen[id_]))
            for id_, level in look.met.items()
        }
        still = [line for id_, line in unseen.items() if id_ not in look.met]
        lost, hidden = self._decided(list(self._still_waiting(still)), unread)
        for line in lost:
            detail = f"handed over, due {line.due_at:%Y-%m-%d %H:%M:%S} UTC, and in no level"
            if staged:
                detail += f"; {staged} messages are still in migrator's staging queues"
            self._findings.add_line(Discrepancy.MISSING, line, detail)
            changes[line.id] = replace(line, verdict=Discrepancy.MISSING)
        if hidden:
            self._findings.not_checked.append(
                f"whether {hidden} timeouts are still there: they were in no level that could be "
                "read, and may be in one that could not"
            )
        return changes

    def _routed(self, handed_over_last: datetime) -> int | None:
        """Give messages time to reach their levels; return how many are still staged."""
        clock, wait = self._parts.clock, self._parts.wait
        wait(max((handed_over_last + _ROUTED - clock.now()).total_seconds(), 0.0))
        until_s = clock.monotonic_s() + _STAGED_PATIENCE_S
        while (staged := self._parts.still_staged()) and clock.monotonic_s() < until_s:
            wait(1.0)
        return staged

    def _due_in(self, line: Line) -> timedelta:
        return line.due_at - self._parts.clock.now()

    def _still_waiting(self, lines: Sequence[Line]) -> Iterator[Line]:
        """Yield those of *lines* that the ledger still says to be handed over, and not due."""
        rest = iter(lines)
        while some := list(islice(rest, CHUNK)):
            asked = {line.timeout_id: _asking(line) for line in some}
            known = self._parts.books.known(asked.values())
            now = self._parts.clock.now()
            for line in some:
                found = known.get(asked[line.timeout_id])
                if (
                    found is not None
                    and found.id == line.id
                    and found.state == BatchState.HANDED_OVER
                    and found.due_at > now + SLACK
                ):
                    yield line

    def _decided(
        self, lines: Sequence[Line], unread: Mapping[int, str]
    ) -> tuple[Sequence[Line], int]:
        """Return which of *lines* are missing, and of how many nobody can tell."""
        if not lines:
            return (), 0
        held = _held(self._parts.ladder())
        maybe_unread = self._which(lines, unread)
        maybe_held = [
            line for line in self._which(lines, held) if line.id not in {m.id for m in maybe_unread}
        ]
        room = sum(held.values())
        if len(maybe_held) > room:  # they cannot all be there
            maybe_held = []
        hidden = {line.id for line in (*maybe_unread, *maybe_held)}
        return [line for line in lines if line.id not in hidden], len(hidden)

    def _which(self, lines: Sequence[Line], levels: Mapping[int, object]) -> Sequence[Line]:
        return [
            line
            for line in lines
            if any(can_be_in(level, due_in=self._due_in(line)) for level in levels)
        ]


def _asking(line: Line) -> LevelSighting:
    return LevelSighting(timeout_id=line.timeout_id, body_hash="")


def _held(ladder: Ladder) -> Mapping[int, int]:
    """Return how many messages each level holds back; nobody can read those."""
    return {step.level: step.held for step in ladder.steps if step.held}


def _found(line: Line) -> Word | Discrepancy:
    return line.verdict if line.verdict is Discrepancy.CONTENT_CHANGED else Word.AGREES
