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

from migrator.domain.ladder import Ladder
from migrator.domain.timeouts import TimeoutId
from migrator.engine.verify.findings import Findings
from migrator.engine.verify.judging import Seen, Sighted, is_stray, judge_message, sighted
from migrator.engine.verify.plan import CHUNK, Parts, VerifyPlan
from migrator.errors import DeliveryLimitNear
from migrator.ports.levels import Levels, ScanEnd, ScanLimits
from migrator.ports.verification import KnownTimeout, LevelSighting

Meet = Callable[[Sequence[Sighted]], None]
_SIGN_OF_LIFE_S: Final = 2.0
"""The broker's heartbeat is every five seconds."""


def sweep(
    parts: Parts, plan: VerifyPlan, ladder: Ladder, levels: Iterable[int], meet: Meet
) -> Mapping[int, str]:
    """Show every message of *levels* to *meet*; return the levels not gone through, with why.

    Args:
        parts: Who is asked.
        plan: How long a level is held, and how deep it may be.
        ladder: What waits in each level, for levels that are too deep or do not exist.
        levels: Which ones; highest first.
        meet: Called with some of the messages of a level that were seen, once they went back.

    Raises:
        TargetError, StoreUnavailable: Everything has gone back.
    """
    unread: dict[int, str] = {}
    steps = {step.level: step for step in ladder.steps}
    with parts.open_levels() as queues:
        for level in levels:
            step = steps[level]
            if step.known > plan.deepest:
                unread[level] = f"it holds {step.known} messages; --deepest allows more"
            elif step.exists:
                seen, why = _seen(parts, plan.scan, queues, level)
                if why:
                    unread[level] = why
                served_s = parts.clock.monotonic_s()
                for start in range(0, len(seen), CHUNK):
                    meet(seen[start : start + CHUNK])
                    if parts.clock.monotonic_s() - served_s > _SIGN_OF_LIFE_S:
                        queues.ready()
                        served_s = parts.clock.monotonic_s()
    return unread


def _seen(
    parts: Parts, limits: ScanLimits, queues: Levels, level: int
) -> tuple[Sequence[Sighted], str | None]:
    """Return what was seen in *level*, and why that is not all of it; None: it is."""
    seen: list[Sighted] = []
    scan = queues.scan(level, limits)
    try:
        while found := scan.receive(at_most=CHUNK):
            seen += [sighted(level, message) for message in found]
            parts.progress(f"level {level:02d}", len(seen))
    except DeliveryLimitNear as exc:
        return seen, str(exc)
    finally:
        scan.close()
    if scan.end is not ScanEnd.EMPTY:
        return seen, f"it holds more than fits the time; {len(seen)} were looked at"
    return seen, None


class FirstLook:
    """Judges each message, and remembers where ours are."""

    def __init__(self, parts: Parts, plan: VerifyPlan, findings: Findings) -> None:
        """Begin now: what is handed over later may be missed."""
        self._parts = parts
        self._plan = plan
        self._findings = findings
        self._held_for = timedelta(seconds=plan.scan.hold_s)
        self.seen = Seen(began_at=parts.clock.now())
        self.ours: Counter[int] = Counter()
        """By level."""
        self.foreign: Counter[int] = Counter()

    def meet(self, messages: Sequence[Sighted]) -> None:
        """Judge messages that went back already."""
        known = self._known({each.claim for each in messages if each.claim is not None})
        for message in messages:
            level = message.place.level
            found = known.get(message.claim) if message.claim is not None else None
            if found is None:
                self.foreign[level] += 1
                continue
            self.ours[level] += 1
            if self._plan.covers(found.endpoint):
                self._judge(message, found)

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
            self.seen.flagged[known.id] = kind, message.place.level
            self._findings.add(
                kind,
                detail,
                endpoint=known.endpoint,
                timeout_id=None if message.claim is None else message.claim.timeout_id,
                batch=known.batch,
            )


class SecondLook:
    """Looks for certain timeouts only."""

    def __init__(self, wanted: Mapping[TimeoutId, Sequence[int]]) -> None:
        """Look for the ids of *wanted*; its values are the ledger's own."""
        self._wanted = wanted
        self.met: dict[int, int] = {}
        """The ledger's id → the level where it was seen."""

    def meet(self, messages: Sequence[Sighted]) -> None:
        """Remember which of the wanted were seen."""
        for message in messages:
            if message.claim is not None:
                rows = self._wanted.get(message.claim.timeout_id, ())
                self.met |= dict.fromkeys(rows, message.place.level)
