"""Looking through the levels, and once more for what was not seen; nothing is taken out.

Rules of this file:

* nothing is acknowledged, so everything goes back with its original expiry;
* no server is asked about messages while they are held: that would hold them for longer. What was
  seen is compared with the ledger when its rows are read, page by page;
* only what the ledger still says to be handed over, and not due, can be missing; a level hides
  what may be in it when it could not be read, when it is unknown whether it holds messages back,
  or when a consumer has some of them; so does a version that was left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from migrator.delays.depths import LevelDepth, LevelDepths
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import LevelMessage, LevelScan, ScanEnd, ScanLimits, find_tagged
from migrator.delays.tagged import TaggedMessage, level_text
from migrator.delays.walk import LevelPass, walk
from migrator.ledger.batches import SqlRuns
from migrator.ledger.leases import SqlLeases
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.work import Clock, FaultPoint
from migrator.nservicebus.tags import TAG
from migrator.nservicebus.timeouts import BITS, EndpointName
from migrator.rabbitmq.frames import Keep
from migrator.stores.ports import Store
from migrator.text import counted
from migrator.verify.queries import LedgerAudit
from migrator.verify.report import SLACK, Discrepancy, EvidenceRecord, Findings, RowKey
from migrator.verify.rules import (
    NOWHERE,
    Seen,
    can_be_in,
    is_stray,
    is_waiting,
    judge_messages,
    judge_record,
)
from migrator.verify.tagged import TaggedMessages

if TYPE_CHECKING:
    from migrator.delays.walk import LevelAccess

CHUNK: Final = 500
"""Rows that are asked about at a time, by their tags."""
LevelKey = tuple[str, int]
"""A version of the delays and one of its levels."""
KeepSeen = Callable[[LevelKey, int, Sequence[TaggedMessage]], None]
_SHARED: Final = "something else consumes it, and may hold messages that were not seen"
_ROUTED: Final = timedelta(seconds=6)
"""A receipt may be ahead of its messages, and the broker's counts are renewed every 5 s."""
_STAGED_TIMEOUT_S: Final = 10.0
_COUNTS_TIMEOUT_S: Final = 8.0
_SUMS_TIMEOUT_S: Final = 20.0
"""A quorum queue tells its counts every five seconds, and the management API asks as often; with
8 s a daemon at work looked as if it had lost the last thousand (RabbitMQ 3.10, a busy machine)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What to look at, and how gently."""

    endpoints: frozenset[EndpointName] = frozenset()
    """Empty: all."""
    delays: DelaysVersion | None = None
    """Which version to read; None: each that exists."""
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
class VerifyContext:
    """What a verification asks, and what it reports to; made by ``app.verify.open_verify``."""

    queries: LedgerAudit
    ledger_id: str
    """By whose tag our messages are known."""
    access: LevelAccess
    """``seen_at`` of its messages is the time of ``clock``."""
    ledger: LedgerQueries
    """Which batches are doubtful."""
    clock: Clock
    """The database's time."""
    wait: Callable[[float], None]
    """Waits for so many seconds."""
    store: Store
    """Knows endpoints that the ledger does not."""
    leases: SqlLeases
    lease_duration: timedelta
    """For how long that of a scan is taken at a time."""
    runs: SqlRuns
    """Gets the event."""
    fault: FaultPoint
    """Called after each page of rows."""
    progress: Callable[[str, int], None]
    """Called with what is being read, and how much of it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCounts:
    """The delays that exist on the broker, with its counts by now."""

    depths: Sequence[LevelDepths]
    """Those that are looked into."""
    left_out: Sequence[DelaysVersion]
    """Those that the plan leaves out; whatever was not seen may be there."""

    @property
    def levels(self) -> Sequence[tuple[DelaysVersion, LevelDepth]]:
        """Every level that exists, by version, highest first."""
        return [(each.version, step) for each in self.depths for step in each.steps if step.exists]

    @property
    def known(self) -> int:
        """Messages that are known to be in all of them."""
        return sum(step.known for _, step in self.levels)

    @property
    def gaps(self) -> Sequence[str]:
        """Why not everything is counted, by the broker."""
        return sorted({each.gap for each in self.depths if each.gap})


class LevelCheck:
    """Looks at the messages in the levels, and compares the rows of the ledger with them."""

    def __init__(
        self, context: VerifyContext, plan: VerifyPlan, findings: Findings, tagged: TaggedMessages
    ) -> None:
        self._context = context
        self._plan = plan
        self._findings = findings
        self._tagged = tagged
        self._held_for = timedelta(seconds=plan.scan.hold_s)
        self.began_at = context.clock.now()
        self.ours: Counter[LevelKey] = Counter()
        """Messages of rows that the ledger has, by version and level; so far."""
        self._all: Counter[LevelKey] = Counter()
        self._whole: set[LevelKey] = set()
        """Levels of which every message was seen."""

    def total(self, delays: DelaysVersion, step: LevelDepth) -> int | None:
        """Return how many messages a level has, as of when they were seen; None: unknown.

        The broker's counts are seconds old: beside what was seen they would be of another time.
        They count for a level that was not seen whole, and for what it holds back.
        """
        where = (delays.value, step.level)
        if where in self._whole:
            return self._all[where] + (step.held or 0)
        return None if step.ready is None else max(step.known, self._all[where])

    @property
    def foreign(self) -> Counter[LevelKey]:
        """All others that were seen."""
        return self._all - self.ours

    def counts(self) -> LevelCounts:
        """Return what exists, with its counts by now."""
        found = [each for each in self._context.access.depths() if not each.is_absent]
        meant = [each for each in found if self._plan.delays in (None, each.version)]
        left_out = [each.version for each in found if each not in meant]
        return LevelCounts(depths=meant, left_out=left_out)

    def first(self) -> None:
        """Look at every message; nothing is judged yet.

        Raises:
            TargetError, StoreUnavailable, ConfigError: Everything has gone back.
        """

        def keep(where: LevelKey, count: int, ours: Sequence[TaggedMessage]) -> None:
            self._all[where] += count
            self._tagged.add(ours)

        for (delays, level), why in self._sweep(range(BITS), keep).items():
            if why:
                self._findings.not_checked.append(f"{level_text(delays, level)}: {why}")
            else:
                self._whole.add((delays, level))
        self._tagged.sort()

    def _sweep(self, levels: Container[int], keep: KeepSeen) -> Mapping[LevelKey, str]:
        """Show every message of *levels* to *keep*; return why not all of each; empty: it was.

        *keep* is called while some messages of one level are held: with the level, how many there
        are, and those that bear the tag of a migrated row.
        """
        gone: dict[LevelKey, str] = {}
        for depths in self.counts().depths:
            which = set[int]()
            for step in depths.steps:
                if not step.exists or step.level not in levels:
                    continue
                if step.known <= self._plan.deepest:
                    which.add(step.level)
                else:
                    why = f"it holds {counted(step.known, 'message')}; --max-depth allows more"
                    gone[depths.version, step.level] = why
            gone |= self._sweep_version(depths.version, which, keep)
        return gone

    def _sweep_version(
        self, version: DelaysVersion, which: Collection[int], keep: KeepSeen
    ) -> Mapping[LevelKey, str]:
        context, gone, seen = self._context, dict[LevelKey, str](), Counter[int]()

        def meet(level: int, _scan: LevelScan, found: Sequence[LevelMessage]) -> int:
            known = (
                find_tagged(each, version, level, ledger_id=context.ledger_id) for each in found
            )
            keep((version, level), len(found), [each for each in known if each is not None])
            seen[level] += len(found)
            context.progress(level_text(version, level), seen[level])
            return 0

        with context.access.open(version) as queues:
            passes = walk(queues, which, self._plan.scan, meet, choose=_hash_ours, leaves_worn=True)
            for found in passes:
                gone[version, found.level] = _gap(found, seen[found.level])
        return gone

    # ── judging ─────────────────────────────────────────────────────────────────────────────

    def met(self, page: Sequence[EvidenceRecord]) -> Iterator[tuple[EvidenceRecord, Seen]]:
        """Yield the rows that are meant with what was seen of them; report what is wrong with that.

        Rows that no level may hold, and of which a message was seen, are read again.
        """
        found = self._tagged.of(page)
        strays = {row.row for row in page if is_stray(row) and row.row in found}
        again = self._context.queries.known(strays) if strays else {}
        for row in page:
            messages = found.get(row.row, ())
            for each in messages:
                self.ours[each.version, each.level] += 1
            if self._plan.covers(row.endpoint):
                now = row
                if strays and (found_again := again.get(row.row)):
                    now = found_again._replace(is_intact=row.is_intact)
                yield now, self._judge(now, messages)

    def seen(self, rows: Sequence[EvidenceRecord]) -> Mapping[int, Seen]:
        """Return what was seen of *rows*, by the ledger's id; nothing is reported."""
        found = self._tagged.of(rows)
        there = {row.row for row in rows if row.row in found}
        known = self._context.queries.known(there)
        return {
            row.id: judge_messages(
                known.get(row.row, row),
                found.get(row.row, ()),
                held_for=self._held_for,
            )[0]
            for row in rows
        }

    def _judge(self, known: EvidenceRecord, messages: Sequence[TaggedMessage]) -> Seen:
        if not messages:
            return NOWHERE
        seen, wrong = judge_messages(known, messages, held_for=self._held_for)
        for kind, detail in wrong:
            self._findings.add_line(kind, known, detail)
        return seen

    # ── looking once more ───────────────────────────────────────────────────────────────────

    def again(
        self, unseen: Mapping[int, EvidenceRecord], *, handed_over_last: datetime
    ) -> Mapping[int, EvidenceRecord]:
        """Look for *unseen* again; return the lines that are otherwise now.

        Args:
            unseen: Rows by the ledger's id.
            handed_over_last: When the latest of them was.

        Raises:
            TargetError, StoreUnavailable: It is unknown; run it again.
        """
        staged = self._routed(handed_over_last)
        soonest = min(map(self._due_in, unseen.values()))
        wanted = {(*line.row, line.timeout_id) for line in unseen.values()}
        levels = [level for level in range(BITS) if can_be_in(level, due_in=soonest)]
        gone = self._sweep(
            levels,
            lambda _where, _count, found: self._tagged.add(
                each for each in found if each[:3] in wanted
            ),
        )
        changes, still = self._looked_at_again([*unseen.values()])
        lost, hidden = self._decided(still, [where for where, why in gone.items() if why])
        for line in lost:
            detail = f"handed over, due {line.due_at:%Y-%m-%d %H:%M:%S} UTC, and in no level"
            if staged:
                count = counted(staged, "message is", "messages are")
                detail += f"; {count} still in migrator's staging queues"
            self._findings.add_line(Discrepancy.MISSING, line, detail)
            changes[line.id] = line._replace(verdict=Discrepancy.MISSING)
        if hidden:
            self._findings.not_checked.append(
                f"whether {counted(hidden, 'timeout is', 'timeouts are')} still there: found in no "
                "level that could be read, maybe in one that could not"
            )
        return changes

    def _routed(self, handed_over_last: datetime) -> int | None:
        """Give messages time to reach their levels; return how many are still staged."""
        clock, wait = self._context.clock, self._context.wait
        wait(max((handed_over_last + _ROUTED - clock.now()).total_seconds(), 0.0))
        until_s = clock.monotonic_s() + _STAGED_TIMEOUT_S
        while (staged := self._context.access.still_staged()) and clock.monotonic_s() < until_s:
            wait(1.0)
        return staged

    def _due_in(self, line: EvidenceRecord) -> timedelta:
        return line.due_at - self._context.clock.now()

    def _looked_at_again(
        self, lines: Sequence[EvidenceRecord]
    ) -> tuple[dict[int, EvidenceRecord], Sequence[EvidenceRecord]]:
        """Return the lines that were seen now, and those that the ledger still says must be there.

        Those are handed over, and not due.
        """
        changes, still = dict[int, EvidenceRecord](), list[EvidenceRecord]()
        for start in range(0, len(lines), CHUNK):
            some = lines[start : start + CHUNK]
            messages = self._tagged.of(some)
            known = self._known({line.row for line in some})
            now = self._context.clock.now()
            for line in some:
                found = known.get(line.row)
                if found is None:
                    continue
                met = messages.get(line.row, ())
                seen = self._judge(found, [m for m in met if m.timeout_id == line.timeout_id])
                if seen.is_there:
                    changes[line.id] = judge_record(line, now=now, seen=seen)
                elif is_waiting(found, now=now):
                    still.append(line)
        return changes, still

    def _known(self, rows: Collection[RowKey]) -> Mapping[RowKey, EvidenceRecord]:
        """Return rows by batch and index; those that no level may hold are read again."""
        known = dict(self._context.queries.known(rows))
        if strays := {row for row, found in known.items() if is_stray(found)}:
            known |= self._context.queries.known(strays)
        return known

    def _decided(
        self, lines: Sequence[EvidenceRecord], unread: Collection[LevelKey]
    ) -> tuple[Sequence[EvidenceRecord], int]:
        """Return which of *lines* are missing, and of how many it is unknown."""
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

    def _counted(self) -> LevelCounts:
        """Return the broker's counts, once they tell everything, or as they are after a while.

        Levels are told seconds after they were made, and what we held ourselves is still among
        what is consumed for as long.
        """
        until_s = self._context.clock.monotonic_s() + _COUNTS_TIMEOUT_S
        while True:
            found = self.counts()
            is_told = not any(
                _is_dark(delays, step) or step.unacknowledged for delays, step in found.levels
            )
            if is_told or self._context.clock.monotonic_s() >= until_s:
                return found
            self._context.wait(1.0)

    def _which(
        self, lines: Sequence[EvidenceRecord], levels: Iterable[int]
    ) -> Sequence[EvidenceRecord]:
        return [
            line
            for line in lines
            if any(can_be_in(level, due_in=self._due_in(line)) for level in levels)
        ]

    # ── sums alone ──────────────────────────────────────────────────────────────────────────

    def count(self, waiting: Callable[[datetime], int]) -> LevelCounts:
        """Report when all levels together hold too few; return what they hold by the last answer.

        *waiting* tells how many timeouts that are due after a time have to be in the levels.
        """
        clock, found = self._context.clock, self.counts()
        demand = waiting(clock.now() + SLACK)
        if found.known >= demand:
            return found
        gap = "; ".join(found.gaps)
        if found.left_out:
            gap = f"--delays excludes the levels of {', '.join(found.left_out)}"
        if gap:
            self._findings.not_checked.append(
                f"whether {counted(demand, 'timeout is', 'timeouts are')} in the levels: "
                f"{counted(found.known, 'message is', 'messages are')} known to be there, and {gap}"
            )
            return found
        if (now := self._by_the_queues(found)).known >= demand:
            return now
        until = clock.now() + timedelta(seconds=_SUMS_TIMEOUT_S)
        demand = waiting(until + SLACK)
        while found.known < demand and clock.now() < until:
            self._context.wait(1.0)
            found = self.counts()
            if (now := self._by_the_queues(found)).known >= demand:
                return now
        if found.known < demand:
            demand = min(demand, waiting(until + SLACK))
        if found.known < demand:
            self._findings.add(
                Discrepancy.TOO_FEW,
                f"the levels hold {counted(found.known, 'message')}, those of others included, "
                f"and {counted(demand, 'timeout')} must be there; --deep shows which are missing",
            )
        return found

    def _by_the_queues(self, found: LevelCounts) -> LevelCounts:
        """Return *found* with what the queues themselves say is ready: the API tells it later.

        As it was where anything is held back or consumed: that only the API tells, and what was
        so by its last answer may be ready now, and would count twice.
        """
        if any(_away(step) for _, step in found.levels):
            return found
        return replace(found, depths=[self._with_ready(each) for each in found.depths])

    def _with_ready(self, depths: LevelDepths) -> LevelDepths:
        ready = self._context.access.ready(depths.version)
        steps = (replace(each, ready=ready.get(each.level)) for each in depths.steps)
        return replace(depths, steps=tuple(steps))


def _hash_ours(properties: bytes, _body_bytes: int) -> Keep:
    """Choose to hash the bodies of messages that may be ours; nothing of others is kept."""
    return Keep.HASH if TAG in properties else Keep.NOTHING


def _gap(found: LevelPass, seen: int) -> str:
    """Return why not all of a level was seen; empty: it was."""
    if found.is_whole:
        return ""
    if found.problem is not None:
        return str(found.problem)
    if found.end is ScanEnd.SHARED:
        return _SHARED
    return f"it holds more than can be read in the time allowed; {seen} were looked at"


def _is_dark(delays: DelaysVersion, step: LevelDepth) -> bool:
    """Return whether it is unknown how much a level holds back; classic queues hold back none."""
    return delays is DelaysVersion.V2 and step.held is None


def _away(step: LevelDepth) -> int:
    """Return how many messages of a level cannot be read: held back, or unacked."""
    return (step.held or 0) + (step.unacknowledged or 0)
