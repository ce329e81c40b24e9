"""Tests of ``migrator.verify.report`` and ``rules``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from migrator.delays.routing import DelaysVersion, levels_passed
from migrator.ledger.states import BatchState, RowState
from migrator.nservicebus.timeouts import BatchId, EndpointName
from migrator.verify.report import SLACK, Discrepancy, EndpointBalance, Verdict, Verification
from migrator.verify.rules import Place, can_be_in, is_another_copy

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
V1 = DelaysVersion.V1
SALES = EndpointName("Sales")


def verification(
    *, counts: dict[Discrepancy, int] | None = None, doubtful: int = 0, not_checked: str = ""
) -> Verification:
    """Return an answer about nothing."""
    return Verification(
        taken_at=NOW,
        endpoints=(),
        destinations=(),
        levels=(),
        rows_checked=0,
        waiting=0,
        discrepancies=(),
        counts=counts or {},
        doubtful=tuple(BatchId(n) for n in range(doubtful)),
        not_checked=(not_checked,) if not_checked else (),
    )


def balance(size: int, purged: int, **rows: int) -> EndpointBalance:
    """Return the books of one endpoint."""
    return EndpointBalance(
        endpoint=SALES, source="s", in_store=0, claimed=size, purged=purged, rows=rows
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (verification(), Verdict.BALANCED),
        (verification(counts={Discrepancy.TWICE: 0}), Verdict.BALANCED),
        (verification(doubtful=1), Verdict.DOUBTFUL),
        (verification(counts={Discrepancy.TWICE: 1}), Verdict.DISCREPANT),
        (verification(counts={Discrepancy.TWICE: 1}, doubtful=1), Verdict.DISCREPANT),
    ],
)
def test_the_worst_decides(found: Verification, verdict: Verdict) -> None:
    """A discrepancy outweighs doubt, and doubt outweighs agreement."""
    assert found.verdict is verdict


def test_what_nobody_looked_at_is_told() -> None:
    """It changes no verdict, but the answer is not complete."""
    assert verification().is_complete
    assert not verification(not_checked="level 21").is_complete
    assert verification(not_checked="level 21").verdict is Verdict.BALANCED


def test_every_claimed_row_is_accounted_for() -> None:
    """Whatever is in no state, and was not purged, is missing; too many is negative."""
    whole = balance(10, 2, claimed=1, committing=2, handed_over=4, quarantined=1)
    assert (whole.in_flight, whole.unaccounted) == (3, 0)
    assert whole.count(BatchState.HANDED_OVER) == 4
    assert whole.count(RowState.RECALLED) == 0
    assert balance(10, 2, handed_over=7).unaccounted == 1
    assert balance(10, 2, handed_over=9).unaccounted == -1


def test_in_flight_leaves_out_what_nobody_can_tell() -> None:
    """Doubtful rows have a column of their own."""
    assert balance(3, 0, doubtful=3).in_flight == 0


@pytest.mark.parametrize(
    ("first", "second", "due_in_s", "is_another"),
    [
        # 24 s are 16 s in level 4, then 8 s in level 3
        (Place(level=4, delay_s=24), Place(level=3, delay_s=24), 8, False),
        (Place(level=4, delay_s=24), Place(level=3, delay_s=24), 3, False),
        (Place(level=4, delay_s=24), Place(level=3, delay_s=24), 14, True),
        (Place(level=4, delay_s=24), Place(level=4, delay_s=24), 0, True),
        (Place(level=4, delay_s=24), Place(level=3, delay_s=25), 0, True),
        (Place(level=4, delay_s=24, delays=V1), Place(level=3, delay_s=24), 8, True),
        (Place(level=4, delay_s=24, delays=V1), Place(level=3, delay_s=24, delays=V1), 8, False),
        # the slack is the benefit of the doubt
        (Place(level=4, delay_s=24), Place(level=3, delay_s=24), 13, False),
    ],
)
def test_one_message_may_be_seen_twice(
    first: Place, second: Place, due_in_s: int, is_another: bool
) -> None:
    """In a level, and in a lower one when its time in the first is over; else there are two."""
    due_at = NOW + timedelta(seconds=due_in_s)
    assert is_another_copy(first, second, due_at=due_at, second_seen_at=NOW) is is_another


@pytest.mark.parametrize("delay_s", [1, 6, 24, 1000, 2**20 + 5, 2**28 - 1])
def test_a_message_can_be_where_it_is(delay_s: int) -> None:
    """At every moment of its way, its level is one of those that it can be in."""
    left_s = delay_s
    for level in levels_passed(delay_s):
        for due_in_s in (left_s, left_s - 2**level + 1):
            assert can_be_in(level, due_in=timedelta(seconds=due_in_s))
        left_s -= 2**level


def test_a_message_cannot_be_far_below() -> None:
    """Levels whose time, and that of all below, is shorter than what is left are left out."""
    assert not can_be_in(3, due_in=timedelta(seconds=17) + SLACK)
    assert can_be_in(4, due_in=timedelta(seconds=17) + SLACK)
