"""What one message in a level, or one row of the ledger, tells; nothing is asked here."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from migrator.delays.routing import DelaysVersion, parse_routing_key
from migrator.delays.scan import LevelMessage
from migrator.ledger.states import BatchState, RowState
from migrator.nservicebus.headers import RELATED_TO_TIMEOUT_ID
from migrator.nservicebus.tags import row_tag
from migrator.verify.evidence import Line, Word
from migrator.verify.places import Places
from migrator.verify.ports import AuditedRow, KnownTimeout, LevelSighting
from migrator.verify.report import SLACK, Discrepancy, Place, is_another_copy

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


def line_of(row: AuditedRow, *, is_intact: bool) -> Line:
    """Return the line of *row*, not judged yet."""
    return Line(
        id=row.id,
        endpoint=row.endpoint,
        source=row.source,
        timeout_id=row.timeout_id,
        batch=row.batch,
        row_index=row.row_index,
        destination=row.destination,
        due_at=row.due_at,
        state=row.state,
        reason=row.reason,
        content_hash=row.content_hash,
        is_intact=is_intact,
        delays=None,
        level=None,
        verdict=Word.NOT_LOOKED,
    )


def judge_line(line: Line, *, now: datetime, seen: Seen | None) -> Line:
    """Return *line* with its verdict, and the level where its message was seen."""
    place = seen.places[line.id] if seen is not None else None
    flag = seen.flagged.get(line.id) if seen is not None else None
    where = place if flag is None else flag[1]
    return at(replace(line, verdict=_verdict(line, now, seen, place, flag)), where)


def at(line: Line, place: Place | None) -> Line:
    """Return *line* with *place* as where its message was seen."""
    if place is None:
        return replace(line, delays=None, level=None)
    return replace(line, delays=place.delays, level=place.level)


def _verdict(
    line: Line,
    now: datetime,
    seen: Seen | None,
    place: Place | None,
    flag: tuple[Discrepancy, Place] | None,
) -> Word | Discrepancy:
    if not line.is_intact:
        return Discrepancy.CONTENT_CHANGED
    if flag is not None:
        return flag[0]
    if line.state != BatchState.HANDED_OVER:
        return Word.AGREES
    if line.due_at <= now + SLACK:
        return Word.LEFT
    if seen is None:
        return Word.NOT_LOOKED
    return Word.AGREES if place is not None else Word.NOT_SEEN


def is_unseen(line: Line, *, now: datetime, seen: Seen) -> bool:
    """Return whether a message of *line* should have been in a level and was not seen."""
    return (
        line.state == BatchState.HANDED_OVER
        and line.due_at > now + SLACK
        and line.id not in seen.flagged
        and seen.places[line.id] is None
    )
