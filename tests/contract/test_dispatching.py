"""What the ledger keeps for dispatchers, over every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from migrator.errors import LeaseLost
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import FIRST_DISPATCHER_LANE, EndpointName
from tests.contract.any_site import held_destination
from tests.contract.site import NOW, LegacyRow, Site, hours, timeout_id

SALES = StoreEndpoint(name="Sales", source="public.Sales_TimeoutData")  # type: ignore[arg-type]
BILLING = StoreEndpoint(name="Billing", source="public.Billing_TimeoutData")  # type: ignore[arg-type]
LONG_AGO = timedelta(seconds=-1)
"""Everything is older than this."""


# ── lanes ───────────────────────────────────────────────────────────────────────────────────


def test_each_endpoint_has_one_dispatchers_lane_for_ever(site: Site) -> None:
    """Made once, in the order of asking; a lane that somebody took by its number is skipped."""
    assert site.leases.dispatcher_lane(SALES) == FIRST_DISPATCHER_LANE
    assert site.leases.dispatcher_lane(BILLING) == FIRST_DISPATCHER_LANE + 1
    site.lease(FIRST_DISPATCHER_LANE + 2)
    other = site.second()
    assert other.leases.dispatcher_lane(SALES) == FIRST_DISPATCHER_LANE
    assert other.leases.dispatcher_lane(BILLING) == FIRST_DISPATCHER_LANE + 1
    shipping = replace(SALES, name=EndpointName("Shipping"), source="public.Shipping_TimeoutData")
    assert other.leases.dispatcher_lane(shipping) == FIRST_DISPATCHER_LANE + 3
    other.engine.dispose()


# ── forgetting ──────────────────────────────────────────────────────────────────────────────


def _batches(site: Site) -> list[tuple[int, int, int, int]]:
    """Return run, size, bytes and forgotten rows of every batch, by id."""
    table = site.tables.batch.c
    with site.engine.connect() as connection:
        rows = connection.execute(site.tables.batch.select().order_by(table.id)).all()
    return [(row.run_id, row.size, row.body_bytes, row.purged) for row in rows]


def test_folding_forgets_rows_and_keeps_the_progress(site: Site) -> None:
    """Per run one batch is left with what all of them had; the public view shows the same."""
    endpoint, lease = site.create(hours(12)), site.lease(1000)
    runs = [site.run(endpoint), site.run(endpoint)]
    for run in (runs[0], runs[0], runs[1], runs[1]):
        site.dispatched_batch(endpoint, lease, run=run, max_rows=3)
    before = site.states()
    assert before == {"dispatched": 12}
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 12
    assert site.ledger_rows() == []
    assert site.states() == before
    assert _batches(site) == [(runs[0], 6, 42, 6), (runs[1], 6, 42, 6)]


def test_rows_in_quarantine_stay_with_their_batch(site: Site) -> None:
    """Folding around them keeps the counts, too, and they can still be put back."""
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    _, _, last = [
        site.dispatched_batch(endpoint, lease, bad=[0] * (n == 1), run=run, max_rows=3)
        for n in range(3)
    ]
    before = site.states()
    assert before == {"dispatched": 8, "quarantined": 1}
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 8
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 0
    assert site.states() == before
    assert _batches(site) == [(run, 6, 42, 6), (run, 3, 21, 2)]
    assert site.batches.find(last.id) is None
    assert site.claims.release_quarantined(endpoint) == 1
    assert site.states() == {"dispatched": 8, "released": 1}


def test_only_dispatched_batches_of_the_own_lane_are_folded(site: Site) -> None:
    """Open batches, handed-over ones, and those of other dispatchers stay as they are."""
    endpoint = site.create(hours(12))
    lease, other = site.lease(1000), site.lease(1001, "other")
    run = site.run(endpoint)
    site.dispatched_batch(endpoint, other, run=run, max_rows=3)
    site.dispatched_batch(endpoint, lease, run=run, max_rows=3)
    site.handed_over(endpoint, lease, run=run, max_rows=3)
    site.claim(endpoint, lease, run=run, mode=Mode.DISPATCH)
    before = site.states()
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 3
    assert site.states() == before
    assert len(site.ledger_rows()) == 9
    assert len(_batches(site)) == 4


def test_a_batch_with_nothing_left_is_folded_away(site: Site) -> None:
    """Of which every row was parked, it only counts zero."""
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    site.dispatched_batch(endpoint, lease, run=run, max_rows=3)
    batch = site.claim(endpoint, lease, run=run, mode=Mode.DISPATCH, max_rows=3).batch
    batch = site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    batch = site.parking.park(batch, dict.fromkeys(range(3), "Gone"), lease)
    site.batches.advance(batch, Event.ALL_DISPATCHED, lease)
    site.dispatched_batch(endpoint, lease, run=run, max_rows=3)
    assert [size for _, size, _, _ in _batches(site)] == [3, 0, 3, 3]
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 6
    assert [size for _, size, _, _ in _batches(site)] == [6, 3]
    assert site.states() == {"dispatched": 6, "parked": 3}


def test_folding_is_bounded_and_goes_on_where_it_was(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long absence is worked off in small transactions; a run's past is one batch."""
    monkeypatch.setattr("migrator.dispatcher.ledger._PRUNE_BATCHES", 2)
    monkeypatch.setattr("migrator.dispatcher.ledger._PRUNE_ROWS", 4)
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    for _ in range(3):
        site.dispatched_batch(endpoint, lease, run=run, max_rows=3)
    found = [site.dispatched.prune(lease, older_than=LONG_AGO) for _ in range(4)]
    assert found == [3, 3, 3, 0]
    assert _batches(site) == [(run, 9, 63, 9)]
    with site.engine.connect() as connection:
        row = connection.execute(site.tables.batch.select()).one()
    assert (row.first_due, row.last_due) == (NOW + timedelta(hours=1), NOW + timedelta(hours=9))
    assert site.states() == {"dispatched": 9}


def test_a_dispatched_row_is_not_claimed_again_until_it_is_forgotten(site: Site) -> None:
    """The same id in the store again is somebody's restored backup, or a redelivered message."""
    endpoint, lease = site.create(hours(3)), site.lease(1000)
    batch = site.dispatched_batch(endpoint, lease)
    assert batch.state is BatchState.DISPATCHED
    site.insert([LegacyRow(id=timeout_id(0))])
    request = site.request(endpoint, lease, mode=Mode.DISPATCH)
    assert site.claims.claim(request) is None
    assert site.dispatched.prune(lease, older_than=timedelta(minutes=5)) == 0
    with pytest.raises(LeaseLost):  # a former owner forgets nothing
        site.dispatched.prune(replace(lease, token=lease.token - 1), older_than=LONG_AGO)
    assert site.claims.claim(request) is None
    site.dispatched.prune(lease, older_than=LONG_AGO)
    assert site.claim(endpoint, lease, mode=Mode.DISPATCH).batch.size == 1


# ── destinations that cannot be reached ─────────────────────────────────────────────────────


def test_held_destinations_are_kept_per_endpoint(site: Site) -> None:
    """As they were held last; what is held or freed for one endpoint is nothing to another."""
    held = partial(held_destination, endpoint=SALES)
    odd = held("Büro 'x'; --@MACHINE", tries=7, detail="ä", since=NOW - timedelta(microseconds=1))
    later = held("A", tries=2, reason="unroutable", next_try_at=NOW + timedelta(hours=1))
    for each in (odd, held("A"), held("B"), held("A", endpoint=BILLING), later):
        site.held.hold([each])
    assert site.held.held(SALES) == [later, held("B"), odd]
    for _ in range(2):
        site.held.free(SALES, ["A", odd.destination, "never held"])
    site.held.free(SALES, [])
    assert site.held.held(SALES) == [held("B")]
    assert site.held.held(BILLING) == [held("A", endpoint=BILLING)]
