"""Looking once more for timeouts that were in no level; what stays unseen is missing, or hidden.

Rules of this file: only what the ledger still says to be handed over, and not due, can be missing;
a level hides what may be in it when it could not be read, when nobody tells whether it holds
messages back, or when somebody has some of them; so does a generation that was left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from migrator.delays.depths import LevelDepth
from migrator.delays.routing import TOP_LEVEL, DelaysVersion
from migrator.ledger.states import BatchState
from migrator.nservicebus.tags import RowTag
from migrator.verify.evidence import Line, Word
from migrator.verify.findings import Findings
from migrator.verify.judging import at
from migrator.verify.plan import CHUNK, Generations, Parts, VerifyPlan, generations
from migrator.verify.ports import LevelSighting
from migrator.verify.report import SLACK, Discrepancy, can_be_in
from migrator.verify.sweep import Rung, SecondLook, sweep

_ROUTED: Final = timedelta(seconds=6)
"""A receipt may be ahead of its messages, and the broker's counts are renewed every 5 s."""
_STAGED_PATIENCE_S: Final = 10.0
_COUNTS_PATIENCE_S: Final = 8.0


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
        look = SecondLook(self._parts, {_mark(line): line.id for line in unseen.values()})
        soonest = min(self._due_in(line) for line in unseen.values())
        levels = [n for n in range(TOP_LEVEL, -1, -1) if can_be_in(n, due_in=soonest)]
        found = generations(self._parts, self._plan)
        unread = sweep(self._parts, self._plan, found.ladders, levels, look.meet)
        changes = {
            id_: at(_judged(unseen[id_], Word.AGREES), place) for id_, place in look.met.items()
        }
        for id_ in look.different.keys() - look.met.keys():
            line, place = unseen[id_], look.different[id_]
            detail = f"a message in {place} bears its mark, but not its body"
            self._findings.add_line(Discrepancy.DIFFERENT, line, detail)
            changes[id_] = at(_judged(line, Discrepancy.DIFFERENT), place)
        still = [line for id_, line in unseen.items() if id_ not in changes]
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
                "read, and may be where nobody could look"
            )
        return changes

    def _routed(self, handed_over_last: datetime) -> int | None:
        """Give messages time to reach their levels; return how many are still staged."""
        clock, wait = self._parts.clock, self._parts.wait
        wait(max((handed_over_last + _ROUTED - clock.now()).total_seconds(), 0.0))
        until_s = clock.monotonic_s() + _STAGED_PATIENCE_S
        while (staged := self._parts.access.still_staged()) and clock.monotonic_s() < until_s:
            wait(1.0)
        return staged

    def _due_in(self, line: Line) -> timedelta:
        return line.due_at - self._parts.clock.now()

    def _still_waiting(self, lines: Sequence[Line]) -> Iterator[Line]:
        """Yield those of *lines* that the ledger still says to be handed over, and not due."""
        rest = iter(lines)
        while some := list(islice(rest, CHUNK)):
            asked = {line.id: LevelSighting(row=_mark(line), body_hash="") for line in some}
            known = self._parts.books.known(asked.values())
            now = self._parts.clock.now()
            for line in some:
                found = known.get(asked[line.id])
                if (
                    found is not None
                    and found.id == line.id
                    and found.state == BatchState.HANDED_OVER
                    and found.due_at > now + SLACK
                ):
                    yield line

    def _decided(
        self, lines: Sequence[Line], unread: Mapping[Rung, str]
    ) -> tuple[Sequence[Line], int]:
        """Return which of *lines* are missing, and of how many nobody can tell."""
        if not lines:
            return (), 0
        found = self._counted()
        if found.left_out:
            return (), len(lines)
        steps = _steps(found)
        dark = {level for _, level in unread}
        dark |= {step.level for delays, step in steps if _is_dark(delays, step)}
        away = {step.level: _away(step) for _, step in steps if _away(step)}
        maybe_dark = {line.id for line in self._which(lines, dark)}
        maybe_away = [line for line in self._which(lines, away) if line.id not in maybe_dark]
        if len(maybe_away) > sum(_away(step) for _, step in steps):  # they cannot all be there
            maybe_away = []
        hidden = maybe_dark | {line.id for line in maybe_away}
        return [line for line in lines if line.id not in hidden], len(hidden)

    def _counted(self) -> Generations:
        """Return the broker's counts, once they tell everything, or as they are after a while.

        Levels are told seconds after they were made, and what we held ourselves is still among
        what is consumed for as long.
        """
        until_s = self._parts.clock.monotonic_s() + _COUNTS_PATIENCE_S
        while True:
            found = generations(self._parts, self._plan)
            is_told = not any(_is_dark(*each) or each[1].unacknowledged for each in _steps(found))
            if is_told or self._parts.clock.monotonic_s() >= until_s:
                return found
            self._parts.wait(1.0)

    def _which(self, lines: Sequence[Line], levels: Iterable[int]) -> Sequence[Line]:
        return [
            line
            for line in lines
            if any(can_be_in(level, due_in=self._due_in(line)) for level in levels)
        ]


def _mark(line: Line) -> RowTag:
    return RowTag(batch=line.batch, row_index=line.row_index, timeout_id=line.timeout_id)


def _steps(found: Generations) -> Sequence[tuple[DelaysVersion, LevelDepth]]:
    return [(each.version, step) for each in found.ladders for step in each.steps if step.exists]


def _is_dark(delays: DelaysVersion, step: LevelDepth) -> bool:
    """Return whether nobody tells how much a level holds back; classic queues hold nothing back."""
    return delays is DelaysVersion.V2 and step.held is None


def _away(step: LevelDepth) -> int:
    """Return how many messages of a level nobody can read: held back, or with somebody."""
    return (step.held or 0) + (step.unacknowledged or 0)


def _judged(line: Line, verdict: Word | Discrepancy) -> Line:
    """Return *line* with *verdict*, unless its content is what is wrong."""
    return replace(line, verdict=verdict) if line.is_intact else line
