"""What one row of the ledger, or one message in a level, tells; pure, nothing is asked here.

Source: docs/verify.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.tagged import Place, TaggedMessage
from migrator.ledger.states import BatchState, RowState
from migrator.verify.report import SLACK, Discrepancy, EvidenceRecord, RowStatus

NOT_IN_LEVELS: Final = frozenset(
    {
        str(state)
        for state in (
            BatchState.CLAIMING,
            BatchState.CLAIMED,
            BatchState.PARKED,
            BatchState.RELEASING,
            BatchState.RELEASED,
            RowState.RECALLED,
            BatchState.DISPATCHED,
            RowState.QUARANTINED,
            RowState.DISCARDED,
        )
    }
)
"""Effective states of timeouts that no level may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What going through the levels brought to light of one row."""

    place: Place | None = None
    """Where its message was seen last; None: nowhere."""
    flag: tuple[Discrepancy, Place] | None = None
    """What is wrong with a message of it, and where that is."""

    @property
    def is_there(self) -> bool:
        """Whether a message of it was seen, right or wrong."""
        return self.place is not None or self.flag is not None


NOWHERE: Final = Seen()


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────


def is_another_copy(
    first: Place, second: Place, *, due_at: datetime, second_seen_at: datetime
) -> bool:
    """Return whether two sightings of one timeout prove that there are two messages of it.

    Levels are gone through downwards while messages move down, so the same message may be seen
    twice: in a level, and in a lower one after its time in the first was over. It is another
    one when it has another routing key, is in the same level or another version, or when the
    first one's time in its level was not yet over.
    """
    if (first.version, first.delay_s) != (second.version, second.delay_s):
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


def judge_messages(
    known: EvidenceRecord, messages: Iterable[TaggedMessage], *, held_for: timedelta
) -> tuple[Seen, Sequence[tuple[Discrepancy, str]]]:
    """Return what was seen of a migrated row, and what is wrong with that, with the deciding facts.

    Args:
        known: The row, with the hash of its body.
        messages: Those that bear its tag, in the order in which they were seen.
        held_for: So long a scan may have held them.
    """
    seen, wrong = NOWHERE, list[tuple[Discrepancy, str]]()
    for message in messages:
        place = message.place
        if message.timeout_id != known.timeout_id:
            named = f"is timeout {message.timeout_id}"
            wrong.append(
                (Discrepancy.DIFFERENT, f"a message in {place} carries its tag, but {named}")
            )
            continue
        found = _judge_message(known, message, place, before=seen.place, held_for=held_for)
        if known.body_hash == message.body_hash:
            seen = Seen(place=place, flag=seen.flag)
        if found is not None:
            wrong.append(found)
            seen = Seen(place=seen.place, flag=(found[0], place))
    return seen, wrong


def _judge_message(
    known: EvidenceRecord,
    message: TaggedMessage,
    place: Place,
    *,
    before: Place | None,
    held_for: timedelta,
) -> tuple[Discrepancy, str] | None:
    """Return what is wrong with the message of a migrated timeout; None: nothing.

    It was seen in *place*; *before* is where a message of that row was seen before.
    """
    if is_stray(known):
        return Discrepancy.STRAY, f"a message is in {place}, but the timeout is {known.state}"
    if known.body_hash != message.body_hash:
        return Discrepancy.DIFFERENT, f"a message in {place} carries its tag, but not its body"
    seen_at = message.seen_at
    if before is not None and is_another_copy(
        before, place, due_at=known.due_at, second_seen_at=seen_at
    ):
        return Discrepancy.TWICE, f"once in {before}, once in {place}"
    handed_over_at = known.handed_over_at  # the row is read after all levels were gone through
    was_handed_over = handed_over_at is not None and handed_over_at <= seen_at
    if was_handed_over and known.due_at + SLACK + held_for < seen_at:
        late_s = (seen_at - known.due_at).total_seconds()
        return Discrepancy.LATE, f"in {place}, due {late_s:.0f} s ago"
    return None


def judge_record(line: EvidenceRecord, *, now: datetime, seen: Seen | None) -> EvidenceRecord:
    """Return *line* with its verdict, and the level where its message was seen.

    *seen* is None when the levels were not read.
    """
    place, flag = (None, None) if seen is None else (seen.place, seen.flag)
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
    delays, level = (None, None) if where is None else (where.version, where.level)
    return line._replace(verdict=verdict, delays=delays, level=level)


def is_waiting(line: EvidenceRecord, *, now: datetime) -> bool:
    """Return whether a message of *line* has to be in a level."""
    return line.state == BatchState.HANDED_OVER and line.due_at > now + SLACK
