"""What the ledger keeps for dispatchers, over every database."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from migrator.errors import LeaseLost
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Quarantine, Reason
from migrator.nservicebus.timeouts import FIRST_DISPATCHER_LANE, RunId, TimeoutId
from tests.contract.site import LONG, NOW, LegacyRow, Site, hours, timeout_id

SALES = StoreEndpoint(name="Sales", source="public.Sales_TimeoutData")  # type: ignore[arg-type]
BILLING = StoreEndpoint(name="Billing", source="public.Billing_TimeoutData")  # type: ignore[arg-type]
LONG_AGO = timedelta(seconds=-1)
"""Everything is older than this."""


# ── lanes ───────────────────────────────────────────────────────────────────────────────────


def test_each_endpoint_has_one_dispatchers_lane_for_ever(site: Site) -> None:
    """The lane is made once, in the order of asking, and remembered by every process."""
    assert site.leases.dispatcher_lane(SALES) == FIRST_DISPATCHER_LANE
    assert site.leases.dispatcher_lane(BILLING) == FIRST_DISPATCHER_LANE + 1
    other = site.second()
    assert other.leases.dispatcher_lane(SALES) == FIRST_DISPATCHER_LANE
    assert other.leases.dispatcher_lane(BILLING) == FIRST_DISPATCHER_LANE + 1
    other.engine.dispose()


def test_a_lane_somebody_took_by_its_number_is_not_given_away(site: Site) -> None:
    """Lanes that exist already serve nobody, and are skipped; so are gaps below the first."""
    site.lease(0)
    site.lease(FIRST_DISPATCHER_LANE)
    assert site.leases.dispatcher_lane(SALES) == FIRST_DISPATCHER_LANE + 1


def test_a_dispatchers_lane_is_a_lease_like_any_other(site: Site) -> None:
    """One owner at a time, who adopts the open batches; giving it back keeps whose it is."""
    lane = site.leases.dispatcher_lane(SALES)
    lease = site.lease(lane, "one")
    assert site.leases.acquire(lane, "two", LONG) is None
    batch = site.claim(site.create(hours(1)), lease, mode=Mode.DISPATCH).batch
    site.leases.surrender(lease)
    assert site.leases.dispatcher_lane(SALES) == lane
    assert site.batches.open_batches(site.lease(lane, "two")) == [batch]


# ── forgetting ──────────────────────────────────────────────────────────────────────────────


def _dispatched(
    site: Site, endpoint: StoreEndpoint, lease: Lease, run: RunId, *, bad: bool = False
) -> Batch:
    """Claim three rows at most and record them as sent; with *bad*, quarantine the first."""
    batch = site.claim(endpoint, lease, run=run, mode=Mode.DISPATCH, max_rows=3).batch
    if bad:
        finding = Quarantine(
            row_index=0,
            timeout_id=TimeoutId(timeout_id(0)),
            reason=Reason.NO_DESTINATION,
            detail="",
        )
        site.batches.quarantine(batch, [finding], lease)
    batch = site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    return site.batches.advance(batch, Event.ALL_DISPATCHED, lease)


def _batches(site: Site) -> list[tuple[int, int, int]]:
    """Return run, size and bytes of every batch, by id."""
    table = site.tables.batch.c
    with site.engine.connect() as connection:
        rows = connection.execute(site.tables.batch.select().order_by(table.id)).all()
    return [(row.run_id, row.size, row.body_bytes) for row in rows]


def _purged(site: Site) -> list[int]:
    """Return how many rows of every batch were forgotten, by id."""
    table = site.tables.batch.c
    with site.engine.connect() as connection:
        return list(connection.scalars(select(table.purged).order_by(table.id)))


def test_folding_forgets_rows_and_keeps_the_progress(site: Site) -> None:
    """Per run one batch is left with what all of them had; the public view shows the same."""
    endpoint, lease = site.create(hours(12)), site.lease(1000)
    runs = [site.run(endpoint), site.run(endpoint)]
    for run in (runs[0], runs[0], runs[1], runs[1]):
        _dispatched(site, endpoint, lease, run)
    before = site.states()
    assert before == {"dispatched": 12}
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 12
    assert site.ledger_rows() == []
    assert site.states() == before
    assert _batches(site) == [(runs[0], 6, 42), (runs[1], 6, 42)]
    assert _purged(site) == [6, 6]
    assert [run.claimed for run in site.books.runs()] == [6, 6]


def test_a_folded_batch_takes_in_the_next_ones(site: Site) -> None:
    """However long a run lasts, its past is one batch."""
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    for _ in range(3):
        _dispatched(site, endpoint, lease, run)
        assert site.dispatched.prune(lease, older_than=LONG_AGO) == 3
        assert site.dispatched.prune(lease, older_than=LONG_AGO) == 0
    assert _batches(site) == [(run, 9, 63)]
    with site.engine.connect() as connection:
        row = connection.execute(site.tables.batch.select()).one()
    assert (row.first_due, row.last_due) == (NOW + timedelta(hours=1), NOW + timedelta(hours=9))


def test_what_was_dispatched_just_now_is_remembered(site: Site) -> None:
    """Only what is older than asked for is forgotten, by the database's clock."""
    endpoint, lease = site.create(hours(3)), site.lease(1000)
    _dispatched(site, endpoint, lease, site.run(endpoint))
    assert site.dispatched.prune(lease, older_than=timedelta(minutes=5)) == 0
    assert len(site.ledger_rows()) == 3


def test_rows_in_quarantine_stay_with_their_batch(site: Site) -> None:
    """Folding around them keeps the counts, too, and they can still be put back."""
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    _, _, last = [_dispatched(site, endpoint, lease, run, bad=n == 1) for n in range(3)]
    before = site.states()
    assert before == {"dispatched": 8, "quarantined": 1}
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 8
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 0
    assert site.states() == before
    assert _batches(site) == [(run, 6, 42), (run, 3, 21)]
    assert _purged(site) == [6, 2]
    assert site.batches.find(last.id) is None
    assert site.claims.release_quarantined(endpoint) == 1
    assert site.states() == {"dispatched": 8, "released": 1}


def test_only_dispatched_batches_of_the_own_lane_are_folded(site: Site) -> None:
    """Open batches, handed-over ones, and those of other dispatchers stay as they are."""
    endpoint = site.create(hours(12))
    lease, other = site.lease(1000), site.lease(1001, "other")
    run = site.run(endpoint)
    _dispatched(site, endpoint, other, run)
    _dispatched(site, endpoint, lease, run)
    handed = site.claim(endpoint, lease, run=run, max_rows=3).batch
    for event in (Event.BEGIN_PUBLISHING, Event.ALL_SETTLED):
        handed = site.batches.advance(handed, event, lease)
    site.claim(endpoint, lease, run=run, mode=Mode.DISPATCH)
    before = site.states()
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 3
    assert site.states() == before
    assert len(site.ledger_rows()) == 9
    assert len(_batches(site)) == 4


def test_a_batch_with_nothing_left_is_folded_away(site: Site) -> None:
    """Of which every row was given back, it only counts zero."""
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    _dispatched(site, endpoint, lease, run)
    batch = site.claim(endpoint, lease, run=run, mode=Mode.DISPATCH, max_rows=3).batch
    batch = site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    batch = site.claims.give_back(batch, [0, 1, 2], lease)
    site.batches.advance(batch, Event.ALL_DISPATCHED, lease)
    _dispatched(site, endpoint, lease, run)
    assert [size for _, size, _ in _batches(site)] == [3, 0, 3]
    assert site.dispatched.prune(lease, older_than=LONG_AGO) == 6
    assert [size for _, size, _ in _batches(site)] == [6]
    assert len(site.legacy_rows()) == 3


def test_folding_is_bounded_and_goes_on_where_it_was(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long absence is worked off in small transactions."""
    monkeypatch.setattr("migrator.dispatcher.ledger._PRUNE_BATCHES", 2)
    monkeypatch.setattr("migrator.dispatcher.ledger._PRUNE_ROWS", 4)
    endpoint, lease = site.create(hours(9)), site.lease(1000)
    run = site.run(endpoint)
    for _ in range(3):
        _dispatched(site, endpoint, lease, run)
    found = [site.dispatched.prune(lease, older_than=LONG_AGO) for _ in range(4)]
    assert found == [3, 3, 3, 0]
    assert _batches(site) == [(run, 9, 63)]
    assert site.states() == {"dispatched": 9}


def test_a_former_owner_forgets_nothing(site: Site) -> None:
    """Whoever has the lane now decides."""
    endpoint, lease = site.create(hours(3)), site.lease(1000)
    _dispatched(site, endpoint, lease, site.run(endpoint))
    stale = replace(lease, token=lease.token - 1)
    with pytest.raises(LeaseLost):
        site.dispatched.prune(stale, older_than=LONG_AGO)
    assert len(site.ledger_rows()) == 3


def test_a_dispatched_row_is_not_claimed_again_until_it_is_forgotten(site: Site) -> None:
    """The same id in the store again is somebody's restored backup, or a redelivered message."""
    endpoint, lease = site.create(hours(3)), site.lease(1000)
    batch = _dispatched(site, endpoint, lease, site.run(endpoint))
    assert batch.state is BatchState.DISPATCHED
    site.insert([LegacyRow(id=timeout_id(0))])
    request = site.request(endpoint, lease, mode=Mode.DISPATCH)
    assert site.claims.claim(request) is None
    site.dispatched.prune(lease, older_than=LONG_AGO)
    assert site.claim(endpoint, lease, mode=Mode.DISPATCH).batch.size == 1
