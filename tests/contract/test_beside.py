"""Claims while others use the same store: claimers in other processes, and the timeout manager."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import RunId
from tests.contract.any_site import AnySite, LegacyRow, hours, timeout_id

pytestmark = pytest.mark.every_store

SAGA = "5f6e0c1a-0000-4000-8000-00000000c2d1"
ROWS = 14


def claim_all(site: AnySite, endpoint: StoreEndpoint, run: RunId, *, lane: int) -> list[str]:
    """Claim two at a time as another process would, until there is nothing; return the ids."""
    other = site.second()
    try:
        lease, found = other.lease(lane, f"owner {lane}"), list[str]()
        while claim := other.claims.claim(other.request(endpoint, lease, run=run, max_rows=2)):
            found += other.ids(claim)
    finally:
        other.close()
    return found


def test_two_claimers_share_no_row_and_together_take_all(site: AnySite) -> None:
    """Each has a lane and a process of its own; nothing twice, and nothing left."""
    endpoint = site.create(hours(ROWS))
    run = site.run(endpoint)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda n: claim_all(site, endpoint, run, lane=n), (0, 1))
    assert sorted([*first, *second]) == [timeout_id(n) for n in range(ROWS)]
    assert site.states() == {"claimed": ROWS}
    assert (site.legacy_rows(), site.remains()) == ([], [])


def test_each_timeout_is_sent_by_its_manager_or_claimed(site: AnySite) -> None:
    """Never by both and never by none, however the two run into each other."""
    endpoint = site.create(hours(ROWS))
    run = site.run(endpoint)

    def send_from_the_end() -> Sequence[str]:
        sent = []
        for row_id in reversed(site.manager.due()):
            if site.manager.peek(row_id) and site.manager.remove(row_id):
                sent.append(row_id)
        return sent

    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(send_from_the_end)
        claimed = pool.submit(claim_all, site, endpoint, run, lane=0).result()
        sent = sending.result()
    assert sorted([*claimed, *sent]) == [timeout_id(n) for n in range(ROWS)]
    assert site.states().get("claimed", 0) == len(claimed)
    assert (site.legacy_rows(), site.remains()) == ([], [])


def test_a_claimed_timeout_is_gone_for_its_manager(site: AnySite) -> None:
    """It looks for it, removes it and clears its saga in vain; what is left it still finds."""
    claimed, left = LegacyRow(id=timeout_id(0), saga_id=SAGA), hours(2, start=1)
    endpoint, manager = site.create([claimed, *left]), site.manager
    assert manager.peek(claimed.id)
    site.claim(endpoint, site.lease(), max_rows=1)
    assert manager.due() == [row.id for row in left]
    assert not manager.peek(claimed.id)
    assert not manager.remove(claimed.id)
    assert manager.remove_saga(SAGA) == 0
    assert manager.remove(left[0].id)
    assert site.legacy_rows() == left[1:]


def test_what_its_manager_removed_is_not_claimed(site: AnySite) -> None:
    """One by its id, and those of a saga that has ended."""
    of_saga = [LegacyRow(id=timeout_id(n), saga_id=SAGA) for n in (5, 6)]
    rows = [*hours(3), *of_saga]
    endpoint = site.create(rows)
    assert site.manager.remove(rows[0].id)
    assert site.manager.remove_saga(SAGA) == 2
    assert site.ids(site.claim(endpoint, site.lease())) == [rows[1].id, rows[2].id]


def test_a_manager_sends_what_was_released(site: AnySite) -> None:
    """By id and by saga: it is stored in full again, with all that it is found by."""
    rows = [hours(1)[0], LegacyRow(id=timeout_id(6), saga_id=SAGA)]
    endpoint, lease, manager = site.create(rows), site.lease(), site.manager
    claim = site.claim(endpoint, lease)
    assert site.claims.release(claim.batch, lease) == 2
    assert manager.due() == [row.id for row in rows]
    assert manager.remove_saga(SAGA) == 1
    assert manager.remove(rows[0].id)
    assert (site.legacy_rows(), site.remains()) == ([], [])


def test_others_timeouts_are_left_alone(site: AnySite) -> None:
    """Another endpoint's are in the same store: not claimed, not shown, and found as its own."""
    endpoint, theirs = site.create(hours(2)), hours(2, start=5)
    other = site.second("Billing")
    other.create(theirs)
    assert site.claim(endpoint, site.lease()).batch.size == 2
    assert [row for page in site.store.scan(endpoint) for row in page] == []
    assert other.legacy_rows() == theirs

    other.close()
