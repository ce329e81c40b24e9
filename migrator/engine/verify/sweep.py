"""Going through the levels once, from the highest to the lowest, taking nothing out.

Rules of this file: nothing is acknowledged, so everything goes back with its original expiry;
what is above comes down meanwhile, so a message is met at least once, unless it is just between
two levels; a level that was not gone through to its end is told, never passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from migrator.domain.ladder import Ladder
from migrator.domain.timeouts import TimeoutId
from migrator.engine.verify.findings import Findings
from migrator.engine.verify.judging import (
    Seen,
    is_stray,
    judge_message,
    place_of,
    sighting_of,
    timeout_id_of,
)
from migrator.engine.verify.plan import CHUNK, Parts, VerifyPlan
from migrator.errors import DeliveryLimitNear
from migrator.ports.levels import LevelMessage, ScanEnd
from migrator.ports.verification import KnownTimeout, LevelSighting

Meet = Callable[[int, Sequence[LevelMessage]], None]


def sweep(
    parts: Parts, plan: VerifyPlan, ladder: Ladder, levels: Iterable[int], meet: Meet
) -> Mapping[int, str]:
    """Show every message of *levels* to *meet*; return the levels not gone through, with why.

    Args:
        parts: Who is asked.
        plan: How long a level is held, and how deep it may be.
        ladder: What waits in each level, for levels that are too deep or do not exist.
        levels: Which ones; highest first.
        meet: Called with a level and some of its messages, while they are held.

    Raises:
        TargetError, StoreUnavailable: Everything has gone back.
    """
    unread: dict[int, str] = {}
    steps = {step.level: step for step in ladder.steps}
    with parts.open_levels() as queues:
        for level in levels:
            step = steps[level]
            if not step.exists:
                continue
            if step.known > plan.deepest:
                unread[level] = f"it holds {step.known} messages; --deepest allows more"
                continue
            scan = queues.scan(level, plan.scan)
            count = 0
            try:
                while found := scan.receive(at_most=CHUNK):
                    count += len(found)
                    meet(level, found)
                    parts.progress(f"level {level:02d}", count)
            except DeliveryLimitNear as exc:
                unread[level] = str(exc)
                continue
            finally:
                scan.close()
            if scan.end is not ScanEnd.EMPTY:
                unread[level] = f"it holds more than fits the time; {count} were looked at"
    return unread


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

    def meet(self, level: int, messages: Sequence[LevelMessage]) -> None:
        """Judge messages of *level* while they are held."""
        claims = [(message, sighting_of(message)) for message in messages]
        known = self._known({claim for _, claim in claims if claim is not None})
        for message, claim in claims:
            found = known.get(claim) if claim is not None else None
            if found is None:
                self.foreign[level] += 1
                continue
            self.ours[level] += 1
            if self._plan.covers(found.endpoint):
                self._judge(level, message, found)

    def _known(self, claims: set[LevelSighting]) -> Mapping[LevelSighting, KnownTimeout]:
        """Ask the ledger, and once more about those that no level may hold."""
        if not claims:
            return {}
        known = dict(self._parts.books.known(claims))
        strays = {claim for claim, found in known.items() if is_stray(found)}
        if strays:
            known |= self._parts.books.known(strays)
        return known

    def _judge(self, level: int, message: LevelMessage, known: KnownTimeout) -> None:
        place = place_of(level, message)
        wrong = judge_message(
            known,
            place,
            before=self.seen.places[known.id],
            seen_at=message.seen_at,
            held_for=self._held_for,
        )
        if known.is_same_body:
            self.seen.places.add(known.id, place)
        if wrong is not None:
            kind, detail = wrong
            self.seen.flagged[known.id] = kind, level
            self._findings.add(
                kind,
                detail,
                endpoint=known.endpoint,
                timeout_id=timeout_id_of(message),
                batch=known.batch,
            )


class SecondLook:
    """Looks for certain timeouts only."""

    def __init__(self, wanted: Mapping[TimeoutId, Sequence[int]]) -> None:
        """Look for the ids of *wanted*; its values are the ledger's own."""
        self._wanted = wanted
        self.met: dict[int, int] = {}
        """The ledger's id → the level where it was seen."""

    def meet(self, level: int, messages: Sequence[LevelMessage]) -> None:
        """Remember which of the wanted are in *level*."""
        for message in messages:
            timeout_id = timeout_id_of(message)
            if timeout_id is not None:
                self.met |= dict.fromkeys(self._wanted.get(timeout_id, ()), level)
