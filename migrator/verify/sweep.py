"""Going through the levels once, from the highest to the lowest, taking nothing out.

Rules of this file:

* nothing is acknowledged, so everything goes back with its original expiry;
* what is above comes down meanwhile, so a message is met at least once, unless it is just between
  two levels;
* nobody is asked about messages while they are held: that would hold them for longer;
* a level that was not gone through to its end is told, never passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from migrator.delays.depths import LevelDepths
from migrator.delays.routing import DelaysVersion
from migrator.delays.scan import LevelMessage, Levels, LevelScan, ScanEnd
from migrator.delays.walk import LevelPass, walk
from migrator.nservicebus.tags import RowTag
from migrator.verify.findings import Findings
from migrator.verify.judging import Seen, Sighted, is_stray, judge_message, sighted
from migrator.verify.plan import CHUNK, Parts, VerifyPlan
from migrator.verify.ports import KnownTimeout, LevelSighting
from migrator.verify.report import Discrepancy, Place, level_text

Meet = Callable[[Sequence[Sighted]], None]
Rung = tuple[DelaysVersion, int]
"""A generation and one of its levels."""
_SIGN_OF_LIFE_S: Final = 2.0
"""The broker's heartbeat is every five seconds."""
_SHARED: Final = "somebody else consumes it, and may hold messages that were not seen"


def sweep(
    parts: Parts,
    plan: VerifyPlan,
    ladders: Iterable[LevelDepths],
    levels: Sequence[int],
    meet: Meet,
) -> Mapping[Rung, str]:
    """Show every message of *levels* to *meet*; return the levels not gone through, with why.

    Args:
        parts: Who is asked.
        plan: How long a level is held, and how deep it may be.
        ladders: What waits in each level, for levels that are too deep or do not exist.
        levels: Which ones, of each generation.
        meet: Called with some of the messages of a level that were seen, once they went back.

    Raises:
        TargetError, StoreUnavailable: Everything has gone back.
    """
    unread: dict[Rung, str] = {}
    for ladder in ladders:
        version = ladder.version
        there = {step.level: step for step in ladder.steps if step.exists and step.level in levels}
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
        self.ours: Counter[Rung] = Counter()
        """By generation and level."""
        self.foreign: Counter[Rung] = Counter()

    def meet(self, messages: Sequence[Sighted]) -> None:
        """Judge messages that went back already."""
        known = self._known({each.claim for each in messages if each.claim is not None})
        for message in messages:
            rung = message.place.delays, message.place.level
            found = known.get(message.claim) if message.claim is not None else None
            if message.claim is None or found is None:
                self.foreign[rung] += 1
                continue
            self.ours[rung] += 1
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
