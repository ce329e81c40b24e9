"""Looking through the levels, and once more for what was not seen; nothing is taken out.

Rules of this file:

* nothing is acknowledged, so everything goes back with its original expiry;
* nobody is asked about messages while they are held: that would hold them for longer;
* only what the ledger still says to be handed over, and not due, can be missing; a level hides
  what may be in it when it could not be read, when nobody tells whether it holds messages back,
  or when somebody has some of them; so does a generation that was left out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepth, LevelDepths
from migrator.delays.routing import DelaysVersion, parse_routing_key
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.delays.walk import LevelPass, walk
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.work import Clock, FaultPoint
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import RowTag, row_tag
from migrator.nservicebus.timeouts import BITS, EndpointName
from migrator.verify.evidence import EvidenceFile
from migrator.verify.queries import Verifications
from migrator.verify.report import SLACK, Discrepancy, EvidenceRecord, Findings
from migrator.verify.rules import (
    Place,
    Seen,
    Sighted,
    can_be_in,
    is_stray,
    is_waiting,
    judge_message,
    judge_record,
    level_text,
)

if TYPE_CHECKING:
    from migrator.delays.walk import LevelAccess

CHUNK: Final = 500
"""Messages asked for, and judged, at a time."""
Meet = Callable[[Sequence[Sighted]], None]
LevelKey = tuple[DelaysVersion, int]
"""A generation and one of its levels."""
_SIGN_OF_LIFE_S: Final = 2.0
"""The broker's heartbeat is every five seconds."""
_SHARED: Final = "somebody else consumes it, and may hold messages that were not seen"
_ROUTED: Final = timedelta(seconds=6)
"""A receipt may be ahead of its messages, and the broker's counts are renewed every 5 s."""
_STAGED_PATIENCE_S: Final = 10.0
_COUNTS_PATIENCE_S: Final = 8.0
_SUMS_PATIENCE_S: Final = 20.0
"""A quorum queue tells its counts every five seconds, and the management API asks as often; with
8 s a daemon at work looked as if it had lost the last thousand (RabbitMQ 3.10, a busy machine)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What to look at, and how gently."""

    endpoints: frozenset[EndpointName] = frozenset()
    """Empty: all."""
    delays: DelaysVersion | None = None
    """Which generation to look into; None: each that exists."""
    is_scan: bool = False
    """Whether each message in the levels is looked at."""
    scan: ScanLimits = field(default_factory=ScanLimits)
    deepest: int = 200_000
    """Levels with more messages are not looked into."""
    rate: int = 0
    """Rows hashed in a second; 0: as fast as they come."""

    def covers(self, endpoint: EndpointName) -> bool:
        """Return whether *endpoint* is meant."""
        return not self.endpoints or endpoint in self.endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a verification asks, and whom it tells."""

    queries: Verifications
    ledger_id: str
    """By whose mark our messages are known."""
    access: LevelAccess
    """``seen_at`` of its messages is the time of ``clock``."""
    ledger: LedgerQueries
    """Which batches are doubtful."""
    clock: Clock
    """The database's time."""
    wait: Callable[[float], None]
    """Waits for so many seconds."""
    evidence: EvidenceFile | None = None
    fault: FaultPoint = lambda _step: None
    """Called after each page of rows."""
    progress: Callable[[str, int], None] = lambda _what, _done: None
    """Called with what is being looked at, and how much of it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """The delays that exist on the broker, with its counts by now."""

    depths: Sequence[LevelDepths]
    """Those that are looked into."""
    left_out: Sequence[DelaysVersion]
    """Those that the plan leaves out; whatever was not seen may be there."""

    @property
    def levels(self) -> Sequence[tuple[DelaysVersion, LevelDepth]]:
        """Every level that exists, by generation, highest first."""
        return [(each.version, step) for each in self.depths for step in each.steps if step.exists]

    @property
    def known(self) -> int:
        """Messages that are known to be in all of them."""
        return sum(step.known for _, step in self.levels)

    @property
    def gaps(self) -> Sequence[str]:
        """Why not everything is counted, by the broker."""
        return sorted({each.gap for each in self.depths if each.gap})


class LevelLook:
    """Looks at the messages in the levels, and remembers where ours are."""

    def __init__(self, parts: Parts, plan: VerifyPlan, findings: Findings) -> None:
        """Begin now: what is handed over later may be missed."""
        self._parts = parts
        self._plan = plan
        self._findings = findings
        self.seen = Seen(began_at=parts.clock.now())
        self.ours: Counter[LevelKey] = Counter()
        """By generation and level."""
        self.foreign: Counter[LevelKey] = Counter()

    def generations(self) -> Generations:
        """Return what exists, with its counts by now."""
        found = [each for each in self._parts.access.depths() if not each.is_absent]
        meant = [each for each in found if self._plan.delays in (None, each.version)]
        left_out = [each.version for each in found if each not in meant]
        return Generations(depths=meant, left_out=left_out)

    def first(self) -> None:
        """Judge every message.

        Raises:
            TargetError, StoreUnavailable: Everything has gone back.
        """
        for (delays, level), why in self._sweep(range(BITS), self._meet_first).items():
            self._findings.not_checked.append(f"{level_text(delays, level)}: {why}")

    def _sweep(self, levels: Container[int], meet: Meet) -> Mapping[LevelKey, str]:
        """Show every message of *levels* to *meet*; return the levels not gone through, with why.

        *meet* gets some of the messages of a level at a time, once all of them went back.
        """
        unread: dict[LevelKey, str] = {}
        for generation in self.generations().depths:
            which = set[int]()
            for step in generation.steps:
                if not step.exists or step.level not in levels:
                    continue
                if step.known <= self._plan.deepest:
                    which.add(step.level)
                else:
                    why = f"it holds {step.known} messages; --deepest allows more"
                    unread[generation.version, step.level] = why
            unread |= self._sweep_generation(generation.version, which, meet)
        return unread

    def _sweep_generation(
        self, version: DelaysVersion, which: Collection[int], meet: Meet
    ) -> Mapping[LevelKey, str]:
        parts, unread, seen = self._parts, dict[LevelKey, str](), list[Sighted]()

        def keep(level: int, _scan: LevelScan, found: Sequence[LevelMessage]) -> int:
            seen.extend(_sighted(version, level, each, parts.ledger_id) for each in found)
            parts.progress(level_text(version, level), len(seen))
            return 0

        with parts.access.open(version) as queues:
            for found in walk(queues, which, self._plan.scan, keep, leaves_worn=True):
                if gap := _gap(found, len(seen)):
                    unread[version, found.level] = gap
                self._show(queues, seen, meet)
                seen.clear()
        return unread

    def _show(self, queues: Levels, seen: Sequence[Sighted], meet: Meet) -> None:
        clock = self._parts.clock
        served_s = clock.monotonic_s()
        for start in range(0, len(seen), CHUNK):
            meet(seen[start : start + CHUNK])
            if clock.monotonic_s() - served_s > _SIGN_OF_LIFE_S:
                queues.ready()
                served_s = clock.monotonic_s()

    # ── judging ─────────────────────────────────────────────────────────────────────────────

    def _meet_first(self, messages: Sequence[Sighted]) -> None:
        known = self._known(messages)
        for message in messages:
            key = message.place.delays, message.place.level
            if message.row is None or message.row not in known:
                self.foreign[key] += 1
                continue
            self.ours[key] += 1
            found, timeout_id = known[message.row], message.row.timeout_id
            if not self._plan.covers(found.endpoint):
                continue
            if found.timeout_id == timeout_id:
                self._judge(message, found)
            else:
                detail = f"a message in {message.place} bears its mark, but is timeout {timeout_id}"
                self._findings.add_line(Discrepancy.DIFFERENT, found, detail)

    def _known(self, messages: Sequence[Sighted]) -> Mapping[RowTag, EvidenceRecord]:
        """Return rows by the marks seen; of rows that no level may hold, what is said again."""
        known = dict(self._parts.queries.known({m.row for m in messages if m.row is not None}))
        if strays := {row for row, found in known.items() if is_stray(found)}:
            known |= self._parts.queries.known(strays)
        return known

    def _judge(self, message: Sighted, known: EvidenceRecord) -> None:
        held_for = timedelta(seconds=self._plan.scan.hold_s)
        before = self.seen.places[known.id]
        wrong = judge_message(known, message, before=before, held_for=held_for)
        if known.body_hash == message.body_hash:
            self.seen.places.add(known.id, message.place)
        if wrong is not None:
            kind, detail = wrong
            self.seen.flagged[known.id] = kind, message.place
            self._findings.add_line(kind, known, detail)

    # ── looking once more ───────────────────────────────────────────────────────────────────

    def again(
        self, unseen: Mapping[int, EvidenceRecord], *, handed_over_last: datetime
    ) -> Mapping[int, EvidenceRecord]:
        """Look for *unseen* again; return the lines that are otherwise now.

        Args:
            unseen: Rows by the ledger's id.
            handed_over_last: When the latest of them was.

        Raises:
            TargetError, StoreUnavailable: Nobody can tell; run it again.
        """
        staged = self._routed(handed_over_last)
        soonest = min(map(self._due_in, unseen.values()))
        wanted = {line.mark for line in unseen.values()}

        def meet(messages: Sequence[Sighted]) -> None:
            ours = {each: each.row for each in messages if each.row in wanted}
            known = self._known([*ours])
            for message, row in ours.items():
                if row in known:
                    self._judge(message, known[row])

        levels = [level for level in range(BITS) if can_be_in(level, due_in=soonest)]
        unread = self._sweep(levels, meet)
        now = self._parts.clock.now()
        judged = [judge_record(line, now=now, seen=self.seen) for line in unseen.values()]
        changes = {line.id: line for line in judged if line.level is not None}
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

    def _due_in(self, line: EvidenceRecord) -> timedelta:
        return line.due_at - self._parts.clock.now()

    def _still_waiting(self, lines: Sequence[EvidenceRecord]) -> Iterator[EvidenceRecord]:
        """Yield those of *lines* that the ledger still says to be handed over, and not due."""
        for start in range(0, len(lines), CHUNK):
            some = lines[start : start + CHUNK]
            known = self._parts.queries.known({line.mark for line in some})
            now = self._parts.clock.now()
            for line in some:
                found = known.get(line.mark)
                if found is not None and is_waiting(found, now=now):
                    yield line

    def _decided(
        self, lines: Sequence[EvidenceRecord], unread: Mapping[LevelKey, str]
    ) -> tuple[Sequence[EvidenceRecord], int]:
        """Return which of *lines* are missing, and of how many nobody can tell."""
        if not lines:
            return (), 0
        found = self._counted()
        if found.left_out:
            return (), len(lines)
        dark = {level for _, level in unread}
        dark |= {step.level for delays, step in found.levels if _is_dark(delays, step)}
        away = {step.level for _, step in found.levels if _away(step)}
        maybe_dark = {line.id for line in self._which(lines, dark)}
        maybe_away = {line.id for line in self._which(lines, away)} - maybe_dark
        if len(maybe_away) > sum(_away(step) for _, step in found.levels):
            maybe_away = set()  # they cannot all be there
        hidden = maybe_dark | maybe_away
        return [line for line in lines if line.id not in hidden], len(hidden)

    def _counted(self) -> Generations:
        """Return the broker's counts, once they tell everything, or as they are after a while.

        Levels are told seconds after they were made, and what we held ourselves is still among
        what is consumed for as long.
        """
        until_s = self._parts.clock.monotonic_s() + _COUNTS_PATIENCE_S
        while True:
            found = self.generations()
            is_told = not any(
                _is_dark(delays, step) or step.unacknowledged for delays, step in found.levels
            )
            if is_told or self._parts.clock.monotonic_s() >= until_s:
                return found
            self._parts.wait(1.0)

    def _which(
        self, lines: Sequence[EvidenceRecord], levels: Iterable[int]
    ) -> Sequence[EvidenceRecord]:
        return [
            line
            for line in lines
            if any(can_be_in(level, due_in=self._due_in(line)) for level in levels)
        ]

    # ── sums alone ──────────────────────────────────────────────────────────────────────────

    def count(self, waiting: Callable[[datetime], int]) -> Generations:
        """Report when all levels together hold too few; return what they hold by the last answer.

        *waiting* tells how many timeouts that are due after a time have to be in the levels.
        """
        clock, found = self._parts.clock, self.generations()
        demand = waiting(clock.now() + SLACK)
        if found.known >= demand:
            return found
        gap = "; ".join(found.gaps)
        if found.left_out:
            gap = f"--delays leaves the levels of {', '.join(found.left_out)} out"
        if gap:
            self._findings.not_checked.append(
                f"whether all {demand} timeouts are in the levels: {found.known} messages are "
                f"known to be there, and {gap}"
            )
            return found
        until = clock.now() + timedelta(seconds=_SUMS_PATIENCE_S)
        demand = waiting(until + SLACK)
        while found.known < demand and clock.now() < until:
            self._parts.wait(1.0)
            found = self.generations()
        if found.known < demand:
            demand = min(demand, waiting(until + SLACK))
        if found.known < demand:
            self._findings.add(
                Discrepancy.TOO_FEW,
                f"the levels hold {found.known} messages, those of others included, and {demand} "
                "timeouts have to wait there; --scan tells which are missing",
            )
        return found


def _sighted(delays: DelaysVersion, level: int, message: LevelMessage, ledger_id: str) -> Sighted:
    """Return what has to be known of *message*; a key that nobody can read has no delay."""
    try:
        delay_s, _ = parse_routing_key(message.routing_key)
    except ValueError:
        delay_s = 0
    timeout_id = message.headers.get(RELATED_TO_TIMEOUT_ID)
    return Sighted(
        row=row_tag(message.app_id, timeout_id, ledger_id=ledger_id),
        body_hash=hashlib.sha256(message.body).hexdigest(),
        place=Place(delays=delays, level=level, delay_s=delay_s),
        seen_at=message.seen_at,
    )


def _gap(found: LevelPass, seen: int) -> str | None:
    """Return why not all of a level was seen; None: it was."""
    if found.is_whole:
        return None
    if found.problem is not None:
        return str(found.problem)
    if found.end is ScanEnd.SHARED:
        return _SHARED
    return f"it holds more than fits the time; {seen} were looked at"


def _is_dark(delays: DelaysVersion, step: LevelDepth) -> bool:
    """Return whether nobody tells how much a level holds back; classic queues hold nothing back."""
    return delays is DelaysVersion.V2 and step.held is None


def _away(step: LevelDepth) -> int:
    """Return how many messages of a level nobody can read: held back, or with somebody."""
    return (step.held or 0) + (step.unacknowledged or 0)
