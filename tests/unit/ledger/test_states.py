"""Tests of ``migrator.ledger.states``."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import IllegalTransition
from migrator.ledger.states import (
    HALF_DONE,
    NEXT,
    OPEN,
    RAISES_ATTEMPT,
    BatchState,
    Event,
    next_state,
)

PAIRS = list(product(BatchState, Event))


@pytest.mark.parametrize("pair", NEXT, ids=lambda p: f"{p[0]}-{p[1]}")
def test_the_table_is_the_rule(pair: tuple[BatchState, Event]) -> None:
    """Every row of the table is a step."""
    assert next_state(*pair) is NEXT[pair]


@pytest.mark.parametrize(
    "pair", [p for p in PAIRS if p not in NEXT], ids=lambda p: f"{p[0]}-{p[1]}"
)
def test_there_is_no_other_step(pair: tuple[BatchState, Event]) -> None:
    """Every pair that is not in the table raises and names both."""
    state, event = pair
    with pytest.raises(IllegalTransition, match=f"{state} cannot have {event}"):
        next_state(state, event)


def test_a_nack_may_only_be_sent_after_committing_was_recorded() -> None:
    """Committing is entered from staged alone, and left for handed over by a receipt alone."""
    assert [pair for pair, after in NEXT.items() if after is BatchState.COMMITTING] == [
        (BatchState.STAGED, Event.BEGIN_COMMIT)
    ]
    to_handed_over = {p for p, after in NEXT.items() if after is BatchState.HANDED_OVER}
    assert to_handed_over == {
        (BatchState.COMMITTING, Event.RECEIPT),
        (BatchState.DOUBTFUL, Event.RECEIPT),
        (BatchState.PUBLISHING, Event.ALL_SETTLED),
    }


def test_rows_go_back_only_when_nothing_can_be_at_the_broker() -> None:
    """Released is entered from claimed alone, at once or by way of releasing.

    Unless the store is gone, and an operator gives up what was not passed on either.
    """
    before = {pair for pair, after in NEXT.items() if after is BatchState.RELEASED}
    written_off = {pair for pair in before if pair[1] is Event.WRITE_OFF}
    assert {state for state, _ in written_off} == HALF_DONE
    before -= written_off
    assert before == {
        (BatchState.CLAIMED, Event.RELEASE),
        (BatchState.RELEASING, Event.RELEASE),
    }
    assert [pair for pair, after in NEXT.items() if after is BatchState.RELEASING] == [
        (BatchState.CLAIMED, Event.BEGIN_RELEASE)
    ]


def test_what_is_half_claimed_can_only_become_claimed_or_be_written_off() -> None:
    """Nothing is published, and nothing put back, before it is known what the store gave up."""
    assert {after for (state, _), after in NEXT.items() if state is BatchState.CLAIMING} == {
        BatchState.CLAIMED,
        BatchState.RELEASED,
    }
    assert BatchState.CLAIMING not in NEXT.values()


def test_every_pass_begins_with_a_raised_attempt() -> None:
    """What leads to publishing raises the attempt, so that leftovers can be told apart."""
    begins = {
        e for (_, e), after in NEXT.items() if after in (BatchState.STAGING, BatchState.PUBLISHING)
    }
    assert begins <= RAISES_ATTEMPT


@given(events=st.lists(st.sampled_from(Event), max_size=30))
def test_every_open_batch_can_still_end(events: list[Event]) -> None:
    """From wherever events lead, an open batch has a way to an end."""
    state = BatchState.CLAIMING
    for event in events:
        state = NEXT.get((state, event), state)
    reachable, frontier = {state}, [state]
    while frontier:
        here = frontier.pop()
        after = {NEXT[here, event] for event in Event if (here, event) in NEXT} - reachable
        reachable |= after
        frontier += after
    ends = {BatchState.HANDED_OVER, BatchState.RELEASED}
    assert state not in OPEN or ends <= reachable


def test_an_abandoned_pass_is_waste_at_once() -> None:
    """Whatever takes a batch back to claimed or to the store raises the attempt, too."""
    back = {
        e for (_, e), after in NEXT.items() if after in (BatchState.CLAIMED, BatchState.RELEASED)
    }
    assert back - {Event.ALL_TAKEN} <= RAISES_ATTEMPT  # nothing was passed on before it
