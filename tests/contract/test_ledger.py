"""What the ledger promises the engine, over every database."""

from __future__ import annotations

import random
import socket
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
from sqlalchemy import update

from migrator.errors import ClockInDoubt, IllegalTransition, LeaseLost, LedgerAdopted
from migrator.ledger.batches import SqlBatches
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.report import BatchElsewhere
from migrator.ledger.run_terms import ANYWHERE
from migrator.ledger.states import NEXT, OPEN, RAISES_ATTEMPT, BatchState, Event
from migrator.ledger.work import Batch, Batches, Clock, Lease
from migrator.nservicebus.timeouts import BatchId, EndpointName, Lane
from tests.contract.site import LONG, Site, hours

_batches: type[Batches] = SqlBatches
_clock: type[Clock] = DatabaseClock

LANE = Lane(0)
OVER = timedelta(seconds=-1)
COMMITTING = (Event.BEGIN_STAGING, Event.BEGIN_COMMIT)


def _claimed(site: Site, lease: Lease, *, rows: int = 3) -> Batch:
    return site.claim(site.create(hours(rows)), lease).batch


# ── leases ──────────────────────────────────────────────────────────────────────────────────


def test_who_was_paused_while_a_ledger_was_adopted_gets_no_lane(site: Site) -> None:
    """It would use the former id's queues, and leave marks in a store that nobody looks for."""
    paused = site.leases
    assert paused.acquire(LANE, "paused", OVER) is not None
    site.adopt()
    with pytest.raises(LedgerAdopted, match="then restart this process"):
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
        site.write(update(site.tables.ledger).values(identity="sqlite:/elsewhere"))
        assert site.adoption.keep().is_moved
    else:
        site.adopt()
    with pytest.raises(LeaseLost):
        site.batches.advance(batch, Event.BEGIN_STAGING, paused)
    assert site.batches.open_batches(site.lease()) == [batch]


@pytest.mark.parametrize("how", ["expired", "released", "evicted"])
def test_a_lane_has_one_owner_until_nobody_living_has_it(site: Site, how: str) -> None:
    """Whoever comes next has all of it; the former owner's token is worth nothing, for rows too."""
    old = site.leases.acquire(LANE, "old", OVER if how == "expired" else LONG)
    assert old == Lease(lane=LANE, owner="old", token=1)
    if how != "expired":
        assert site.leases.acquire(LANE, "new", LONG) is None
        assert site.leases.holders() == [(LANE, "old")]
    batch = _claimed(site, old)
    if how == "released":
        site.leases.release(old)
    if how == "evicted":
        site.leases.evict(LANE, "old")
    assert site.leases.holders() == []
    assert [(each.lane, each.has_owner) for each in site.leases.open_batches()] == [(LANE, False)]

    new = site.lease(owner="new")
    site.leases.release(old)
    site.leases.evict(LANE, "old")
    assert site.leases.holders() == [(LANE, "new")]
    for write in (
        lambda: site.leases.renew(old, LONG, doing="too late"),
        lambda: site.batches.open_batches(old),
        lambda: site.set_aside(batch, old, 1),
        lambda: site.batches.advance(batch, Event.BEGIN_STAGING, old),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert site.states() == {"claimed": 3}
    assert site.batches.open_batches(new) == [batch]


def test_renewing_prolongs_and_says_what_is_being_done(site: Site) -> None:
    """Status shows the owner's own words; who takes its own lane again has a higher token."""
    first = site.leases.acquire(LANE, "me", OVER)
    lease = site.leases.acquire(LANE, "me", OVER)
    assert first is not None
    assert lease is not None
    assert lease.token > first.token
    site.leases.renew(lease, LONG, doing="publishing batch 7")
    (status,) = site.queries.progress().lanes
    assert (status.owner, status.doing, status.is_alive) == ("me", "publishing batch 7", True)


def test_open_batches_tell_whether_a_living_owner_has_their_lane(site: Site) -> None:
    """Those of dispatchers are left to dispatchers; a rollback sees them, and so do people."""
    endpoint = site.create(hours(4))
    of_dispatcher = site.leases.dispatcher_lane(endpoint)
    for lane in (3, 1, 2, of_dispatcher):
        site.claim(endpoint, site.lease(lane, "dead"), max_rows=1)
    site.leases.release(site.lease(4, "idle"))
    assert site.leases.owner_of(of_dispatcher) == "dead"
    assert [(each.lane, each.has_owner) for each in site.leases.open_batches()] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    end_s = site.leases.next_end_s()
    assert end_s is not None
    assert 0 < end_s <= LONG.total_seconds()
    site.lease(5, "without batches")
    assert site.leases.owners_with_work() == {"dead"}
    for number in (1, 3, of_dispatcher):
        site.leases.evict(Lane(number), "dead")
    assert site.leases.owner_of(of_dispatcher) is None
    assert {each.lane for each in site.leases.open_batches() if not each.has_owner} == {1, 3}
    assert site.leases.abandoned_lanes() == [1, 3, of_dispatcher]
    site.leases.evict(Lane(2), "dead")
    assert site.leases.owners_with_work() == set()


# ── batches ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(2))
def test_random_lives_of_a_batch_follow_the_table(site: Site, seed: int) -> None:
    """After any events the ledger is where the table says, also when a step was refused."""
    rng = random.Random(seed)
    lease = site.lease()
    batch = _claimed(site, lease)
    events = [event for event in Event if event is not Event.RELEASE]  # the store writes that
    for _ in range(20):
        event, before = rng.choice(events), batch
        if (batch.state, event) in NEXT:
            batch = site.batches.advance(before, event, lease)
            assert batch.attempt - before.attempt == int(event in RAISES_ATTEMPT)
            if before != batch:
                with pytest.raises(LeaseLost):  # a stale view
                    site.batches.advance(before, event, lease)
        else:
            with pytest.raises(IllegalTransition):
                site.batches.advance(batch, event, lease)
        assert site.batches.find(batch.id) == batch
        if rng.random() < 0.2:
            lease = site.lease()
        opened = site.batches.open_batches(lease)
        assert opened == ([batch] if batch.state in OPEN else [])
    assert site.batches.find(BatchId(4711)) is None  # of a clone, or a restored backup


def test_a_doubtful_batch_can_be_settled_by_the_lanes_next_owner(site: Site) -> None:
    """Late evidence reaches whoever has the lane then."""
    lease = site.lease()
    batch = _claimed(site, lease)
    batch = site.advance(batch, lease, *COMMITTING, Event.GIVE_UP)
    lease = site.lease()
    assert site.batches.open_batches(lease) == []
    settled = site.batches.advance(batch, Event.ALL_REDELIVERED, lease)
    assert settled.state is BatchState.CLAIMED


def test_quarantined_rows_leave_the_batchs_rows(site: Site) -> None:
    """One bad row never stops a batch; saying it twice is harmless; a release takes it along."""
    lease = site.lease()
    batch = _claimed(site, lease)
    site.execute(f"UPDATE {_ledger_timeout(site)} SET body = NULL WHERE row_index = 0")
    site.set_aside(batch, lease, 1)
    site.set_aside(batch, lease, 1, detail="again")
    rows = site.batches.rows(batch)
    assert [(row.row_index, row.body) for row in rows] == [(0, b""), (2, b'{"a":1}')]
    assert site.states() == {"claimed": 2, "quarantined": 1}
    assert site.ledger_rows()[1].reason_detail == "again"
    assert site.claims.release(batch, lease) == 3
    assert site.states() == {"released": 3}


# ── runs, clock, facts ──────────────────────────────────────────────────────────────────────


def test_batches_are_told_that_go_to_another_place(site: Site) -> None:
    """By what their own runs recorded; one in another state is left out."""
    endpoint, lease = site.create(hours(2)), site.lease()
    run = site.runs.begin(endpoint, {"delays": "v2", "vhost": "sales"})
    v1, v2 = replace(ANYWHERE, delays="v1"), replace(ANYWHERE, delays="v2")
    batch = site.claim(endpoint, lease, run=run).batch
    of_others = site.queries.batches_of_others
    assert of_others(v1, BatchState.COMMITTING) == []
    assert len(of_others(v1, BatchState.CLAIMED, BatchState.COMMITTING)) == 1
    batch = site.advance(batch, lease, *COMMITTING)
    site.runs.begin(endpoint, {"delays": "v1"})
    place = replace(v2, vhost="sales")
    found = BatchElsewhere(batch=batch.id, lane=lease.lane, place=place)
    assert of_others(v1, BatchState.COMMITTING) == [found]
    assert of_others(v2, BatchState.COMMITTING) == []
    assert of_others(replace(v2, vhost="billing"), BatchState.COMMITTING) == [found]
    assert site.runs.options_of(run) == {"delays": "v2", "vhost": "sales"}


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
    error = site.engine.dialect.loaded_dbapi.OperationalError("08001", "refused")
    monkeypatch.setattr(site.engine.dialect, "connect", Mock(side_effect=error))
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=OSError("refused")))
    elapsed = 40.0
    assert clock.now() - first == timedelta(seconds=40)


def _ledger_timeout(site: Site) -> str:
    return "migrator.timeout" if site.has_schemas else "migrator_timeout"


def test_the_latest_event_of_a_kind_is_found(site: Site) -> None:
    """Of each endpoint by itself; other kinds and other endpoints do not hide it."""
    assert site.queries.latest_event("pause") is None
    sales, shop, other = (EndpointName(name) for name in ("Sales", "Shop", "Other"))
    for name, is_paused in ((sales, True), (shop, True), (other, True), (sales, False)):
        site.runs.record("pause", detail={"endpoint": name, "is_paused": is_paused}, batch=None)
    site.runs.record("command", detail={"endpoint": shop}, batch=None)
    found = site.queries.latest_event_of_each("pause", [sales, shop, EndpointName("None")])
    assert {name: event.detail["is_paused"] for name, event in found.items()} == {
        sales: False,
        shop: True,
    }
    assert site.queries.latest_event_of_each("pause", []) == {}
    latest = site.queries.latest_event("pause")
    assert latest is not None
    assert latest.detail["endpoint"] == sales
