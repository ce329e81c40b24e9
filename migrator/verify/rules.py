"""What one row of the ledger, or one message in a level, tells; pure, nothing is asked here.

Source: docs/verify.md.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import DelaysVersion
from migrator.ledger.states import BatchState, RowState
from migrator.nservicebus.tags import RowTag
from migrator.nservicebus.timeouts import BatchId, EndpointName, TimeoutId
from migrator.verify.report import SLACK, Discrepancy, EvidenceRecord, RowStatus

NOT_IN_LEVELS: Final = frozenset(
    {
        str(state)
        for state in (
            BatchState.CLAIMING,
            BatchState.CLAIMED,
            BatchState.RELEASING,
            BatchState.RELEASED,
            BatchState.RECALLED,
            BatchState.DISPATCHED,
            RowState.QUARANTINED,
        )
    }
)
"""Effective states of timeouts that no level may hold."""
_PAGE: Final = 1024
"""Ids that share a page; the ledger gives ids in order, so pages fill."""
_LEVEL_BITS: Final = 5
_PLACE_BITS: Final = _LEVEL_BITS + 1
_GENERATIONS: Final = tuple(DelaysVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSighting:
    """A message in a delay level that bears this ledger's mark."""

    row: RowTag
    body_hash: str
    """Hex SHA-256 of its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTimeout:
    """The row of the ledger whose mark was seen."""

    id: int
    """The ledger's own."""
    timeout_id: TimeoutId
    """The store's; another one than the message has if the ledger is not what it was."""
    batch: BatchId
    endpoint: EndpointName
    due_at: datetime
    """Aware, UTC."""
    state: str
    """The row's own, else its batch's."""
    is_same_body: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a timeout was seen."""

    level: int
    delay_s: int
    """What its routing key says: the whole delay, when it was published."""
    delays: DelaysVersion = DelaysVersion.V2

    def __str__(self) -> str:
        """Return its level as people read it: ``v2 level 07``."""
        return level_text(self.delays, self.level)


def level_text(delays: DelaysVersion, level: int) -> str:
    """Return how a level is called: ``v2 level 07``."""
    return f"{delays} level {level:02d}"


class Places:
    """Remembers one place per id of the ledger, in eight bytes."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._pages: dict[int, array[int]] = {}

    def __getitem__(self, row: int) -> Place | None:
        """Return where the timeout with the ledger's id *row* was seen first; None: nowhere."""
        page = self._pages.get(row // _PAGE)
        packed = page[row % _PAGE] if page is not None else 0
        if not packed:
            return None
        packed -= 1
        return Place(
            delays=_GENERATIONS[packed >> _LEVEL_BITS & 1],
            level=packed & ((1 << _LEVEL_BITS) - 1),
            delay_s=packed >> _PLACE_BITS,
        )

    def add(self, row: int, place: Place) -> None:
        """Remember that the timeout with the ledger's id *row* was seen at *place*."""
        page = self._pages.get(row // _PAGE)
        if page is None:
            page = self._pages[row // _PAGE] = array("Q", bytes(8 * _PAGE))
        generation = _GENERATIONS.index(place.delays)
        where = generation << _LEVEL_BITS | place.level
        page[row % _PAGE] = 1 + (place.delay_s << _PLACE_BITS | where)


class Ids:
    """Remembers ids of the ledger, in one bit each."""

    def __init__(self) -> None:
        """Begin with none."""
        self._pages: dict[int, bytearray] = {}

    def __contains__(self, row: int) -> bool:
        """Return whether the ledger's id *row* was added."""
        page = self._pages.get(row // (8 * _PAGE))
        return page is not None and bool(page[row // 8 % _PAGE] >> row % 8 & 1)

    def add(self, row: int) -> None:
        """Remember the ledger's id *row*."""
        page = self._pages.setdefault(row // (8 * _PAGE), bytearray(_PAGE))
        page[row // 8 % _PAGE] |= 1 << row % 8


@dataclass(slots=True, kw_only=True)
class Seen:
    """What going through the levels brought to light."""

    began_at: datetime
    places: Places = field(default_factory=Places)
    flagged: dict[int, tuple[Discrepancy, Place]] = field(default_factory=dict)
    """By the ledger's id: what is wrong with a message of it, and where that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighted:
    """One message that was seen, without what is in it."""

    claim: LevelSighting | None
    """Which row of ours it is, by its mark; None: somebody else's."""
    place: Place
    seen_at: datetime
    """In the database's time."""


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────


def is_another_copy(
    first: Place, second: Place, *, due_at: datetime, second_seen_at: datetime
) -> bool:
    """Return whether two sightings of one timeout prove that there are two messages of it.

    Levels are gone through downwards while messages move down, so the same message may be seen
    twice: in a level, and in a lower one after its time in the first was over. It is another
    one when it has another routing key, is in the same level or another generation, or when the
    first one's time in its level was not yet over.
    """
    if (first.delays, first.delay_s) != (second.delays, second.delay_s):
        return True
    if first.level == second.level:
        return True
    leaves_at = due_at - timedelta(seconds=first.delay_s & ((1 << first.level) - 1))
    return leaves_at > second_seen_at + SLACK


def can_be_in(level: int, *, due_in: timedelta) -> bool:
    """Return whether a message that is due in so long can be in *level*.

    It waits there for the rest of that level's time and for lower levels, together less than
    twice the level's time.
    """
    return due_in <= timedelta(seconds=2 ** (level + 1)) + SLACK


def is_stray(known: KnownTimeout) -> bool:
    """Return whether no level may hold a message of *known*."""
    return known.state in NOT_IN_LEVELS


def judge_message(
    known: KnownTimeout, message: Sighted, *, before: Place | None, held_for: timedelta
) -> tuple[Discrepancy, str] | None:
    """Return what is wrong with a message of a timeout of ours; None: nothing.

    Args:
        known: The row whose mark it bears.
        message: Where it is, and when.
        before: Where a message of that row was seen before in the same pass.
        held_for: So long it may have been held by somebody who looked.
    """
    place, seen_at = message.place, message.seen_at
    where = f"in {place}"
    if is_stray(known):
        return Discrepancy.STRAY, f"a message is {where}, but the timeout is {known.state}"
    if not known.is_same_body:
        return Discrepancy.DIFFERENT, f"a message {where} bears its mark, but not its body"
    if before is not None and is_another_copy(
        before, place, due_at=known.due_at, second_seen_at=seen_at
    ):
        return Discrepancy.TWICE, f"once in {before}, once {where}"
    is_late = known.due_at + SLACK + held_for < seen_at
    if known.state == BatchState.HANDED_OVER and is_late:
        late_s = (seen_at - known.due_at).total_seconds()
        return Discrepancy.LATE, f"{where}, due {late_s:.0f} s ago"
    return None


def judge_record(line: EvidenceRecord, *, now: datetime, seen: Seen | None) -> EvidenceRecord:
    """Return *line* with its verdict, and the level where its message was seen."""
    place = seen.places[line.id] if seen is not None else None
    flag = seen.flagged.get(line.id) if seen is not None else None
    where = place if flag is None else flag[1]
    return at(replace(line, verdict=_verdict(line, now, seen, place, flag)), where)


def at(line: EvidenceRecord, place: Place | None) -> EvidenceRecord:
    """Return *line* with *place* as where its message was seen."""
    if place is None:
        return replace(line, delays=None, level=None)
    return replace(line, delays=place.delays, level=place.level)


def _verdict(
    line: EvidenceRecord,
    now: datetime,
    seen: Seen | None,
    place: Place | None,
    flag: tuple[Discrepancy, Place] | None,
) -> RowStatus | Discrepancy:
    if not line.is_intact:
        return Discrepancy.CONTENT_CHANGED
    if flag is not None:
        return flag[0]
    if line.state != BatchState.HANDED_OVER:
        return RowStatus.AGREES
    if line.due_at <= now + SLACK:
        return RowStatus.LEFT
    if seen is None:
        return RowStatus.NOT_LOOKED
    return RowStatus.AGREES if place is not None else RowStatus.NOT_SEEN


def is_unseen(line: EvidenceRecord, *, now: datetime, seen: Seen) -> bool:
    """Return whether a message of *line* should have been in a level and was not seen."""
    return (
        line.state == BatchState.HANDED_OVER
        and line.due_at > now + SLACK
        and line.id not in seen.flagged
        and seen.places[line.id] is None
    )
