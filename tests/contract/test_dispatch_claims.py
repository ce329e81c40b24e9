"""What a dispatcher's claims promise beyond claiming, over every database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from migrator.errors import IllegalTransition, LeaseLost
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.work import Batch, Lease, StoreEndpoint
from tests.contract.site import NOW, LegacyRow, Site, due_in, hours, timeout_id

pytestmark = [pytest.mark.every_store(slow=True), pytest.mark.tables]

LETTERS = "abcdef01-2345-6789-abcd-ef0123456789"


def _to(destinations: Sequence[str | None]) -> list[LegacyRow]:
    return [
        replace(row, destination=destination)
        for row, destination in zip(hours(len(destinations)), destinations, strict=True)
    ]


def _claimed(site: Site, endpoint: StoreEndpoint, lease: Lease, state: BatchState) -> Batch:
    batch = site.claim(endpoint, lease, mode=Mode.DISPATCH).batch
    if state is BatchState.PUBLISHING:
        batch = site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    return batch


# ── only these ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.every_store
def test_only_rows_that_are_named_are_claimed(site: Site) -> None:
    """Soonest first, up to the limit, and only within the range."""
    endpoint, lease = site.create(hours(6)), site.lease()
    only = [timeout_id(n) for n in (5, 4, 2, 1, 99)]
    until = NOW + timedelta(hours=5)
    claim = site.claim(endpoint, lease, only=only, max_rows=2, due_until=until)
    assert site.ids(claim) == [timeout_id(1), timeout_id(2)]
    claim = site.claim(endpoint, lease, only=only, due_until=until)
    assert site.ids(claim) == [timeout_id(4)]
    assert site.claims.claim(site.request(endpoint, lease, only=only, due_until=until)) is None
    assert [row.id for row in site.legacy_rows()] == [timeout_id(n) for n in (0, 3, 5)]


@pytest.mark.every_store
@pytest.mark.parametrize(
    "name", [LETTERS, LETTERS.upper(), f"{{{LETTERS}}}", LETTERS.replace("-", "")]
)
def test_an_id_may_be_written_in_any_letter_case(site: Site, name: str) -> None:
    """A GUID is a GUID, as a database's own type has it."""
    endpoint = site.create([LegacyRow(id=LETTERS)])
    claim = site.claim(endpoint, site.lease(), only=[name, "no guid"])
    assert site.ids(claim) == [LETTERS]


@pytest.mark.parametrize(
    "only",
    [
        pytest.param([], id="none"),
        pytest.param(["", "x", "' OR 1=1 --", "TimeoutDatas/1-A", "\0", "\ud800"], id="no guids"),
        pytest.param([f"{timeout_id(0)}x", timeout_id(0)[:-1]], id="almost"),
        pytest.param([timeout_id(77)], id="unknown"),
    ],
)
def test_ids_that_no_row_can_have_claim_nothing(site: Site, only: list[str]) -> None:
    """Whatever somebody puts into a control message, it never fails and never takes others."""
    endpoint, lease = site.create(hours(2)), site.lease()
    assert site.claims.claim(site.request(endpoint, lease, only=only)) is None
    assert len(site.legacy_rows()) == 2
    assert site.batches.open_batches(lease) == []


def test_named_rows_the_ledger_has_stay_in_the_store(site: Site) -> None:
    """A control message that comes twice does not send twice."""
    endpoint, lease = site.create(hours(1)), site.lease()
    site.claim(endpoint, lease, only=[timeout_id(0)])
    site.insert(hours(1))
    request = site.request(endpoint, lease, only=[timeout_id(0)])
    assert site.claims.claim(request) is None


# ── not for these ───────────────────────────────────────────────────────────────────────────


def test_rows_for_some_destinations_are_left(site: Site) -> None:
    """By the text of the column, also when they are named, and they do not fill a batch.

    A row without destination is claimed all the same.
    """
    endpoint, lease = site.create(_to(["A", "B", None, "a", "", "A@MACHINE"])), site.lease()
    not_for = ["A", "", "C", "\0", "\ud800"]
    named = site.request(endpoint, lease, only=[timeout_id(0)], not_for=not_for)
    assert site.claims.claim(named) is None
    claim = site.claim(endpoint, lease, not_for=not_for, max_rows=4)
    assert site.ids(claim) == [timeout_id(n) for n in (1, 2, 3, 5)]
    assert [row.destination for row in site.legacy_rows()] == ["A", ""]


# ── giving back ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.every_store
@pytest.mark.parametrize("state", [BatchState.CLAIMED, BatchState.PUBLISHING])
def test_rows_are_given_back_byte_for_byte(site: Site, state: BatchState) -> None:
    """As if never claimed: the store has them as they were, the ledger knows nothing of them."""
    odd = LegacyRow(
        id=timeout_id(1),
        destination="Büro@MACHINE",
        saga_id=None,
        body=bytes(range(256)),
        due=due_in(timedelta(hours=2, microseconds=7)),
        headers='{\r\n  "a": "ä€😀"\r\n}',
        version=None,
    )
    empty = LegacyRow(
        id=timeout_id(2), body=None, headers=None, destination=None, due=due_in(timedelta(hours=3))
    )
    endpoint, lease = site.create([*hours(1), odd, empty, *hours(2, start=3)]), site.lease()
    batch = _claimed(site, endpoint, lease, state)
    after = site.claims.give_back(batch, [1, 2], lease)
    for again in ([1, 2, 17], []):  # whoever did not hear the answer asks again
        assert site.claims.give_back(batch, again, lease) == after
    assert site.legacy_rows() == [odd, empty]
    assert after == replace(batch, size=3, body_bytes=21)
    assert site.batches.find(batch.id) == after
    assert [row.row_index for row in site.batches.rows(after)] == [0, 3, 4]
    assert site.states() == {state: 3}


def test_a_row_that_was_given_back_can_be_claimed_again(site: Site) -> None:
    """Also while the rest of its first batch is still open; and given back once more."""
    endpoint, lease = site.create(hours(2)), site.lease()
    first = _claimed(site, endpoint, lease, BatchState.PUBLISHING)
    first = site.claims.give_back(first, [1], lease)
    second = _claimed(site, endpoint, lease, BatchState.CLAIMED)
    assert [row.id for row in site.batches.rows(second)] == [timeout_id(1)]
    site.claims.give_back(second, [0], lease)
    assert site.legacy_rows() == hours(1, start=1)
    first = site.batches.advance(first, Event.ALL_DISPATCHED, lease)
    assert first.size == 1
    with pytest.raises(IllegalTransition):  # what was sent is not put back by mistake
        site.claims.give_back(first, [0], lease)


def test_rows_in_quarantine_are_not_given_back(site: Site) -> None:
    """They wait for a person, not for a destination."""
    endpoint, lease = site.create(hours(3)), site.lease()
    batch = _claimed(site, endpoint, lease, BatchState.CLAIMED)
    site.set_aside(batch, lease, 1)
    assert site.claims.give_back(batch, [0, 1], lease).size == 2
    assert site.legacy_rows() == hours(1)
    assert site.states() == {"claimed": 1, "quarantined": 1}


@pytest.mark.parametrize("stale", ["lease", "attempt", "surrendered"])
def test_without_lane_and_batch_nothing_is_given_back(site: Site, stale: str) -> None:
    """A former owner, or an old view of the batch, changes nothing."""
    endpoint, lease = site.create(hours(2)), site.lease()
    batch = _claimed(site, endpoint, lease, BatchState.PUBLISHING)
    if stale == "lease":
        site.lease()
    elif stale == "surrendered":
        site.leases.surrender(lease)
    else:
        site.batches.advance(batch, Event.BEGIN_PUBLISHING, lease)
    with pytest.raises(LeaseLost):
        site.claims.give_back(batch, [0], lease)
    assert site.legacy_rows() == []
    assert site.states() == {"publishing": 2}


# ── quarantine ──────────────────────────────────────────────────────────────────────────────


def test_a_dispatchers_quarantine_goes_back_to_the_store_to_be_tried_again(site: Site) -> None:
    """There its dispatcher finds it; rows of hand-over are retried in lane 0 instead."""
    endpoint = site.create(hours(5))
    lane = site.leases.dispatcher_lane(endpoint)
    ours, other = site.lease(lane), site.lease(0)
    site.dispatched_batch(endpoint, ours, bad=(0, 1), max_rows=3)
    site.handed_over(endpoint, other, bad=(1,))
    assert site.quarantine.retry(QuarantineFilter(), mode=Mode.STAGED) == 1
    (again,) = site.batches.open_batches(other)
    assert [row.id for row in site.batches.rows(again)] == [timeout_id(4)]
    of_one = QuarantineFilter(mode=Mode.DISPATCH, timeout_id=timeout_id(1))
    assert [row.timeout_id for row in site.quarantine.page(of_one)] == [timeout_id(1)]
    assert site.claims.release_quarantined(None, of_one) == 1
    assert site.legacy_rows() == hours(1, start=1)
    assert site.ids(site.claim(endpoint, ours, mode=Mode.DISPATCH)) == [timeout_id(1)]
    assert site.claims.release_quarantined(endpoint, QuarantineFilter(mode=Mode.DISPATCH)) == 1
    assert site.claims.release_quarantined(None, QuarantineFilter(endpoints=["Other"])) == 0
