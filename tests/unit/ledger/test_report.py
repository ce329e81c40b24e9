"""Tests of ``migrator.ledger.report``."""

from __future__ import annotations

import pytest

from migrator.ledger.report import EndpointProgress
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.nservicebus.timeouts import EndpointName


def progress(**rows: int) -> EndpointProgress:
    """Return the progress of an endpoint with so many rows in each state."""
    return EndpointProgress(endpoint=EndpointName("Sales"), rows=rows)


def test_every_open_state_is_in_flight() -> None:
    """And no other."""
    assert progress(**{str(state): 1 for state in BatchState}).in_flight == len(OPEN)
    assert progress(handed_over=3, doubtful=1, quarantined=1).in_flight == 0


@pytest.mark.parametrize("state", [*BatchState, *RowState])
def test_a_state_without_rows_counts_zero(state: BatchState | RowState) -> None:
    """The ledger only tells states that have some."""
    assert progress().count(state) == 0
    assert progress(**{str(state): 4}).count(state) == 4


def test_what_people_ask_for_has_a_name() -> None:
    """Handed over, set aside, doubtful."""
    found = progress(handed_over=90, quarantined=3, doubtful=2, released=1)
    assert (found.handed_over, found.quarantined, found.doubtful) == (90, 3, 2)
