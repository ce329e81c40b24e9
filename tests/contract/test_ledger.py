"""What the ledger promises the engine, over every database."""

from __future__ import annotations

import random
import socket
import sqlite3
from datetime import timedelta
from unittest.mock import Mock

import psycopg
import pytest
from sqlalchemy import update

from migrator.database.engine import writing
from migrator.errors import ClockInDoubt, IllegalTransition, LeaseLost, LedgerAdopted
from migrator.ledger.batches import SqlBatches
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.report import OpenCommit
from migrator.ledger.states import NEXT, OPEN, RAISES_ATTEMPT, BatchState, Event, RowState
from migrator.ledger.work import Batch, Batches, Clock, Lease
from migrator.nservicebus.conversion import Quarantine, Reason
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane, TimeoutId
from migrator.preflight.queries import LedgerFacts
from tests.contract.site import LONG, Site, hours, timeout_id

_batches: type[Batches] = SqlBatches
_clock: type[Clock] = DatabaseClock

LANE = Lane(0)
OVER = timedelta(seconds=-1)


def _claimed(site: Site, lease: Lease, *, rows: int = 3) -> Batch:
    return site.claim(site.create(hours(rows)), lease).batch


def _finding(row_index: int, detail: str = "x") -> Quarantine:
    return Quarantine(
        row_index=row_index,
        timeout_id=TimeoutId(timeout_id(row_index)),
        reason=Reason.NO_DESTINATION,
        detail=detail,
    )


# ── leases ──────────────────────────────────────────────────────────────────────────────────


def test_a_lane_has_one_owner_at_a_time(site: Site) -> None:
    """A running lease keeps others out and names its owner."""
    lease = site.leases.acquire(LANE, "one", LONG)
    assert lease == Lease(lane=LANE, owner="one", token=1)
    assert site.leases.acquire(LANE, "two", LONG) is None
    assert site.leases.holders() == [(LANE, "one")]


def test_the_owner_may_take_its_lane_again(site: Site) -> None:
    """After a restart of a session the same owner goes on, with a higher token."""
    first, second = site.lease(), site.lease()
    assert second.token > first.token


@pytest.mark.parametrize("how", ["expired", "surrendered", "evicted"])
def test_a_lane_without_living_owner_is_free(site: Site, how: str) -> None:
    """Whoever comes next takes it, and the former owner's token is worth nothing."""
    lease = site.leases.acquire(LANE, "one", OVER if how == "expired" else LONG)
    assert lease is not None
    if how == "surrendered":
        site.leases.surrender(lease)
    if how == "evicted":
        site.leases.evict(LANE, "one")
    assert site.leases.holders() == []
    taken = site.leases.acquire(LANE, "two", LONG)
    assert taken is not None
    assert taken.token > lease.token
    with pytest.raises(LeaseLost):
        site.leases.renew(lease, LONG, doing="too late")


def test_evicting_somebody_else_is_harmless(site: Site) -> None:
    """An eviction that comes late hits nobody."""
    site.lease(owner="new")
    site.leases.evict(LANE, "old")
    assert site.leases.holders() == [(LANE, "new")]


def test_surrendering_a_lost_lane_is_harmless(site: Site) -> None:
    """The new owner keeps the lane."""
    old = site.leases.acquire(LANE, "old", OVER)
    site.lease(owner="new")
    assert old is not None
    site.leases.surrender(old)
    assert site.leases.holders() == [(LANE, "new")]


def test_renewing_prolongs_and_says_what_is_being_done(site: Site) -> None:
    """Status shows the owner's own words."""
    lease = site.leases.acquire(LANE, "me", OVER)
    assert lease is not None
    site.leases.renew(lease, LONG, doing="publishing batch 7")
    (status,) = site.books.progress().lanes
    assert (status.owner, status.doing, status.is_alive) == ("me", "publishing batch 7", True)


def test_a_new_owner_adopts_the_lanes_open_batches(site: Site) -> None:
    """What the former owner left is the new owner's, and only the new owner's."""
    old = site.leases.acquire(LANE, "old", OVER)
    assert old is not None
    batch = _claimed(site, old)
    new = site.lease(owner="new")
    with pytest.raises(LeaseLost):
        site.batches.advance(batch, Event.BEGIN_STAGING, old)
    assert site.batches.open_batches(new) == [batch]
    assert site.batches.advance(batch, Event.BEGIN_STAGING, new).state is BatchState.STAGING


def test_who_was_paused_while_a_ledger_was_adopted_gets_no_lane(site: Site) -> None:
    """It would use the former id's queues, and leave marks in a store that nobody looks for."""
    paused = site.leases
    assert paused.acquire(LANE, "paused", OVER) is not None
    site.adopt()
    with pytest.raises(LedgerAdopted, match="start this process again"):
        paused.acquire(LANE, "paused", LONG)
    assert site.leases.acquire(LANE, "new", LONG) is not None
    with pytest.raises(LedgerAdopted):  # a standby is told before it is needed
        paused.acquire(LANE, "paused", LONG)


@pytest.mark.parametrize("is_moved", [False, True])
def test_who_was_paused_meanwhile_writes_into_no_batch(site: Site, *, is_moved: bool) -> None:
    """Nor does it while nobody has its lane yet: the batch is another ledger's, or moved, now."""
    paused = site.leases.acquire(LANE, "paused", OVER)
    assert paused is not None
    batch = _claimed(site, paused)
    if is_moved:
        values = {"identity": "sqlite:/elsewhere"}
        with writing(site.engine) as connection:
            connection.execute(update(site.tables.ledger).values(values))
        assert site.adoption.keep().is_moved
    else:
        site.adopt()
    with pytest.raises(LeaseLost):
        site.batches.advance(batch, Event.BEGIN_STAGING, paused)
    assert site.batches.open_batches(site.lease()) == [batch]


def test_orphaned_lanes_have_open_batches_and_nobody(site: Site) -> None:
    """Living owners, and lanes with nothing to do, are not orphaned."""
    endpoint = site.create(hours(3))
    for lane, owner in ((3, "dead"), (1, "dead too"), (2, "alive")):
        lease = site.lease(lane, owner)
        site.claim(endpoint, lease, max_rows=1)
        if owner != "alive":
            site.leases.evict(Lane(lane), owner)
    site.leases.surrender(site.lease(4, "idle"))
    assert site.leases.orphaned_lanes() == [1, 3]


def test_dispatchers_lanes_are_left_to_dispatchers(site: Site) -> None:
    """Hand-over neither adopts them nor waits for them; a rollback sees them, and so do people."""
    endpoint = site.create(hours(2))
    lane = site.leases.dispatcher_lane(endpoint)
    for number in (lane, 1):
        lease = site.lease(number, "dead")
        site.claim(endpoint, lease, max_rows=1)
    assert site.leases.holders() == [(1, "dead"), (lane, "dead")]
    assert site.leases.owner_of(lane) == "dead"
    assert site.leases.lanes_with_work([endpoint.source]) == [1]
    for number in (lane, 1):
        site.leases.evict(Lane(number), "dead")
    assert site.leases.owner_of(lane) is None
    assert site.leases.orphaned_lanes() == [1]
    assert site.leases.abandoned_lanes() == [1, lane]


# ── batches ─────────────────────────────────────────────────────────────────────────────────


def test_advance_raises_the_attempt_where_the_table_says(site: Site) -> None:
    """A whole staged life: attempts, states and timestamps."""
    lease = site.lease()
    batch = _claimed(site, lease)
    for event in (
        Event.BEGIN_STAGING,
        Event.ABANDON,
        Event.BEGIN_STAGING,
        Event.ALL_CONFIRMED,
        Event.BEGIN_COMMIT,
        Event.RECEIPT,
    ):
        before, batch = batch, site.batches.advance(batch, event, lease)
        assert batch.attempt - before.attempt == int(event in RAISES_ATTEMPT)
        assert site.batches.find(batch.id) == batch
    assert batch.state is BatchState.HANDED_OVER
    assert site.batches.open_batches(lease) == []
    with site.engine.connect() as connection:
        row = connection.execute(site.tables.batch.select()).one()
    times = [row.claimed_at, row.staging_at, row.staged_at, row.committing_at, row.handed_over_at]
    assert None not in times
    assert row.doubtful_at is None


def test_a_step_that_does_not_exist_changes_nothing(site: Site) -> None:
    """The table is asked before the database."""
    lease = site.lease()
    batch = _claimed(site, lease)
    with pytest.raises(IllegalTransition):
        site.batches.advance(batch, Event.RECEIPT, lease)
    assert site.batches.find(batch.id) == batch


def test_a_stale_view_of_a_batch_cannot_advance_it(site: Site) -> None:
    """State and attempt must be what the caller believes they are."""
    lease = site.lease()
    batch = _claimed(site, lease)
    site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    with pytest.raises(LeaseLost):
        site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)


@pytest.mark.parametrize("seed", range(3))
def test_random_lives_of_a_batch_follow_the_table(site: Site, seed: int) -> None:
    """After any events the ledger is where the table says, also when a step was refused."""
    rng = random.Random(seed)
    lease = site.lease()
    batch = _claimed(site, lease)
    # these two are written by the store, and by recall
    events = [event for event in Event if event not in (Event.RELEASE, Event.RECALL)]
    for _ in range(30):
        event = rng.choice(events)
        if (batch.state, event) in NEXT:
            batch = site.batches.advance(batch, event, lease)
        else:
            with pytest.raises(IllegalTransition):
                site.batches.advance(batch, event, lease)
        assert site.batches.find(batch.id) == batch
        if rng.random() < 0.2:
            lease = site.lease()
        opened = site.batches.open_batches(lease)
        assert opened == ([batch] if batch.state in OPEN else [])


def test_a_doubtful_batch_can_be_settled_by_the_lanes_next_owner(site: Site) -> None:
    """Late evidence reaches whoever has the lane then."""
    lease = site.lease()
    batch = _claimed(site, lease)
    for event in (Event.BEGIN_STAGING, Event.ALL_CONFIRMED, Event.BEGIN_COMMIT, Event.GIVE_UP):
        batch = site.batches.advance(batch, event, lease)
    lease = site.lease()
    assert site.batches.open_batches(lease) == []
    settled = site.batches.advance(batch, Event.ALL_REDELIVERED, lease)
    assert settled.state is BatchState.CLAIMED


def test_find_of_an_unknown_batch_is_none(site: Site) -> None:
    """A batch the ledger never had is what a clone or a restored backup shows."""
    assert site.batches.find(BatchId(4711)) is None


def test_open_batches_wants_the_lease(site: Site) -> None:
    """A former owner gets nothing to work on."""
    old = site.lease()
    _claimed(site, old)
    site.lease()
    with pytest.raises(LeaseLost):
        site.batches.open_batches(old)


def test_null_and_empty_bodies_are_empty_to_the_engine(site: Site) -> None:
    """The engine sees bytes; the ledger keeps the difference for a release."""
    lease = site.lease()
    batch = _claimed(site, lease, rows=2)
    site.execute(f"UPDATE {_ledger_timeout(site)} SET body = NULL WHERE row_index = 0")
    assert [row.body for row in site.batches.rows(batch)] == [b"", b'{"a":1}']


def test_quarantined_rows_leave_the_batchs_rows(site: Site) -> None:
    """One bad row never stops a batch; saying it twice is harmless."""
    lease = site.lease()
    batch = _claimed(site, lease)
    site.batches.quarantine(batch, [_finding(1)], lease)
    site.batches.quarantine(batch, [_finding(1, "again")], lease)
    assert [row.row_index for row in site.batches.rows(batch)] == [0, 2]
    assert site.states() == {"claimed": 2, "quarantined": 1}
    (row,) = site.ledger_rows()[1:2]
    assert (row.state, row.reason, row.reason_detail) == (
        RowState.QUARANTINED,
        "no-destination",
        "again",
    )


def test_quarantine_by_a_former_owner_changes_nothing(site: Site) -> None:
    """Fencing holds for rows, too."""
    old = site.lease()
    batch = _claimed(site, old)
    site.lease()
    with pytest.raises(LeaseLost):
        site.batches.quarantine(batch, [_finding(1)], old)
    assert site.states() == {"claimed": 3}


def test_release_takes_quarantined_rows_along(site: Site) -> None:
    """Nothing of a released batch stays behind."""
    lease = site.lease()
    batch = _claimed(site, lease)
    site.batches.quarantine(batch, [_finding(1)], lease)
    assert site.claims.release(batch, lease) == 3
    assert site.legacy_rows() == hours(3)
    assert site.states() == {"released": 3}


# ── runs, clock, facts ──────────────────────────────────────────────────────────────────────


def test_runs_and_events_are_kept(site: Site) -> None:
    """Who did what, when, with which options."""
    endpoint = site.create(hours(2))
    run = site.runs.begin(endpoint, {"mode": "staged", "lanes": 2, "once": True})
    site.claim(endpoint, site.lease(), run=run)
    site.runs.record("run_begun", detail={"endpoint": "Sales.Orders", "n": 1}, batch=BatchId(1))
    site.runs.end(run, "done")
    (summary,) = site.books.runs()
    assert (summary.run, summary.status, summary.claimed) == (run, "done", 2)
    assert summary.options == {"mode": "staged", "lanes": 2, "once": True}
    assert summary.ended_at is not None
    *_, event = site.books.events()  # a copied SQLite file was adopted before
    assert (event.kind, event.actor, event.batch) == ("run_begun", "test", 1)
    assert event.detail == {"endpoint": "Sales.Orders", "n": 1}
    assert site.books.events(after=event.id) == []


def test_commits_are_told_that_no_run_into_these_delays_can_have_begun(site: Site) -> None:
    """By the runs since the batch was claimed; one that is not committing is nobody's concern."""
    endpoint, lease = site.create(hours(2)), site.lease()
    site.runs.begin(endpoint, {"delays": "v1"})
    run = site.runs.begin(endpoint, {"delays": "v2"})
    batch = site.claim(endpoint, lease, run=run).batch
    assert site.books.commits_of_others("v1") == []
    for event in (Event.BEGIN_STAGING, Event.ALL_CONFIRMED, Event.BEGIN_COMMIT):
        batch = site.batches.advance(batch, event, lease)
    found = OpenCommit(batch=batch.id, lane=lease.lane, delays="v2")
    assert site.books.commits_of_others("v1") == [found]
    assert site.books.commits_of_others("v2") == []
    site.runs.begin(endpoint, {"delays": "v1"})
    assert site.books.commits_of_others("v1") == []


def test_the_clock_is_the_databases_and_goes_on_between_samples(site: Site) -> None:
    """Time moves with the monotonic clock, and is asked for again after some seconds."""
    elapsed = 0.0
    clock = DatabaseClock(site.engine, lambda: elapsed)
    first = clock.now()
    elapsed = 4.0
    assert clock.now() - first == timedelta(seconds=4)
    elapsed = 3000.0
    with pytest.raises(
        ClockInDoubt, match=r"clock jumped: it is [23]\d{3}\.\d s behind where it was"
    ):
        clock.now()


def test_the_clock_survives_an_outage(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old sample is carried on while the database is away."""
    elapsed = 0.0
    clock = DatabaseClock(site.engine, lambda: elapsed)
    first = clock.now()
    site.engine.dispose()
    error = sqlite3.OperationalError if site.is_sqlite else psycopg.OperationalError
    monkeypatch.setattr(site.engine.dialect, "connect", Mock(side_effect=error("refused")))
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=OSError("refused")))
    elapsed = 40.0
    assert clock.now() - first == timedelta(seconds=40)


def test_facts_name_ledger_and_version(site: Site) -> None:
    """Preflight tells which ledger it found."""
    assert site.ledger_id in LedgerFacts(site.engine, site.tables).verify()


def _ledger_timeout(site: Site) -> str:
    return "migrator.timeout" if site.has_schemas else "migrator_timeout"


def test_the_latest_event_of_a_kind_is_found(site: Site) -> None:
    """Of each endpoint by itself; other kinds and other endpoints do not hide it."""
    assert site.books.latest_event("pause") is None
    sales, shop, other = (EndpointName(name) for name in ("Sales", "Shop", "Other"))
    for name, is_paused in ((sales, True), (shop, True), (other, True), (sales, False)):
        site.runs.record("pause", detail={"endpoint": name, "is_paused": is_paused}, batch=None)
    site.runs.record("command", detail={"endpoint": shop}, batch=None)
    found = site.books.latest_event_of_each("pause", [sales, shop, EndpointName("None")])
    assert {name: event.detail["is_paused"] for name, event in found.items()} == {
        sales: False,
        shop: True,
    }
    assert site.books.latest_event_of_each("pause", []) == {}
    latest = site.books.latest_event("pause")
    assert latest is not None
    assert latest.detail["endpoint"] == sales
