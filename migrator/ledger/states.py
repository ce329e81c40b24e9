"""What may happen to a batch: every state, every event, and the one transition table.

Rules of this file: a transition that is not in ``NEXT`` does not exist; the ledger changes a
state only through ``next_state``; every row says what makes it safe. Source: design section 4
and docs/adr/0001-hand-over-protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from migrator.errors import IllegalTransition


class Mode(StrEnum):
    """How a batch is handed over; fixed when it is claimed."""

    STAGED = "staged"
    DIRECT = "direct"
    DISPATCH = "dispatch"
    """Sent to its destination when due, as the timeout manager does; not a choice for hand-over."""


class BatchState(StrEnum):
    """Where a batch is; a row has its batch's state unless it carries one of ``RowState``."""

    CLAIMING = "claiming"
    """Of a document store only: in the ledger, and not yet surely ours."""
    CLAIMED = "claimed"
    PARKED = "parked"
    """Rows of one destination that takes no messages now; they belong to no lane meanwhile."""
    STAGING = "staging"
    COMMITTING = "committing"
    PUBLISHING = "publishing"
    HANDED_OVER = "handed_over"
    DISPATCHED = "dispatched"
    DOUBTFUL = "doubtful"
    RELEASING = "releasing"
    """Of a document store only: on its way back, and not yet surely there."""
    RELEASED = "released"


class RowState(StrEnum):
    """The states in which a row may differ from its batch."""

    QUARANTINED = "quarantined"
    DISPATCHED = "dispatched"
    RELEASED = "released"
    RECALLED = "recalled"
    DISCARDED = "discarded"
    """Was in quarantine, and is never sent, by the word of an operator."""


class Event(StrEnum):
    """What happens to a batch."""

    ALL_TAKEN = "all_taken"
    BEGIN_STAGING = "begin_staging"
    BEGIN_PUBLISHING = "begin_publishing"
    BEGIN_COMMIT = "begin_commit"
    RECEIPT = "receipt"
    ALL_SETTLED = "all_settled"
    ALL_DISPATCHED = "all_dispatched"
    ABANDON = "abandon"
    ALL_REDELIVERED = "all_redelivered"
    GIVE_UP = "give_up"
    BEGIN_RELEASE = "begin_release"
    RELEASE = "release"
    WRITE_OFF = "write_off"
    UNPARK = "unpark"


_S, _E = BatchState, Event

NEXT: Final[Mapping[tuple[BatchState, Event], BatchState]] = {
    # the store gave up what is in the batch, and keeps evidence of that until this is recorded
    (_S.CLAIMING, _E.ALL_TAKEN): _S.CLAIMED,
    # attempt + 1 is committed with these two, before the first publish of every attempt
    (_S.CLAIMED, _E.BEGIN_STAGING): _S.STAGING,
    (_S.CLAIMED, _E.BEGIN_PUBLISHING): _S.PUBLISHING,
    (_S.PUBLISHING, _E.BEGIN_PUBLISHING): _S.PUBLISHING,  # after a crash: the same ids once more
    # every message was confirmed, and is held; only after this may the nack be sent
    (_S.STAGING, _E.BEGIN_COMMIT): _S.COMMITTING,
    (_S.COMMITTING, _E.RECEIPT): _S.HANDED_OVER,  # the receipt, never an empty queue
    (_S.PUBLISHING, _E.ALL_SETTLED): _S.HANDED_OVER,
    (_S.PUBLISHING, _E.ALL_DISPATCHED): _S.DISPATCHED,  # each sent and confirmed, or given back
    # no nack can have been sent before COMMITTING, so nothing has left the staging queue
    (_S.STAGING, _E.ABANDON): _S.CLAIMED,
    # the whole attempt came back: the nack never happened
    (_S.COMMITTING, _E.ALL_REDELIVERED): _S.CLAIMED,
    (_S.COMMITTING, _E.GIVE_UP): _S.DOUBTFUL,
    (_S.PUBLISHING, _E.GIVE_UP): _S.DOUBTFUL,
    # nothing of it is anywhere but in the ledger: what was not taken is moved into it row by row
    (_S.PARKED, _E.UNPARK): _S.CLAIMED,
    (_S.CLAIMED, _E.RELEASE): _S.RELEASED,  # one transaction over store and ledger
    # of a document store: recorded before the first row goes back, and after the last is there
    (_S.CLAIMED, _E.BEGIN_RELEASE): _S.RELEASING,
    (_S.RELEASING, _E.RELEASE): _S.RELEASED,
    # an operator looked and decided (`migrator db resolve`)
    (_S.DOUBTFUL, _E.RECEIPT): _S.HANDED_OVER,
    (_S.DOUBTFUL, _E.ABANDON): _S.CLAIMED,
    # late, but positive: what nobody could tell has come back whole
    (_S.DOUBTFUL, _E.ALL_REDELIVERED): _S.CLAIMED,
    # an operator, of a store that is gone and can be asked no more (`migrator db resolve`):
    # ours after all, or none of ours; half claimed and ours is ALL_TAKEN, as if it had answered
    (_S.RELEASING, _E.ABANDON): _S.CLAIMED,
    (_S.CLAIMING, _E.WRITE_OFF): _S.RELEASED,
    (_S.RELEASING, _E.WRITE_OFF): _S.RELEASED,
}

RAISES_ATTEMPT: Final = frozenset(
    {
        Event.BEGIN_STAGING,
        Event.BEGIN_PUBLISHING,
        Event.ABANDON,
        Event.ALL_REDELIVERED,
        Event.BEGIN_RELEASE,
        Event.RELEASE,
        Event.WRITE_OFF,
        Event.UNPARK,
    }
)
"""Events that raise the attempt: what an older attempt left in a staging queue is waste at once."""

HALF_DONE: Final = frozenset({_S.CLAIMING, _S.RELEASING})
"""States in which a document store has to be asked what it gave up, or took back, so far."""

OPEN: Final = frozenset({_S.CLAIMED, _S.STAGING, _S.COMMITTING, _S.PUBLISHING, *HALF_DONE})
"""States in which a batch still needs its lane's owner."""


def next_state(state: BatchState, event: Event) -> BatchState:
    """Return the state after *event*.

    Raises:
        IllegalTransition: The table has no such row. Nothing was changed.
    """
    try:
        return NEXT[state, event]
    except KeyError:
        raise IllegalTransition(f"a batch in state {state} cannot have event {event}") from None
