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

    row: RowTag | None
    """Which row of ours it is, by its mark; None: somebody else's."""
    body_hash: str
    """Hex SHA-256."""
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


def is_stray(known: EvidenceRecord) -> bool:
    """Return whether no level may hold a message of *known*."""
    return known.state in NOT_IN_LEVELS


def judge_message(
    known: EvidenceRecord, message: Sighted, *, before: Place | None, held_for: timedelta
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
    if known.body_hash != message.body_hash:
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
    """Return *line* with its verdict, and the level where its message was seen.

    *seen* is None when nobody looked into the levels.
    """
    place = seen.places[line.id] if seen is not None else None
    flag = seen.flagged.get(line.id) if seen is not None else None
    verdict: RowStatus | Discrepancy = RowStatus.AGREES
    if not line.is_intact:
        verdict = Discrepancy.CONTENT_CHANGED
    elif flag is not None:
        verdict = flag[0]
    elif line.state == BatchState.HANDED_OVER and not is_waiting(line, now=now):
        verdict = RowStatus.LEFT
    elif line.state == BatchState.HANDED_OVER and seen is None:
        verdict = RowStatus.NOT_LOOKED
    elif line.state == BatchState.HANDED_OVER and place is None:
        verdict = RowStatus.NOT_SEEN
    where = place if flag is None else flag[1]
    delays, level = (None, None) if where is None else (where.delays, where.level)
    return replace(line, verdict=verdict, delays=delays, level=level)


def is_waiting(line: EvidenceRecord, *, now: datetime) -> bool:
    """Return whether a message of *line* has to be in a level."""
    return line.state == BatchState.HANDED_OVER and line.due_at > now + SLACK


def is_unseen(line: EvidenceRecord, *, now: datetime, seen: Seen) -> bool:
    """Return whether a message of *line* should have been in a level and was not seen."""
    is_seen = line.id in seen.flagged or seen.places[line.id] is not None
    return is_waiting(line, now=now) and not is_seen
