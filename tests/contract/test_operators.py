"""What operators do with the ledger: read it, retry the quarantine, settle doubts, purge."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from migrator.errors import LeaseLost, LedgerError
from migrator.ledger.queries import SqlHandOvers
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import EndpointName
from tests.contract.any_site import (
    NOW,
    AnySite,
    LegacyRow,
    held_destination,
    hours,
    timeout_id,
)
from tests.contract.site import Site

EVERYTHING = QuarantineFilter()
COMMITTING = (Event.BEGIN_STAGING, Event.BEGIN_COMMIT)
FAR = datetime(2999, 1, 1, tzinfo=UTC)


def _settled(
    site: AnySite, lease: Lease, endpoint: StoreEndpoint, *, bad: tuple[int, ...] = ()
) -> Batch:
    """Claim what is there, quarantine the rows *bad*, and hand the rest over."""
    claim = site.claim(endpoint, lease, due_until=FAR)
    for row in bad:
        reason = Reason.NO_DESTINATION if row % 2 else Reason.UNREADABLE_HEADERS
        site.set_aside(claim.batch, lease, row, reason=reason, detail=f"row {row}")
    return site.hand_over(claim, lease)


def test_progress_adds_up_to_what_was_claimed(site: Site) -> None:
    """Effective states are exclusive, and together they are all rows; of each row by a view."""
    assert site.queries.progress().oldest_open_age is None
    lease = site.lease()
    endpoint = site.create(hours(6))
    site.claim(endpoint, lease, max_rows=1)
    _settled(site, lease, endpoint, bad=(0, 1, 2))
    progress = site.queries.progress()
    (sales,) = progress.endpoints
    assert sales.rows == {"claimed": 1, "handed_over": 2, "quarantined": 3}
    assert sales.in_flight == 1
    assert [(q.reason, q.rows) for q in progress.quarantine] == [
        ("no-destination", 1),
        ("unreadable-headers", 2),
    ]
    assert progress.oldest_open_age is not None
    assert timedelta(0) <= progress.oldest_open_age < timedelta(minutes=1)
    lately = progress.taken_at - timedelta(minutes=5)
    assert site.queries.settled_since(lately) == {endpoint.name: 5}
    assert site.queries.settled_since(progress.taken_at + timedelta(minutes=5)) == {}
    ((at, count),) = site.queries.settled_lately(lately, at_most=2)
    assert (count, lately < at <= progress.taken_at) == (5, True)
    assert site.queries.settled_lately(progress.taken_at + timedelta(minutes=5), at_most=2) == []
    (run,) = site.queries.latest_runs()
    assert run.endpoint == endpoint
    assert [(lane.lane, lane.owner, lane.open_batches) for lane in progress.lanes] == [(0, "me", 1)]
    assert site.queries.quarantined([endpoint]) == 3
    assert site.queries.doubtful([endpoint]) == 0

    view = "migrator.timeout_status" if site.has_schemas else "migrator_timeout_status"
    with site.engine.connect() as connection:
        rows = connection.exec_driver_sql(
            f"SELECT state, body_bytes, batch_state FROM {view} ORDER BY store_id"
        ).all()
    assert [tuple(row) for row in rows] == [
        ("claimed", 7, "claimed"),
        *[("quarantined", 7, "handed_over")] * 3,
        *[("handed_over", 7, "handed_over")] * 2,
    ]


def test_progress_shows_what_dispatchers_do(site: Site) -> None:
    """Their lanes name the table they serve, what they sent is counted, and what waits is told."""
    endpoint = site.create(hours(3))
    lease = site.lease(site.leases.dispatcher_lane(endpoint))
    site.lease(0)
    site.dispatched_batch(endpoint, lease, max_rows=2)
    held = held_destination("Büro", endpoint, tries=3, next_try_at=NOW + timedelta(seconds=20))
    site.held.hold([held])
    elsewhere = replace(held, endpoint=EndpointName("Billing"), source="x", destination="A")
    site.held.hold([elsewhere])
    progress = site.queries.progress()
    assert [(e.dispatched, e.in_flight, e.handed_over) for e in progress.endpoints] == [(2, 0, 0)]
    assert [(lane.lane, lane.serves) for lane in progress.lanes] == [(0, None), (1000, site.source)]
    assert [(h.endpoint, h.destination) for h in progress.held] == [
        ("Billing", "A"),
        ("Sales.Orders", "Büro"),
    ]
    assert progress.held[1] == held
    assert site.settled_rows.purge(before=FAR) == 2
    assert site.states() == {"dispatched": 2}  # forgotten, and counted all the same


def test_the_quarantine_is_listed_page_by_page(site: Site) -> None:
    """Keyset pages, filters by endpoint, reason and id; in full, all is as it was."""
    broken = LegacyRow(id=timeout_id(2), body=None, headers="{broken", due=hours(3)[2].due)
    rows = [*hours(2), broken, *hours(2, start=3)]
    _settled(site, site.lease(), site.create(rows), bad=(0, 1, 2, 3, 4))
    first = site.quarantine.page(EVERYTHING, limit=3)
    rest = site.quarantine.page(EVERYTHING, after=first[-1].key, limit=3)
    assert [row.timeout_id for row in [*first, *rest]] == [timeout_id(n) for n in range(5)]
    odd = site.quarantine.page(QuarantineFilter(reason="no-destination"))
    assert [row.timeout_id for row in odd] == [timeout_id(1), timeout_id(3)]
    assert (odd[0].detail, odd[0].destination, odd[0].body_bytes) == ("row 1", "Billing", 7)
    assert site.quarantine.page(QuarantineFilter(endpoints=["Other"])) == []
    (full,) = site.quarantine.full(QuarantineFilter(timeout_id=broken.id))
    assert (full.body, full.headers_text, full.saga_id) == (None, "{broken", broken.saga_id)
    assert full.persistence_version == "6.6.5.0"


def test_retry_puts_rows_into_new_batches_for_lane_zero(site: Site) -> None:
    """Due ones go direct, the others as asked; the old batch shrinks; all still adds up."""
    rows = hours(4)
    rows[2:] = [
        LegacyRow(id=timeout_id(n), due=f"2998-01-0{n} 00:00:00.000000") for n in range(2, 4)
    ]
    lease = site.lease()
    old = _settled(site, lease, site.create(rows), bad=(0, 1, 2))
    assert site.quarantine.retry(EVERYTHING, mode=Mode.STAGED) == 3
    direct, staged = site.batches.open_batches(lease)
    assert (direct.mode, staged.mode) == (Mode.DIRECT, Mode.STAGED)
    assert [row.id for row in site.batches.rows(direct)] == [timeout_id(0), timeout_id(1)]
    assert [row.row_index for row in site.batches.rows(direct)] == [0, 1]
    assert [row.id for row in site.batches.rows(staged)] == [timeout_id(2)]
    assert site.states() == {"handed_over": 1, "claimed": 3}
    shrunk = site.batches.find(old.id)
    assert shrunk is not None
    assert (shrunk.size, shrunk.body_bytes) == (1, 7)
    assert site.batches.advance(direct, Event.BEGIN_PUBLISHING, lease).attempt == 1


def test_what_operators_put_into_a_lane_is_taken_over_once(site: Site) -> None:
    """Retried rows and resolved batches, never what the lane has claimed itself."""
    lease = site.lease()
    batch = site.claim(site.create(hours(3)), lease).batch
    site.set_aside(batch, lease, 0, 1, 2)
    assert site.quarantine.retry(EVERYTHING, mode=Mode.STAGED) == 0  # in a daemon's hands
    assert site.claims.release_quarantined(None) == 0
    site.advance(batch, lease, Event.BEGIN_PUBLISHING, Event.ALL_SETTLED)
    assert site.batches.put_in(lease) == []
    site.quarantine.retry(EVERYTHING, mode=Mode.STAGED)
    (retried,) = site.batches.put_in(lease)
    assert retried.state is BatchState.CLAIMED
    assert site.batches.put_in(lease) == []
    doubtful = site.advance(retried, lease, Event.BEGIN_PUBLISHING, Event.GIVE_UP)
    assert site.batches.put_in(lease) == []
    site.unresolved.resolve(doubtful.id, BatchState.CLAIMED)
    (resolved,) = site.batches.put_in(lease)
    assert (resolved.id, resolved.attempt) == (retried.id, doubtful.attempt + 1)
    assert site.batches.open_batches(lease) == [resolved]


def test_what_is_passed_on_is_taken_by_any_lane_but_those_that_must_leave_it(site: Site) -> None:
    """It keeps its run, also when a run of its endpoint begins; a lane that lost it cannot."""
    mine, others = site.lease(), site.lease(3, "other")
    endpoint = site.create(hours(1))
    batch = site.claim(endpoint, mine).batch
    site.batches.pass_on(batch, mine)
    with pytest.raises(LeaseLost):
        site.batches.pass_on(batch, mine)
    site.runs.begin(endpoint, {})
    assert [each.is_put_in for each in site.leases.open_batches()] == [True]
    assert site.batches.put_in(others, not_of=[batch.run]) == []
    (taken,) = site.batches.put_in(others)
    assert (taken.id, taken.run, taken.lane) == (batch.id, batch.run, 3)
    assert [each.is_put_in for each in site.leases.open_batches()] == [False]
    assert site.batches.advance(taken, Event.BEGIN_STAGING, others).lane == 3


def test_what_an_operator_puts_in_is_of_the_latest_run_of_its_endpoint(site: Site) -> None:
    """Its map and its broker apply: of one that began before, or of one that begins later."""
    lease, endpoint = site.lease(), site.create(hours(1))
    batch = site.claim(endpoint, lease).batch
    site.set_aside(batch, lease, 0)
    site.advance(batch, lease, Event.BEGIN_PUBLISHING, Event.ALL_SETTLED)
    before = site.runs.begin(endpoint, {})
    site.quarantine.retry(EVERYTHING, mode=Mode.STAGED)
    assert [each.run for each in site.leases.open_batches()] == [before]
    later = site.runs.begin(endpoint, {})
    (retried,) = site.batches.put_in(lease)
    assert retried.run == later
    site.runs.begin(endpoint, {})
    assert [each.run for each in site.leases.open_batches()] == [later]  # a lane has it


@pytest.mark.parametrize(
    ("events", "outcome", "state"),
    [
        ((), BatchState.CLAIMED, "claimed"),
        ((Event.BEGIN_STAGING,), BatchState.CLAIMED, "claimed"),
        (COMMITTING, BatchState.CLAIMED, "claimed"),
        (COMMITTING, BatchState.HANDED_OVER, "handed_over"),
        ((Event.BEGIN_PUBLISHING,), BatchState.HANDED_OVER, "handed_over"),
    ],
)
def test_an_operator_decides_about_what_waits_for_a_broker_that_is_gone(
    site: Site, events: tuple[Event, ...], outcome: Any, state: str
) -> None:
    """Not while a process has its lane, and nothing was handed over that was never sent."""
    endpoint, lease = site.create(hours(1)), site.lease()
    batch = site.advance(site.claim(endpoint, lease).batch, lease, *events)
    with pytest.raises(LedgerError, match="stop it first"):
        site.unresolved.resolve(batch.id, outcome)
    site.leases.release(lease)
    if batch.state in (BatchState.CLAIMED, BatchState.STAGING):
        with pytest.raises(LedgerError, match="can only be claimed"):
            site.unresolved.resolve(batch.id, BatchState.HANDED_OVER)
    later = site.runs.begin(endpoint, {})
    site.unresolved.resolve(batch.id, outcome)
    assert site.states() == {state: 1}
    if outcome is BatchState.CLAIMED:
        (taken,) = site.batches.put_in(site.lease(7, "later"))
        assert (taken.run, taken.attempt > batch.attempt or not events) == (later, True)


@pytest.mark.every_store
@pytest.mark.parametrize("is_named", [True, False])
def test_quarantined_rows_go_back_byte_for_byte(site: AnySite, is_named: bool) -> None:
    """Of one endpoint or of all; the ledger remembers them as released."""
    rows = hours(4)
    endpoint = site.create(rows)
    _settled(site, site.lease(), endpoint, bad=(1, 2))
    assert site.claims.release_quarantined(endpoint if is_named else None) == 2
    assert site.legacy_rows() == rows[1:3]
    assert site.states() == {"handed_over": 2, "released": 2}
    assert site.claims.release_quarantined(endpoint) == 0


@pytest.mark.parametrize("outcome", [BatchState.CLAIMED, BatchState.HANDED_OVER])
def test_an_operator_resolves_a_doubtful_batch(site: Site, outcome: BatchState) -> None:
    """Handed over is settled; claimed goes to the lane's owner with a higher attempt."""
    lease = site.lease()
    batch = site.claim(site.create(hours(2)), lease).batch
    with pytest.raises(LedgerError, match="not doubtful"):
        site.unresolved.resolve(batch.id, BatchState.HANDED_OVER)
    batch = site.advance(batch, lease, Event.BEGIN_PUBLISHING, Event.GIVE_UP)
    (found,) = site.queries.progress().doubtful
    assert (found.batch, found.size, found.lane) == (batch.id, 2, 0)
    assert site.queries.doubtful([StoreEndpoint(name=batch.endpoint, source=batch.source)]) == 1
    site.unresolved.resolve(batch.id, outcome)  # type: ignore[arg-type]
    after = site.batches.find(batch.id)
    assert after is not None
    is_claimed = outcome is BatchState.CLAIMED
    assert (after.state, after.attempt) == (outcome, batch.attempt + is_claimed)
    assert site.batches.open_batches(lease) == ([after] if is_claimed else [])


def _sizes(site: Site) -> list[tuple[int, int]]:
    """Return size and purged rows of every batch, by id."""
    table = site.tables.batch.c
    with site.engine.connect() as connection:
        query = select(table.size, table.purged).order_by(table.id)
        return [(size, purged) for size, purged in connection.execute(query)]


def test_purge_deletes_settled_rows_and_keeps_the_books(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in quarantine, open batches and the counts stay; it ends early when told."""
    monkeypatch.setattr("migrator.ledger.purge._PURGE_ROWS", 2)
    lease = site.lease()
    endpoint = site.create(hours(6))
    _settled(site, lease, endpoint, bad=(0, 1))
    site.claims.release_quarantined(endpoint)
    site.insert(hours(2, start=10))
    _settled(site, lease, endpoint, bad=(0,))
    assert site.states() == {"handed_over": 7, "released": 2, "quarantined": 1}
    assert site.settled_rows.purge(before=datetime(2000, 1, 1, tzinfo=UTC)) == 0
    with site.engine.connect() as connection:
        run = connection.scalar(select(func.max(site.tables.run.c.id)))
    assert site.settled_rows.purge(before=FAR, run=run) == 3
    assert site.settled_rows.purge(before=FAR, at_most=1) == 2  # between two transactions
    assert site.settled_rows.purge(before=FAR, goes_on=lambda: False) == 2
    assert site.settled_rows.purge(before=FAR, at_most=9) == 2
    assert [row.state for row in site.ledger_rows()] == ["quarantined"]
    assert site.states() == {"handed_over": 7, "quarantined": 1}
    assert _sizes(site) == [(4, 4), (4, 3)]


def test_purge_keeps_what_is_not_due_yet(site: Site) -> None:
    """However long ago it was handed over or called back, its message may still be in a level."""
    lease = site.lease()
    _settled(site, lease, site.create([*hours(2), *hours(2, start=6_000_000)]))
    assert site.settled_rows.purge(before=datetime(2500, 1, 1, tzinfo=UTC)) == 2
    assert [row.store_id for row in site.ledger_rows()] == [
        timeout_id(n + 6_000_000) for n in (0, 1)
    ]
    assert site.settled_rows.purge(before=FAR) == 2
    assert _sizes(site) == [(4, 4)]


def test_where_timeouts_were_handed_over_to_is_told_by_due_time(site: Site) -> None:
    """Claimed and quarantined rows are not among them; destinations have their present names."""
    lease = site.lease()
    endpoint = site.create(hours(6))
    _settled(site, lease, endpoint, bad=(0,))
    renamed = SqlHandOvers(site.engine, site.tables, {"Billing": "Renamed"})
    (found,) = renamed.handed_over(due_from=NOW - timedelta(days=9))
    assert (found.destination, found.rows) == ("Renamed", 5)
    assert found.last_due - found.first_due == timedelta(hours=4)
    plain = SqlHandOvers(site.engine, site.tables, {})
    (near,) = plain.handed_over(due_from=found.first_due, due_until=found.last_due)
    assert near.rows == 4
    assert list(plain.handed_over(due_from=found.last_due + timedelta(seconds=1))) == []
    for since, seen in ((datetime(2000, 1, 1, tzinfo=UTC), 1), (FAR, 0)):
        assert len(plain.handed_over(due_from=found.first_due, handed_over_from=since)) == seen


def test_what_a_run_renamed_keeps_its_new_name(site: Site) -> None:
    """Whoever asks later need not say it again; what other runs handed over has its own names."""
    lease = site.lease()
    _settled(site, lease, site.create(hours(2)))
    run = site.tables.run
    told = json.dumps({"map": {"Billing": "Invoices"}, "mode": "staged"})
    with site.engine.begin() as connection:
        connection.execute(run.update().values(options=told))
    for now in ({}, {"Billing": "Another"}):
        plain = SqlHandOvers(site.engine, site.tables, now)
        found = plain.handed_over(due_from=NOW - timedelta(days=9))
        assert [(each.destination, each.rows) for each in found] == [("Invoices", 2)]
