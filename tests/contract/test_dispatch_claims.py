"""What a dispatcher's claims promise beyond claiming, over every database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import Mode
from tests.contract.site import NOW, LegacyRow, Site, hours, timeout_id

pytestmark = [pytest.mark.every_store(slow=True), pytest.mark.tables]

LETTERS = "abcdef01-2345-6789-abcd-ef0123456789"


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
