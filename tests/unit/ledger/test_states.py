"""Laws of the table of states, whatever rows it has."""

from __future__ import annotations

import pytest

from migrator.ledger.states import HALF_DONE, NEXT, OPEN, RAISES_ATTEMPT, BatchState, Event

S, E = BatchState, Event


def leading_to(*states: BatchState) -> set[tuple[BatchState, Event]]:
    """Return the steps after which a batch is in one of *states*."""
    return {pair for pair, after in NEXT.items() if after in states}


def test_a_nack_may_only_be_sent_after_committing_was_recorded() -> None:
    """Committing is entered from staging alone, and left for handed over by a receipt alone."""
    assert leading_to(S.COMMITTING) == {(S.STAGING, E.BEGIN_COMMIT)}
    assert leading_to(S.HANDED_OVER) == {
        (S.COMMITTING, E.RECEIPT),
        (S.DOUBTFUL, E.RECEIPT),
        (S.PUBLISHING, E.ALL_SETTLED),
    }


def test_rows_go_back_only_when_nothing_can_be_at_the_broker() -> None:
    """Released is entered from claimed alone, unless the store is gone and all is written off."""
    written_off = {(state, E.WRITE_OFF) for state in HALF_DONE}
    put_back = {(S.CLAIMED, E.RELEASE), (S.RELEASING, E.RELEASE)}
    assert leading_to(S.RELEASED) == put_back | written_off
    assert leading_to(S.RELEASING) == {(S.CLAIMED, E.BEGIN_RELEASE)}


def test_what_is_half_claimed_can_only_become_claimed_or_be_written_off() -> None:
    """Nothing is published, and nothing put back, before it is known what the store gave up."""
    after = {after for (state, _), after in NEXT.items() if state is S.CLAIMING}
    assert after == {S.CLAIMED, S.RELEASED}
    assert not leading_to(S.CLAIMING)


def test_every_attempt_has_a_number_of_its_own_and_an_abandoned_one_is_waste_at_once() -> None:
    """So leftovers can be told apart; only what was never sent keeps its number."""
    raising = leading_to(S.STAGING, S.PUBLISHING, S.CLAIMED, S.RELEASED)
    assert {event for _, event in raising} - {E.ALL_TAKEN} <= RAISES_ATTEMPT


@pytest.mark.parametrize("state", sorted(OPEN))
def test_an_open_batch_can_still_end_both_ways(state: BatchState) -> None:
    """Handed over, or back in the store."""
    reachable = {state}
    while more := {after for (before, _), after in NEXT.items() if before in reachable} - reachable:
        reachable |= more
    assert reachable >= {S.HANDED_OVER, S.RELEASED}
