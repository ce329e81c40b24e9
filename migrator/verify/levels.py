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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepth, LevelDepths
from migrator.delays.routing import TOP_LEVEL, DelaysVersion, parse_routing_key
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd, ScanLimits
from migrator.delays.walk import LevelPass, walk
from migrator.ledger.queries import SqlBooks
from migrator.ledger.states import BatchState
from migrator.ledger.work import Clock, FaultPoint
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import RowTag, row_tag
from migrator.nservicebus.timeouts import EndpointName
from migrator.verify.evidence import EvidenceFile
from migrator.verify.queries import Verifications
from migrator.verify.report import SLACK, Discrepancy, EvidenceRecord, Findings, RowStatus
from migrator.verify.rules import (
    KnownTimeout,
    LevelSighting,
    Place,
    Seen,
    Sighted,
    at,
    can_be_in,
    is_stray,
    judge_message,
    level_text,
)

if TYPE_CHECKING:
    from migrator.delays.access import LevelAccess

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

    books: Verifications
    ledger_id: str
    """By whose mark our messages are known."""
    access: LevelAccess
    """``seen_at`` of its messages is the time of ``clock``."""
    ledger: SqlBooks
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
    """The delays that exist on the broker."""

    depths: Sequence[LevelDepths]
    """Those that are looked into."""
    left_out: Sequence[DelaysVersion]
    """Those that the plan leaves out; whatever was not seen may be there."""


def generations(parts: Parts, plan: VerifyPlan) -> Generations:
    """Return what exists, with its counts by now."""
    found = [generation for generation in parts.access.depths() if not generation.is_absent]
    return Generations(
        depths=[each for each in found if plan.delays in (None, each.version)],
        left_out=[each.version for each in found if plan.delays not in (None, each.version)],
    )


# ── seeing all ────────────────────────────────────────────────────────────────────────────────────


def sweep(
    parts: Parts,
    plan: VerifyPlan,
    depths: Iterable[LevelDepths],
    levels: Sequence[int],
    meet: Meet,
) -> Mapping[LevelKey, str]:
    """Show every message of *levels* to *meet*; return the levels not gone through, with why.

    Args:
        parts: Who is asked.
        plan: How long a level is held, and how deep it may be.
        depths: What waits in each level, for levels that are too deep or do not exist.
        levels: Which ones, of each generation.
        meet: Called with some of the messages of a level that were seen, once they went back.

    Raises:
        TargetError, StoreUnavailable: Everything has gone back.
    """
    unread: dict[LevelKey, str] = {}
    for generation in depths:
        version = generation.version
        there = {
            each.level: each for each in generation.steps if each.exists and each.level in levels
        }
        deep = {level: step.known for level, step in there.items() if step.known > plan.deepest}
        for level, known in deep.items():
            unread[version, level] = f"it holds {known} messages; --deepest allows more"
        with parts.access.open(version) as queues:
            meet_all = _Collector(parts, version)
            which = there.keys() - deep.keys()
            for found in walk(queues, which, plan.scan, meet_all.add, leaves_worn=True):
                seen = meet_all.take()
                if gap := _gap(found, len(seen)):
                    unread[version, found.level] = gap
                _show(parts, queues, seen, meet)
    return unread


def _show(parts: Parts, queues: Levels, seen: Sequence[Sighted], meet: Meet) -> None:
    served_s = parts.clock.monotonic_s()
    for start in range(0, len(seen), CHUNK):
        meet(seen[start : start + CHUNK])
        if parts.clock.monotonic_s() - served_s > _SIGN_OF_LIFE_S:
            queues.ready()
            served_s = parts.clock.monotonic_s()


class _Collector:
    """Keeps what has to be known of the messages of one level, while they are held."""

    def __init__(self, parts: Parts, delays: DelaysVersion) -> None:
        self._parts = parts
        self._delays = delays
        self._seen: list[Sighted] = []

    def add(self, level: int, _scan: LevelScan, found: Sequence[LevelMessage]) -> int:
        ledger_id = self._parts.ledger_id
        self._seen += [sighted(self._delays, level, each, ledger_id=ledger_id) for each in found]
        self._parts.progress(level_text(self._delays, level), len(self._seen))
        return 0

    def take(self) -> Sequence[Sighted]:
        taken, self._seen = self._seen, []
        return taken


def _gap(found: LevelPass, seen: int) -> str | None:
    """Return why not all of a level was seen; None: it was."""
    if found.is_whole:
        return None
    if found.problem is not None:
        return str(found.problem)
    if found.end is ScanEnd.SHARED:
        return _SHARED
    return f"it holds more than fits the time; {seen} were looked at"


class FirstLook:
    """Judges each message, and remembers where ours are."""

    def __init__(self, parts: Parts, plan: VerifyPlan, findings: Findings) -> None:
        """Begin now: what is handed over later may be missed."""
        self._parts = parts
        self._plan = plan
        self._findings = findings
        self._held_for = timedelta(seconds=plan.scan.hold_s)
        self.seen = Seen(began_at=parts.clock.now())
        self.ours: Counter[LevelKey] = Counter()
        """By generation and level."""
        self.foreign: Counter[LevelKey] = Counter()

    def meet(self, messages: Sequence[Sighted]) -> None:
        """Judge messages that went back already."""
        known = self._known({each.claim for each in messages if each.claim is not None})
        for message in messages:
            key = message.place.delays, message.place.level
            found = known.get(message.claim) if message.claim is not None else None
            if message.claim is None or found is None:
                self.foreign[key] += 1
                continue
            self.ours[key] += 1
            if not self._plan.covers(found.endpoint):
                continue
            if found.timeout_id == message.claim.row.timeout_id:
                self._judge(message, found)
            else:
                self._add(
                    Discrepancy.DIFFERENT,
                    found,
                    f"a message in {message.place} bears its mark, but is timeout "
                    f"{message.claim.row.timeout_id}",
                )

    def _known(self, claims: set[LevelSighting]) -> Mapping[LevelSighting, KnownTimeout]:
        """Ask the ledger, and once more about those that no level may hold."""
        if not claims:
            return {}
        known = dict(self._parts.books.known(claims))
        strays = {claim for claim, found in known.items() if is_stray(found)}
        if strays:
            known |= self._parts.books.known(strays)
        return known

    def _judge(self, message: Sighted, known: KnownTimeout) -> None:
        before = self.seen.places[known.id]
        wrong = judge_message(known, message, before=before, held_for=self._held_for)
        if known.is_same_body:
            self.seen.places.add(known.id, message.place)
        if wrong is not None:
            kind, detail = wrong
            self.seen.flagged[known.id] = kind, message.place
            self._add(kind, known, detail)

    def _add(self, kind: Discrepancy, known: KnownTimeout, detail: str) -> None:
        self._findings.add(
            kind,
            detail,
            endpoint=known.endpoint,
            timeout_id=known.timeout_id,
            batch=known.batch,
        )


class SecondLook:
    """Looks for certain timeouts only."""

    def __init__(self, parts: Parts, wanted: Mapping[RowTag, int]) -> None:
        """Look for the rows of *wanted*; its values are the ledger's own ids."""
        self._parts = parts
        self._wanted = wanted
        self.met: dict[int, Place] = {}
        """The ledger's id → where it was seen."""
        self.different: dict[int, Place] = {}
        """The same, of messages with another body."""

    def meet(self, messages: Sequence[Sighted]) -> None:
        """Remember which of the wanted were seen."""
        places = {
            each.claim: each.place
            for each in messages
            if each.claim is not None and each.claim.row in self._wanted
        }
        for claim, known in self._parts.books.known(places).items() if places else ():
            found = self.met if known.is_same_body else self.different
            found[self._wanted[claim.row]] = places[claim]


def sighted(delays: DelaysVersion, level: int, message: LevelMessage, *, ledger_id: str) -> Sighted:
    """Return what has to be known of *message*; a key that nobody can read has no delay."""
    try:
        delay_s, _ = parse_routing_key(message.routing_key)
    except ValueError:
        delay_s = 0
    return Sighted(
        claim=_claim(message, ledger_id),
        place=Place(delays=delays, level=level, delay_s=delay_s),
        seen_at=message.seen_at,
    )


def _claim(message: LevelMessage, ledger_id: str) -> LevelSighting | None:
    timeout_id = message.headers.get(RELATED_TO_TIMEOUT_ID)
    row = row_tag(message.app_id, timeout_id, ledger_id=ledger_id)
    if row is None:
        return None
    return LevelSighting(row=row, body_hash=hashlib.sha256(message.body).hexdigest())


# ── looking once more ─────────────────────────────────────────────────────────────────────────────


class MissingLook:
    """Decides about timeouts that were not seen."""

    def __init__(self, parts: Parts, plan: VerifyPlan, findings: Findings) -> None:
        """Prepare; nothing is asked yet."""
        self._parts = parts
        self._plan = plan
        self._findings = findings

    def run(
        self, unseen: Mapping[int, EvidenceRecord], *, handed_over_last: datetime | None
    ) -> Mapping[int, EvidenceRecord]:
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
        look = SecondLook(self._parts, {_tag(line): line.id for line in unseen.values()})
        soonest = min(self._due_in(line) for line in unseen.values())
        levels = [n for n in range(TOP_LEVEL, -1, -1) if can_be_in(n, due_in=soonest)]
        found = generations(self._parts, self._plan)
        unread = sweep(self._parts, self._plan, found.depths, levels, look.meet)
        changes = {
            id_: at(_judged(unseen[id_], RowStatus.AGREES), place)
            for id_, place in look.met.items()
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

    def _due_in(self, line: EvidenceRecord) -> timedelta:
        return line.due_at - self._parts.clock.now()

    def _still_waiting(self, lines: Sequence[EvidenceRecord]) -> Iterator[EvidenceRecord]:
        """Yield those of *lines* that the ledger still says to be handed over, and not due."""
        rest = iter(lines)
        while some := list(islice(rest, CHUNK)):
            asked = {line.id: LevelSighting(row=_tag(line), body_hash="") for line in some}
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
        self, lines: Sequence[EvidenceRecord], unread: Mapping[LevelKey, str]
    ) -> tuple[Sequence[EvidenceRecord], int]:
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

    def _which(
        self, lines: Sequence[EvidenceRecord], levels: Iterable[int]
    ) -> Sequence[EvidenceRecord]:
        return [
            line
            for line in lines
            if any(can_be_in(level, due_in=self._due_in(line)) for level in levels)
        ]


def _tag(line: EvidenceRecord) -> RowTag:
    return RowTag(batch=line.batch, row_index=line.row_index, timeout_id=line.timeout_id)


def _steps(found: Generations) -> Sequence[tuple[DelaysVersion, LevelDepth]]:
    return [(each.version, step) for each in found.depths for step in each.steps if step.exists]


def _is_dark(delays: DelaysVersion, step: LevelDepth) -> bool:
    """Return whether nobody tells how much a level holds back; classic queues hold nothing back."""
    return delays is DelaysVersion.V2 and step.held is None


def _away(step: LevelDepth) -> int:
    """Return how many messages of a level nobody can read: held back, or with somebody."""
    return (step.held or 0) + (step.unacknowledged or 0)


def _judged(line: EvidenceRecord, verdict: RowStatus | Discrepancy) -> EvidenceRecord:
    """Return *line* with *verdict*, unless its content is what is wrong."""
    return replace(line, verdict=verdict) if line.is_intact else line
