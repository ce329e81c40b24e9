"""Claims and returns in two recorded steps, which every document store promises.

Each test stops the process at a named step, or has others act in between, and lets another process
go on. Source: docs/adr/0008-two-step-claims.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update

from migrator.delays.tagged import TaggedMessage
from migrator.errors import LeaseLost, LedgerError, SomeGone, StoreError
from migrator.ledger.identity import check_identity
from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import BatchState, Mode, RowState
from migrator.ledger.work import Batch, Lease
from migrator.recall.rules import RecallOutcome, Scope
from migrator.recovery.resolve import Outcome
from tests.contract.any_site import LONG, NOW, LegacyRow, due_in, hours, timeout_id
from tests.contract.document_site import DocumentSite, Stopped

pytestmark = pytest.mark.documents(rarely=["ravendb-3.5"])  # a real one is asked

SAGA = "5f6e0c1a-0000-4000-8000-00000000c2d1"
ALL = Scope()
CLAIM_STEPS = ["claim.recorded", "claim.taken", "claim.confirmed"]
RELEASE_STEPS = ["release.recorded", "release.restored", "release.confirmed"]
RECALL_STEPS = ["recall.recorded", "recall.put_back", "recall.confirmed"]


@contextmanager
def ends_at(site: DocumentSite, step: str) -> Iterator[None]:
    """Have the process end at *step*, which it has to reach."""
    site.stop_at = step
    with pytest.raises(Stopped):
        yield
    site.stop_at = ""


def claimed_until(site: DocumentSite, step: str, rows: Sequence[LegacyRow]) -> Lease:
    """Claim *rows* in a process that ends at *step*; return the next one's lease."""
    endpoint, lease = site.create(rows), site.lease()
    with ends_at(site, step):
        site.claim(endpoint, lease)
    return site.lease()


def resume(site: DocumentSite, lease: Lease) -> list[Batch | None]:
    """Do in another process what a lane does when it starts; return what it went on with."""
    other = site.second()
    half_done = [
        batch
        for batch in other.batches.open_batches(lease)
        if batch.state in (BatchState.CLAIMING, BatchState.RELEASING)
    ]
    found = [other.claims.resume(batch, lease) for batch in half_done]
    other.close()
    return found


def ids(site: DocumentSite) -> list[str]:
    """Return the ids of the endpoint's timeouts in the store."""
    return [row.id for row in site.legacy_rows()]


def expire(site: DocumentSite) -> None:
    """Let every lease run out."""
    site.write(update(site.tables.lease).values(until=datetime(2020, 1, 1, tzinfo=UTC)))


# ── claiming ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step", CLAIM_STEPS)
def test_a_claim_that_ends_anywhere_is_finished(site: DocumentSite, step: str) -> None:
    """Nothing is lost and nothing is in both places, whoever goes on; and it can go back."""
    rows = hours(3)
    lease = claimed_until(site, step, rows)
    resume(site, lease)
    assert site.states() == {"claimed": 3}
    assert site.legacy_rows() == []
    assert bool(site.remains()) == (step == "claim.confirmed")  # which nobody asks for any more
    (batch,) = site.batches.open_batches(lease)
    assert site.claims.release(batch, lease) == 3
    assert site.legacy_rows() == rows


def test_what_a_manager_took_meanwhile_is_not_ours(site: DocumentSite) -> None:
    """It removed one, and cleared a saga, after we had read them."""
    rows = [*hours(3), LegacyRow(id=timeout_id(3), saga_id=SAGA)]
    lease = claimed_until(site, "claim.recorded", rows)
    assert site.manager.remove(rows[0].id)
    assert site.manager.remove_saga(SAGA) == 1
    (resumed,) = resume(site, lease)
    assert resumed is not None
    assert (resumed.size, resumed.state) == (2, BatchState.CLAIMED)
    assert [row.store_id for row in site.ledger_rows()] == [rows[1].id, rows[2].id]
    assert (site.legacy_rows(), site.remains()) == ([], [])


def test_a_claim_goes_on_where_its_last_row_was_listed(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where that was found when it was read: it was put off meanwhile, others were not."""
    rows = hours(3)
    endpoint, lease, read = site.create(rows), site.lease(), site.documents.read

    def put_off(*args: Any) -> Any:
        monkeypatch.undo()
        for document in read(*args):
            yield replace(document, due_at=document.due_at + timedelta(hours=1, minutes=30))

    monkeypatch.setattr(site.documents, "read", put_off)
    first = site.claim(endpoint, lease, max_rows=1)
    second = site.claim(endpoint, lease, max_rows=1, cursor=first.cursor)
    assert [site.ids(each) for each in (first, second)] == [[row.id] for row in rows[:2]]


def test_a_claim_of_which_all_is_gone_leaves_no_batch(site: DocumentSite) -> None:
    """The timeout manager was faster with every one."""
    lease = claimed_until(site, "claim.recorded", hours(2))
    for row in hours(2):
        assert site.manager.remove(row.id)
    assert resume(site, lease) == [None]
    assert site.batches.open_batches(lease) == []
    assert (site.ledger_rows(), site.remains()) == ([], [])


def test_what_was_removed_and_stored_again_is_not_ours(site: DocumentSite) -> None:
    """The same id and content, and another version: who stored it may have sent the first."""
    rows = hours(2)
    lease = claimed_until(site, "claim.recorded", rows)
    assert site.manager.remove(rows[0].id)
    site.insert(rows[:1])
    resume(site, lease)
    assert [row.store_id for row in site.ledger_rows()] == [rows[1].id]
    assert site.legacy_rows() == rows[:1]


def test_what_another_lane_recorded_meanwhile_is_left_to_it(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes read the same ones: whoever records one first takes it, and nobody else does."""
    rows = hours(2)
    endpoint, lease, read = site.create(rows), site.lease(), site.documents.read

    def overtaken(*args: Any) -> Any:
        monkeypatch.undo()
        found = read(*args)
        other = site.second()
        with ends_at(other, "claim.recorded"):
            other.claim(endpoint, other.lease(lane=1), max_rows=1)
        other.close()
        return found

    monkeypatch.setattr(site.documents, "read", overtaken)
    assert site.ids(site.claim(endpoint, lease)) == [rows[1].id]
    assert ids(site) == [rows[0].id]
    resume(site, site.lease(lane=1))
    assert site.states() == {"claimed": 2}
    assert (site.legacy_rows(), site.remains()) == ([], [])


def test_a_batch_of_another_place_is_not_finished_here(site: DocumentSite) -> None:
    """Nothing would be found in there, and what was claimed would be taken for somebody else's."""
    lease = claimed_until(site, "claim.taken", hours(1))
    site.write(update(site.tables.batch).values(source="elsewhere/x"))
    with pytest.raises(StoreError, match="nothing was changed"):
        resume(site, lease)
    assert site.states() == {"claiming": 1}


# ── putting back ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("step", RELEASE_STEPS)
def test_a_release_that_ends_anywhere_restores_once(site: DocumentSite, step: str) -> None:
    """Also when a timeout manager sends one of them before somebody goes on."""
    rows = hours(3)
    endpoint, lease = site.create(rows), site.lease()
    claim = site.claim(endpoint, lease)
    with ends_at(site, step):
        site.claims.release(claim.batch, lease)
    was_sent = site.manager.remove(rows[0].id)
    assert was_sent == (step != "release.recorded")
    assert resume(site, site.lease()) in ([None], [])
    assert site.states() == {"released": 3}
    assert site.legacy_rows() == rows[was_sent:]


def test_whoever_comes_late_restores_nothing(
    site: DocumentSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held up while another one restored all, and the timeout manager sent it."""
    endpoint, lease = site.create(hours(1)), site.lease()
    claim = site.claim(endpoint, lease)
    put_back = site.documents.put_back

    def held_up(*args: Any, **options: Any) -> Any:
        expire(site)
        assert resume(site, site.lease(owner="other")) == [None]
        assert site.manager.remove(timeout_id(0))
        return put_back(*args, **options)

    monkeypatch.setattr(site.documents, "put_back", held_up)
    with pytest.raises(LeaseLost):
        site.claims.release(claim.batch, lease)
    assert (site.legacy_rows(), site.states()) == ([], {"released": 1})


def test_an_id_that_is_stored_again_is_left_to_a_person(site: DocumentSite) -> None:
    """A release sets ours aside and leaves theirs; once that is gone, ours can go back."""
    rows = hours(2)
    endpoint, lease = site.create(rows), site.lease()
    claim = site.claim(endpoint, lease)
    theirs = LegacyRow(id=rows[0].id, body=b"theirs", due=due_in(timedelta(hours=9)))
    site.insert([theirs])
    assert site.claims.release(claim.batch, lease) == 1
    assert site.states() == {"released": 1, "quarantined": 1}
    assert [row.reason for row in site.ledger_rows() if row.state == "quarantined"] == ["id-taken"]
    assert theirs in site.legacy_rows()
    assert site.claims.release_quarantined(None) == 0
    assert site.remains() == []  # there is nothing to remember, and it can be tried again
    assert site.manager.remove(theirs.id)
    assert site.claims.release_quarantined(None) == 1
    assert ids(site) == [row.id for row in rows]


def _set_aside(site: DocumentSite, count: int = 1) -> None:
    """Settle a batch of which all rows are in quarantine."""
    site.handed_over(site.create(hours(count)), site.lease(), bad=range(count))


def test_two_rollbacks_at_once_restore_once(site: DocumentSite) -> None:
    """One is held up between recording and restoring; the other one did it all, and it was sent."""
    _set_aside(site)
    rows = site.document_ledger.begin_return(None, QuarantineFilter(), after=0)
    other = site.second()
    assert other.claims.release_quarantined(None) == 1
    other.close()
    assert site.manager.remove(timeout_id(0))
    assert site.claims.bring_back(rows, RowState.RELEASED) == 0
    assert (site.legacy_rows(), site.states()) == ([], {"released": 1})


@pytest.mark.parametrize("step", ["return.recorded", "return.restored", "return.confirmed"])
def test_a_row_that_goes_back_alone_goes_once(site: DocumentSite, step: str) -> None:
    """From quarantine: whoever is told to do it again finds what was done."""
    _set_aside(site)
    with ends_at(site, step):
        site.claims.release_quarantined(None)
    was_sent = site.manager.remove(timeout_id(0))
    assert was_sent == (step != "return.recorded")
    other = site.second()
    other.claims.release_quarantined(None)
    other.close()
    assert site.states() == {"released": 1}
    assert site.legacy_rows() == ([] if was_sent else hours(1))


def test_a_body_nobody_can_read_is_set_aside_and_never_sent_empty(site: DocumentSite) -> None:
    """A retry leaves it alone, and it goes back as it was."""
    broken, whole = hours(2)
    endpoint, lease = site.create([whole]), site.lease()
    site.put_flawed(broken)
    before = site.look().exact[broken.id]
    claim = site.claim(endpoint, lease)
    assert site.ids(claim) == [whole.id]
    site.hand_over(claim, lease)
    assert [row.reason for row in site.ledger_rows()] == ["body-missing", None]
    assert site.quarantine.retry(QuarantineFilter(), mode=Mode.DIRECT) == 0
    assert site.claims.release_quarantined(endpoint) == 1
    assert site.look().exact[broken.id] == before


# ── recalling ───────────────────────────────────────────────────────────────────────────────────


def handed_over(site: DocumentSite, rows: Sequence[LegacyRow]) -> tuple[list[TaggedMessage], Lease]:
    """Hand *rows* over; return their messages and the recall's lease."""
    site.handed_over(site.create(rows), site.lease())
    return site.tagged_messages(), site.lease(lane=999)


@pytest.mark.parametrize("step", RECALL_STEPS)
def test_a_recall_that_ends_anywhere_restores_once(site: DocumentSite, step: str) -> None:
    """It is made again with the same messages; what a manager sent meanwhile stays sent."""
    rows = hours(2)
    found, lease = handed_over(site, rows)
    with ends_at(site, step):
        site.recalls().restore(found, ALL, lease, not_before=NOW)
    was_sent = site.manager.remove(rows[0].id)
    assert was_sent == (step != "recall.recorded")
    other = site.second()
    outcomes = other.recalls().restore(found, ALL, lease, not_before=NOW)
    other.close()
    done = RecallOutcome.LEFTOVER if step == "recall.confirmed" else RecallOutcome.RESTORED
    assert outcomes == dict.fromkeys(found, done)
    assert site.states() == {"recalled": 2}
    assert site.legacy_rows() == rows[was_sent:]


def test_a_recall_that_ended_half_way_is_finished_however_near_it_is(site: DocumentSite) -> None:
    """The timeout is in the store already: left in its level as well, it would be sent twice."""
    found, lease = handed_over(site, hours(1))
    with ends_at(site, "recall.put_back"):
        site.recalls().restore(found, ALL, lease, not_before=NOW)
    assert site.audit().in_both_places([], at_most=10)[0] == 1
    scope, near = Scope(destination="Another"), NOW + timedelta(hours=2)
    outcomes = site.recalls().restore(found, scope, lease, not_before=near)
    assert outcomes == dict.fromkeys(found, RecallOutcome.RESTORED)
    assert site.states() == {"recalled": 1}


def _came_from_elsewhere(site: DocumentSite, row: LegacyRow) -> None:
    table = site.tables.timeout
    elsewhere = update(table).where(table.c.store_id == row.id)
    site.write(elsewhere.values(source="elsewhere/x"))


def test_a_recall_goes_on_beside_a_store_that_is_gone(site: DocumentSite) -> None:
    """What came from elsewhere stays handed over, and two stores may have the same id."""
    rows = hours(2)
    found, lease = handed_over(site, rows)
    _came_from_elsewhere(site, rows[0])
    recalls = site.recalls()
    outcomes = recalls.restore(found, ALL, lease, not_before=NOW)
    assert {each.timeout_id: outcomes[each] for each in found} == {
        rows[0].id: RecallOutcome.STORE_GONE,
        rows[1].id: RecallOutcome.RESTORED,
    }
    assert (ids(site), site.states()) == ([rows[1].id], {"handed_over": 1, "recalled": 1})
    site.write(update(site.tables.timeout).values(going_back=None))
    again = recalls.restore(found, ALL, lease, not_before=NOW)
    assert RecallOutcome.STORE_GONE in again.values()
    assert all(each.going_back is None for each in site.ledger_rows())  # it is not begun again


def test_a_rollback_goes_on_beside_a_store_that_is_gone(site: DocumentSite) -> None:
    """The rows that stay are not even begun."""
    rows = hours(2)
    _set_aside(site, count=2)
    _came_from_elsewhere(site, rows[0])
    with pytest.raises(SomeGone, match="elsewhere/x") as caught:
        site.claims.release_quarantined(None)
    assert (caught.value.back, ids(site)) == (1, [rows[1].id])
    assert all(each.going_back is None for each in site.ledger_rows())


def test_rows_on_their_way_are_closed_by_a_person(site: DocumentSite) -> None:
    """Those that a store was to have back, when it is gone; what goes back once is not told."""
    _set_aside(site)
    assert not site.unresolved.going_back()
    site.document_ledger.begin_return(None, QuarantineFilter(), after=0)
    (going,) = site.unresolved.going_back()
    assert (going.source, going.towards, going.rows) == (site.source, RowState.RELEASED, 1)
    assert site.unresolved.ids_going_back(going) == [timeout_id(0)]
    event = site.runs.event("batch_resolved", detail={}, batch=going.batch)
    closed = site.unresolved.close_going_back(
        going, Outcome.WRITTEN_OFF, evidence="gone", event=event
    )
    assert (closed, site.states()) == (1, {"released": 1})
    assert not site.unresolved.going_back(going.batch)
    with pytest.raises(LedgerError, match="a process works on them"):
        site.unresolved.close_going_back(going, Outcome.QUARANTINED, evidence="", event=event)


# ── a ledger with another id ────────────────────────────────────────────────────────────────────


def adopt(site: DocumentSite) -> Lease:
    """Give the ledger another id, and take the lane again."""
    before = site.ledger_id
    site.adopt()
    assert site.ledger_id != before
    return site.lease()


def test_a_claim_that_was_begun_under_a_former_id_is_finished(site: DocumentSite) -> None:
    """The ledger was adopted in between, and the evidence tells all the same."""
    claimed_until(site, "claim.taken", hours(2))
    resume(site, adopt(site))
    assert site.states() == {"claimed": 2}
    assert (site.legacy_rows(), site.remains()) == ([], [])


@pytest.mark.parametrize("step", ["release.restored", "return.restored"])
def test_what_went_back_under_a_former_id_is_finished(site: DocumentSite, step: str) -> None:
    """Whole or row by row: what a timeout manager sent meanwhile does not come back again."""
    if step == "return.restored":
        _set_aside(site)
        with ends_at(site, step):
            site.claims.release_quarantined(None)
    else:
        endpoint, lease = site.create(hours(1)), site.lease()
        claim = site.claim(endpoint, lease)
        with ends_at(site, step):
            site.claims.release(claim.batch, lease)
    lease = adopt(site)
    assert site.manager.remove(timeout_id(0))
    resume(site, lease)
    site.claims.release_quarantined(None)
    assert site.states() == {"released": 1}
    assert (site.legacy_rows(), site.remains()) == ([], [])


def test_a_ledger_is_not_adopted_in_the_middle_of_a_recall(site: DocumentSite) -> None:
    """The messages of what may be in the store again are known by its former id alone."""
    found, lease = handed_over(site, hours(1))
    with ends_at(site, "recall.recorded"):
        site.recalls().restore(found, ALL, lease, not_before=NOW)
    with pytest.raises(LedgerError, match="db adopt --moved"):
        site.adopt()
    assert check_identity(site.engine, site.tables) == site.ledger_id


# ── looking ─────────────────────────────────────────────────────────────────────────────────────


def test_what_is_half_claimed_is_in_one_place(site: DocumentSite) -> None:
    """It is in the store and recorded in the ledger, and no verification complains."""
    claimed_until(site, "claim.recorded", hours(2))
    assert site.audit().in_both_places([], at_most=10) == (0, [])


def test_counts_and_pulse_are_for_the_page_and_the_throttle(site: DocumentSite) -> None:
    """How many, how soon, and how fast the store answers."""
    site.create(hours(3))
    now = NOW + timedelta(minutes=30)
    counted = site.store.count(site.source, now, limits=[now, now + timedelta(hours=1)])
    assert (counted.rows, counted.is_all) == (3, True)
    assert counted.due == [("up to 1h", 1), ("up to 1d", 2)]
    assert list(counted.until) == [0, 1]
    assert 0 < site.store.access_latency_s(site.source, timeout=LONG) < 60
