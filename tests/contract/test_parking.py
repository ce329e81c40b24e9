"""Rows that wait in the ledger for their destination, in batches of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from migrator.errors import LeaseLost
from migrator.ledger.parking import PARKED_ROWS, SqlParking, Wanted
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from migrator.nservicebus.timeouts import RunId
from tests.contract.any_site import AnySite
from tests.contract.site import NOW, LegacyRow, Site, due_in, hours, timeout_id


def claimed(
    site: AnySite, endpoint: StoreEndpoint, lease: Lease, state: BatchState = BatchState.CLAIMED
) -> Batch:
    """Claim all rows; return their batch in *state*."""
    batch = site.claim(endpoint, lease, mode=Mode.DIRECT).batch
    if state is BatchState.PUBLISHING:
        batch = site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    return batch


def wanted(run: RunId, lease: Lease, **changes: object) -> Wanted:
    """Return a wish for any parked rows."""
    return replace(Wanted(run=run, mode=Mode.STAGED, lease=lease, most_rows=1000), **changes)  # type: ignore[arg-type]


def waiting(parking: SqlParking, endpoint: StoreEndpoint) -> Mapping[str, int]:
    """Return how many rows wait, by destination."""
    return {each.destination: each.rows for each in parking.rows([endpoint.source])}


@pytest.mark.every_store
@pytest.mark.parametrize("state", [BatchState.CLAIMED, BatchState.PUBLISHING])
def test_parked_rows_go_on_or_back_byte_for_byte(site: AnySite, state: BatchState) -> None:
    """They leave their batch, are of no lane, and are claimed again by one step."""
    odd = LegacyRow(
        id=timeout_id(1),
        destination="Büro@MACHINE",
        saga_id=None,
        body=bytes(range(256)),
        due=due_in(timedelta(hours=2, microseconds=7)),
        headers='{\r\n  "a": "ä€😀"\r\n}',
        version=None,
    )
    endpoint, lease = site.create([*hours(1), odd, *hours(3, start=2)]), site.lease()
    batch = claimed(site, endpoint, lease, state)
    after = site.parking.park(batch, {1: "Büro", 2: "Gone"}, lease)
    for again in ({1: "Büro", 2: "Gone", 17: "Gone"}, {}):  # repeated, as after a lost answer
        assert site.parking.park(batch, again, lease).size == after.size
    assert (after.size, site.legacy_rows()) == (3, [])
    assert [row.row_index for row in site.batches.rows(after)] == [0, 3, 4]
    assert waiting(site.parking, endpoint) == {"Büro": 1, "Gone": 1}
    assert site.states() == {state: 3, "parked": 2}
    assert [each.id for each in site.batches.open_batches(lease)] == [after.id]

    other = site.lease(1, "other")
    found = site.parking.unpark(endpoint.source, "Büro", wanted(batch.run, other))
    assert found is not None
    assert (found.state, found.lane, found.mode, found.size) == ("claimed", 1, "staged", 1)
    (row,) = site.batches.rows(found)
    assert (row.id, row.body) == (odd.id, odd.body)  # headers are compared once they are back
    assert site.parking.unpark(endpoint.source, "Büro", wanted(batch.run, other)) is None
    assert site.claims.release(found, other) == 1
    assert site.legacy_rows() == [odd]

    (parked,) = site.parking.batches()
    back = site.parking.release(parked, lease)
    assert back is not None
    assert site.parking.release(parked, lease) is None
    assert site.claims.release(back, lease) == 1
    assert site.states() == {state: 3, "released": 2}
    assert not site.parking.batches()


def test_parked_rows_are_added_to_a_batch_with_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same run and destination, up to so many rows; each keeps an index of its own."""
    monkeypatch.setattr("migrator.ledger.parking.PARKED_ROWS", 3)
    endpoint, lease = site.create(hours(10)), site.lease()
    run = site.run(endpoint)
    for _ in range(2):
        batch = site.claim(endpoint, lease, run=run, max_rows=5).batch
        assert site.parking.park(batch, dict.fromkeys(range(5), "Gone"), lease).size == 0
    assert [each.size for each in site.parking.batches()] == [3, 3, 3, 1]
    ids = list[str]()
    while found := site.parking.unpark(endpoint.source, "Gone", wanted(run, lease, most_rows=2)):
        rows = site.batches.rows(found)
        ids += [str(row.id) for row in rows]
        assert len({row.row_index for row in rows}) == found.size <= 2
    assert sorted(ids) == [timeout_id(n) for n in range(10)]
    assert site.states() == {"claimed": 10}


def test_only_what_is_due_is_taken(site: Site) -> None:
    """Soonest first; the rest stays parked, and knows when it is due."""
    endpoint, lease = site.create(hours(6)), site.lease()
    batch = claimed(site, endpoint, lease)
    site.parking.park(batch, dict.fromkeys(range(6), "Gone"), lease)
    until = NOW + timedelta(hours=3, minutes=30)
    due = wanted(batch.run, lease, due_until=until, mode=Mode.DIRECT)
    probe = site.parking.unpark(endpoint.source, "Gone", replace(due, most_rows=1))
    found = site.parking.unpark(endpoint.source, "Gone", due)
    assert probe is not None
    assert found is not None
    taken = [[row.id for row in site.batches.rows(each)] for each in (probe, found)]
    assert taken == [[timeout_id(0)], [timeout_id(1), timeout_id(2)]]
    assert site.parking.unpark(endpoint.source, "Gone", due) is None
    assert waiting(site.parking, endpoint) == {"Gone": 3}
    rest = site.parking.unpark(endpoint.source, "Gone", wanted(batch.run, lease))
    assert rest is not None
    assert rest.size == 3


@pytest.mark.parametrize("stale", ["lease", "attempt", "released"])
def test_without_lane_and_batch_nothing_is_parked(site: Site, stale: str) -> None:
    """A former owner, or an old view of the batch, changes nothing."""
    endpoint, lease = site.create(hours(2)), site.lease()
    batch = claimed(site, endpoint, lease, BatchState.PUBLISHING)
    if stale == "lease":
        site.lease()
    elif stale == "released":
        site.leases.release(lease)
    else:
        site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    with pytest.raises(LeaseLost):
        site.parking.park(batch, {0: "Gone"}, lease)
    assert site.states() == {"publishing": 2}


def test_rows_in_quarantine_are_not_parked(site: Site) -> None:
    """They wait for a person, not for a destination."""
    endpoint, lease = site.create(hours(3)), site.lease()
    batch = claimed(site, endpoint, lease)
    site.set_aside(batch, lease, 1)
    assert site.parking.park(batch, {0: "Gone", 1: "Gone"}, lease).size == 2
    assert site.states() == {"claimed": 1, "quarantined": 1, "parked": 1}


def test_what_a_dispatcher_parked_is_its_own_until_it_is_taken_over(site: Site) -> None:
    """Hand-over may reach a destination that the dispatcher does not, and the other way round."""
    endpoint, lease, ours = site.create(hours(4)), site.lease(), site.lease(1000)
    sent = site.claim(endpoint, ours, mode=Mode.DISPATCH, max_rows=2).batch
    site.parking.park(sent, {0: "Gone"}, ours)
    moved = claimed(site, endpoint, lease)
    site.parking.park(moved, {0: "Gone"}, lease)
    assert [each.size for each in site.parking.batches()] == [1, 1]
    assert site.parking.unpark(endpoint.source, "Gone", wanted(moved.run, lease)) is not None
    assert site.parking.unpark(endpoint.source, "Gone", wanted(moved.run, lease)) is None
    assert site.parking.take_over([endpoint.source], Mode.DISPATCH) == 0
    assert site.parking.take_over([endpoint.source], Mode.STAGED) == 1
    assert site.parking.unpark(endpoint.source, "Gone", wanted(moved.run, lease)) is not None


def test_a_parked_batch_is_no_lanes_and_no_quarantines(site: Site) -> None:
    """Whoever takes the lane leaves it alone; a purge does, too."""
    endpoint, lease = site.create(hours(2)), site.lease()
    batch = claimed(site, endpoint, lease)
    site.parking.park(batch, dict.fromkeys(range(2), "Gone"), lease)
    (parked,) = site.parking.batches()
    assert parked.size <= PARKED_ROWS
    again = site.lease()
    assert [each.id for each in site.batches.open_batches(again)] == [batch.id]
    assert site.settled_rows.purge(before=NOW + timedelta(days=9999)) == 0
    assert site.parking.batches() == [parked]
    assert site.states() == {"parked": 2}
