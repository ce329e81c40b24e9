"""Restoring handed-over rows, over every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from migrator.delays.tagged import TaggedMessage
from migrator.errors import LeaseLost
from migrator.handover.lane_recovery import LaneRecovery
from migrator.ledger.states import Event, Mode, RowState
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName, Lane, RunId, TimeoutId
from migrator.recall.queries import forecast
from migrator.recall.restore import Recalls, SqlRecalls
from migrator.recall.rules import RecallOutcome, Scope
from tests.contract.any_site import LONG, NOW, AnySite, hours, timeout_id
from tests.contract.site import Site
from tests.support.tagged import tagged_message

pytestmark = pytest.mark.every_store(slow=True)

_recalls: type[Recalls] = SqlRecalls

ALL = Scope()


def handed_over(site: AnySite, count: int = 4) -> Lease:
    """Hand over *count* rows, due from one hour on, and return the recall's lease."""
    site.handed_over(site.create(hours(count)), site.lease())
    return site.lease(lane=999)


def tagged(site: AnySite, number: int, *, extra_bytes: int = 0) -> TaggedMessage:
    """Return what a message of a row would claim to be."""
    found = next(each for each in site.tagged_messages() if each.timeout_id == timeout_id(number))
    return found._replace(body_bytes=found.body_bytes + extra_bytes)


@pytest.mark.every_store
def test_a_row_comes_back_as_it_was(site: AnySite) -> None:
    """It is in its table and marked; the others stay handed over.

    A crash between commit and acknowledgement leaves the message in its level: a leftover.
    """
    site.create()
    lease = handed_over(site)
    found = tagged(site, 1)
    for outcome in (RecallOutcome.RESTORED, RecallOutcome.LEFTOVER):
        outcomes = site.recalls().restore([found], ALL, lease, not_before=NOW)
        assert outcomes == {found: outcome}
    assert site.legacy_rows() == [hours(4)[1]]
    states = [row.state for row in site.ledger_rows() if row.store_id == timeout_id(1)]
    assert states == [RowState.RECALLED]


def test_what_is_not_ours_not_meant_or_too_near_stays(site: AnySite) -> None:
    """Nothing of it is changed."""
    lease = handed_over(site)
    stranger = tagged_message(10**6, 0, timeout_id(0), 7)
    forged = tagged(site, 0, extra_bytes=1)
    # a ledger that was restored from a backup gives the same numbers to other rows
    ours = tagged(site, 0)
    moved = ours._replace(timeout_id=TimeoutId(timeout_id(1)))
    near, other = tagged(site, 1), tagged(site, 3)
    scope = Scope(due_until=NOW + timedelta(hours=3, minutes=30))
    outcomes = site.recalls().restore(
        [stranger, forged, moved, near, other],
        scope,
        lease,
        not_before=NOW + timedelta(hours=2, minutes=30),
    )
    assert outcomes == {
        stranger: RecallOutcome.FOREIGN,
        forged: RecallOutcome.DIFFERENT,
        moved: RecallOutcome.DIFFERENT,
        near: RecallOutcome.TOO_NEAR,
        other: RecallOutcome.OUT_OF_SCOPE,
    }
    assert site.legacy_rows() == []


def test_the_only_copy_of_a_doubtful_timeout_stays(site: AnySite) -> None:
    """Although an earlier row with its id was recalled: nobody can tell where that one is."""
    lease = handed_over(site, 1)
    first = tagged(site, 0)
    site.recalls().restore([first], ALL, lease, not_before=NOW)
    site.leases.release(lease)
    owner = site.lease()
    endpoint = StoreEndpoint(name=EndpointName(site.endpoint_name), source=site.source)
    batch = site.claim(endpoint, owner, mode=Mode.DIRECT).batch
    site.advance(batch, owner, Event.BEGIN_PUBLISHING, Event.GIVE_UP)
    second = first._replace(batch=batch.id)
    lease = site.lease(lane=999)
    outcomes = site.recalls().restore([first, second], ALL, lease, not_before=NOW)
    assert outcomes == {first: RecallOutcome.LEFTOVER, second: RecallOutcome.UNSETTLED}


@pytest.mark.every_store
def test_an_id_that_is_in_its_table_again_is_left_to_a_person(site: AnySite) -> None:
    """Neither row is lost; the others come back."""
    lease = handed_over(site)
    site.insert([hours(1)[0]])
    taken, free = tagged(site, 0), tagged(site, 1)
    outcomes = site.recalls().restore([taken, free], ALL, lease, not_before=NOW)
    assert outcomes == {taken: RecallOutcome.TAKEN, free: RecallOutcome.RESTORED}
    assert len(site.legacy_rows()) == 2


@pytest.mark.own_table
def test_a_row_that_its_table_refuses_stays_with_the_broker(site: Site) -> None:
    """The others come back, and it does as well once nothing refuses it."""
    lease = handed_over(site)
    site.execute(f'CREATE UNIQUE INDEX one_of_a_kind ON {site.quoted()} ("Destination")')
    found = [tagged(site, number) for number in range(2)]
    recalls = site.recalls()
    outcomes = [recalls.restore([each], ALL, lease, not_before=NOW)[each] for each in found]
    assert outcomes == [RecallOutcome.RESTORED, RecallOutcome.REFUSED]
    assert len(site.legacy_rows()) == 1
    site.manager.remove(timeout_id(0))
    assert site.recalls().restore([found[1]], ALL, lease, not_before=NOW) == {
        found[1]: RecallOutcome.RESTORED
    }


def test_without_the_lease_nothing_is_restored(site: AnySite) -> None:
    """Somebody else recalls."""
    lease = handed_over(site)
    found = tagged(site, 0)
    site.leases.release(lease)
    with pytest.raises(LeaseLost):
        site.recalls().restore([found], ALL, lease, not_before=NOW)
    assert site.legacy_rows() == []


def test_no_lane_is_taken_while_somebody_recalls(site: AnySite) -> None:
    """Dispatchers go on; hand-over waits."""
    site.create()
    lease = site.lease(lane=999, owner="recall")
    term = timedelta(seconds=20)
    assert site.leases.acquire(Lane(3), "other", term) is None
    assert site.leases.acquire(Lane(1000), "other", term) is not None
    site.leases.release(lease)
    assert site.leases.acquire(Lane(3), "other", term) is not None


def expected_of(site: AnySite, hours_on: float, *, scope: Scope = ALL) -> tuple[int, int, int]:
    """Return the counts that are foretold *hours_on* after ``NOW``, with an hour's margin."""
    now = NOW + timedelta(hours=hours_on)
    by_rows = replace(scope, due_from=NOW)
    found, read = (
        forecast(site.engine, site.tables, each, now=now, not_before=now + timedelta(hours=1))
        for each in (scope, by_rows)
    )
    assert (found.is_exact, read.is_exact) == (True, True)
    assert replace(found, possible_until=None) == replace(read, possible_until=None)
    if found.possible_until is not None and read.possible_until is not None:
        assert found.possible_until <= read.possible_until
    return found.in_levels, found.too_near, found.left


def test_a_forecast_is_the_same_by_batches_and_by_rows(site: AnySite) -> None:
    """Whether a batch is due later, partly, or as a whole; what came back is in none of them."""
    lease = handed_over(site)
    assert [expected_of(site, at) for at in (-5, 1.5, 9)] == [(4, 0, 0), (2, 1, 1), (0, 0, 4)]
    now = NOW + timedelta(hours=1, minutes=30)
    found = forecast(site.engine, site.tables, ALL, now=now, not_before=now + timedelta(hours=1))
    assert found.possible_until == NOW + timedelta(hours=2)
    assert expected_of(site, -5, scope=Scope(run=RunId(10**9))) == (0, 0, 0)
    site.recalls().restore([tagged(site, 0)], ALL, lease, not_before=NOW)
    assert [expected_of(site, at)[0] for at in (-5, 1.5)] == [3, 2]
    assert expected_of(site, 9) == (0, 0, 3)


def test_a_forecast_without_rows_promises_nothing(site: AnySite) -> None:
    """A batch that came back as a whole may have left copies; after its time nothing is found."""
    lease = handed_over(site)
    found = [tagged(site, number) for number in range(4)]
    site.recalls().restore(found, ALL, lease, not_before=NOW)
    assert expected_of(site, -5) == (0, 0, 0)
    empty = forecast(site.engine, site.tables, ALL, now=NOW, not_before=NOW)
    assert (empty.possible_until, empty.may_find, empty.was_handed_over) == (None, True, False)
    assert not forecast(
        site.engine, site.tables, ALL, now=NOW + timedelta(days=1), not_before=NOW
    ).may_find


def test_too_many_rows_are_counted_by_their_batches(site: AnySite) -> None:
    """As if they were evenly spread; it says so, and promises no time."""
    handed_over(site, 10)
    now = NOW + timedelta(hours=5, minutes=30)
    margin = timedelta(hours=1)
    about = forecast(site.engine, site.tables, ALL, now=now, not_before=now + margin, exact_rows=9)
    assert (about.in_levels, about.too_near, about.left) == (4, 1, 5)
    assert (about.is_exact, about.possible_until) == (False, now)


def test_copies_of_a_lane_that_somebody_works_on_are_not_left(site: AnySite) -> None:
    """Its owner takes care of them, so nobody is told that nothing sends them."""
    site.lease(0, "other")
    nobody: Any = None
    recovery = LaneRecovery(
        batches=site.batches,
        leases=site.leases,
        lease_duration=LONG,
        clock=nobody,
        receipt_deadline_s=1,
        links=nobody,
        staged_messages=lambda: {Lane(0): 5},
        staged_for_others=set,
        publishing=nobody,
    )
    assert recovery.recover([Lane(0)], []) == 0
