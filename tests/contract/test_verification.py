"""Reading the ledger to verify it, over every database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from sqlalchemy import delete, update

from migrator.ledger.report import QuarantineFilter
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import BatchId, EndpointName, content_hash
from migrator.recall.rules import Scope
from migrator.verify.queries import LedgerAudit
from migrator.verify.report import BatchGap, DestinationBalance, EvidenceRecord
from migrator.verify.stores import SqlAudit
from tests.contract.any_site import NOW, AnySite, LegacyRow, hours, timeout_id
from tests.contract.site import Site

pytestmark = pytest.mark.every_store(slow=True)

_audit: type[LedgerAudit] = SqlAudit

FAR = datetime(2999, 1, 1, tzinfo=UTC)
LONG_AGO = timedelta(seconds=-1)
"""Everything is older than this."""
BODY = b'{"a":1}'
"""Of every row that says nothing else."""


def is_intact(site: AnySite, number: int) -> bool:
    """Return whether a row still has the content it was claimed with, told in both ways."""
    row = row_of(site, number)
    assert site.audit().intact([row.id]) == {row.id: row.is_intact}
    return row.is_intact


def row_of(site: AnySite, number: int) -> EvidenceRecord:
    """Return what is said of one row."""
    rows = site.audit().rows(after=0, at_most=100)
    return next(row for row in rows if row.timeout_id == timeout_id(number))


# ── balances ────────────────────────────────────────────────────────────────────────────────


def _in_every_state(site: Site) -> Lease:
    """Put twelve rows into every state there is; return the dispatcher's lease."""
    endpoint, lease, dispatcher = site.create(hours(12)), site.lease(), site.lease(1000)
    site.claim(endpoint, lease, max_rows=2)
    site.handed_over(endpoint, lease, bad=(0, 1), max_rows=4)
    released = site.claim(endpoint, lease, max_rows=2).batch
    sent = site.claim(endpoint, dispatcher, mode=Mode.DISPATCH, max_rows=3).batch
    sent = site.advance(sent, dispatcher, Event.BEGIN_PUBLISHING)
    sent = site.parking.park(sent, {0: "Gone"}, dispatcher)
    site.advance(sent, dispatcher, Event.ALL_DISPATCHED)
    site.claims.release(released, lease)
    site.claims.release_quarantined(endpoint, QuarantineFilter(timeout_id=timeout_id(2)))
    seen = [each for each in site.tagged_messages() if each.timeout_id == timeout_id(4)]
    site.recalls().restore(seen, Scope(), site.lease(lane=999), not_before=NOW)
    return dispatcher


@pytest.mark.every_store
@pytest.mark.tables
def test_every_row_is_accounted_for_in_every_state(site: Site) -> None:
    """What was claimed is somewhere, also after purging; rows are counted once."""
    dispatcher = _in_every_state(site)
    queries = site.audit()
    (balance,) = queries.balances()
    assert (balance.endpoint, balance.source) == ("Sales.Orders", site.source)
    assert (balance.claimed, balance.purged, balance.in_store) == (11, 0, 5)
    assert balance.rows == {
        "claimed": 2,
        "handed_over": 1,
        "recalled": 1,
        "quarantined": 1,
        "released": 3,
        "dispatched": 2,
        "parked": 1,
    }
    assert (balance.in_flight, balance.unaccounted) == (2, 0)
    assert queries.gaps((), at_most=5) == (0, [])
    site.dispatched.prune(dispatcher, older_than=LONG_AGO)
    site.settled_rows.purge(before=FAR)
    (balance,) = queries.balances()
    # those released or recalled singly are in the store again, and in no book any more
    assert (balance.claimed, balance.purged, balance.in_store) == (9, 5, 5)
    assert balance.rows == {"claimed": 2, "quarantined": 1, "parked": 1}
    assert balance.unaccounted == 0
    assert queries.gaps((), at_most=5) == (0, [])


@pytest.mark.own_table
def test_an_endpoint_whose_table_is_gone_is_balanced_all_the_same(site: Site) -> None:
    """It has nothing in its store; the others are not kept from being read."""
    lease = site.lease()
    site.handed_over(site.create(hours(2)), lease)
    second = site.source_of("Billing_TimeoutData")
    billing = site.create(hours(1, start=5), source=second)
    site.handed_over(StoreEndpoint(name="Billing", source=billing.source), lease)  # type: ignore[arg-type]
    site.execute(f"DROP TABLE {site.quoted()}")
    other = site.second()
    found = [(b.endpoint, b.in_store, b.claimed) for b in other.audit().balances()]
    assert found == [("Billing", 0, 1), ("Sales.Orders", None, 2)]
    assert other.audit().in_both_places((), at_most=5) == (0, [])
    other.engine.dispose()


def test_destinations_are_told_by_due_time(site: AnySite) -> None:
    """What waits, what must have left, what was set aside; rows in flight are not among them."""
    rows = [
        *hours(4),
        LegacyRow(id=timeout_id(8), destination="Alerts", due="2026-03-01 13:30:00.000000"),
        LegacyRow(id=timeout_id(9), destination=None, due="2026-03-01 13:40:00.000000"),
    ]
    lease, endpoint = site.lease(), site.create(rows)
    site.handed_over(endpoint, lease, bad=(2,), max_rows=5)
    site.claim(endpoint, lease)
    found = site.audit().destinations(now=NOW + timedelta(hours=2))
    expected = [(None, 0, 0, 1), ("Alerts", 0, 1, 0), ("Billing", 1, 2, 0)]
    assert found == [
        DestinationBalance(
            endpoint=endpoint.name,
            destination=destination,
            waiting=waiting,
            left=left,
            quarantined=quarantined,
        )
        for destination, waiting, left, quarantined in expected
    ]


# ── gaps ────────────────────────────────────────────────────────────────────────────────────


def test_a_deleted_row_is_a_gap(site: AnySite) -> None:
    """In its batch, and in the balance; the first of several are shown, and all are counted."""
    lease, endpoint = site.lease(), site.create(hours(6))
    batches = [site.handed_over(endpoint, lease, max_rows=2) for _ in range(3)]
    table, queries = site.tables.timeout, site.audit()
    for batch in (batches[0], batches[2]):
        is_it = (table.c.batch_id == batch.id) & (table.c.row_index == 1)
        site.write(delete(table).where(is_it))
    gap = BatchGap(
        batch=batches[0].id,
        endpoint=endpoint.name,
        state=BatchState.HANDED_OVER,
        size=2,
        purged=0,
        rows=1,
    )
    assert queries.gaps((), at_most=1) == (2, [gap])
    assert queries.gaps((), at_most=0) == (2, [])
    assert [balance.unaccounted for balance in queries.balances()] == [2]
    site.settled_rows.purge(before=FAR)
    assert [(g.size, g.purged, g.rows) for g in queries.gaps((), at_most=5)[1]] == [(2, 1, 0)] * 2


def test_rows_whose_batch_is_gone_are_doubtful(site: AnySite) -> None:
    """They are too many for a batch of which nothing is known, and are still looked at."""
    lease, endpoint = site.lease(), site.create(hours(3))
    batch = site.handed_over(endpoint, lease, bad=(0,))
    site.write(delete(site.tables.batch).where(site.tables.batch.c.id == batch.id))
    queries = site.audit()
    (balance,) = queries.balances()
    assert balance.rows == {"doubtful": 2, "quarantined": 1}
    assert (balance.claimed, balance.unaccounted) == (0, -3)
    total, (gap,) = queries.gaps((), at_most=5)
    assert (total, gap.batch, gap.endpoint, gap.rows) == (1, batch.id, endpoint.name, 3)
    assert [row.state for row in queries.rows(after=0, at_most=5)] == [
        "quarantined",
        "doubtful",
        "doubtful",
    ]


# ── rows ────────────────────────────────────────────────────────────────────────────────────


def test_rows_come_page_by_page_and_whole(site: AnySite) -> None:
    """With the state they are in, and the hash they were claimed with."""
    rows = [
        *hours(2),
        LegacyRow(id=timeout_id(2), body=b"", headers=None, due="2026-03-01 16:00:00.000000"),
        LegacyRow(id=timeout_id(3), headers='{"a":"Büro"}', due="2026-03-01 17:00:00.000000"),
        LegacyRow(id=timeout_id(4), body=b"\x00\xff", due="2026-03-01 18:00:00.000000"),
    ]
    lease, endpoint = site.lease(), site.create(rows)
    batch = site.handed_over(endpoint, lease, bad=(1,), max_rows=4)
    site.claim(endpoint, lease)
    queries = site.audit()
    first = queries.rows(after=0, at_most=3)
    rest = queries.rows(after=first[-1].id, at_most=3)
    assert queries.rows(after=rest[-1].id, at_most=3) == []
    found = [*first, *rest]
    assert [row.timeout_id for row in found] == [row.id for row in rows]
    assert queries.intact([row.id for row in found]) == {row.id: True for row in found}
    assert queries.intact([found[0].id, found[-1].id + 1]) == {found[0].id: True}
    assert [row.content_hash for row in found] == [content_hash(r.headers, r.body) for r in rows]
    states = ["handed_over", "quarantined", "handed_over", "handed_over", "claimed"]
    assert [row.state for row in found] == states
    assert [row.reason for row in found] == [None, "no-destination", None, None, None]
    assert [row.handed_over_at is not None for row in found] == [
        state == "handed_over" for state in states
    ]
    one = found[0]
    assert (one.batch, one.row_index, one.destination) == (batch.id, 0, "Billing")
    assert (one.endpoint, one.source) == (endpoint.name, site.source)
    assert one.due_at == NOW + timedelta(hours=1)


def test_a_row_that_was_changed_is_not_intact(site: AnySite) -> None:
    """Whichever side was changed; the others still are."""
    site.handed_over(site.create(hours(6)), site.lease())
    table = site.tables.timeout
    changed: dict[int, dict[str, object]] = {
        1: {"body": b'{"a":2}'},
        2: {"body": None},
        3: {"headers": "{}"},
        4: {"content_hash": "0" * 64},
    }
    for number, values in changed.items():
        site.write(update(table).where(table.c.store_id == timeout_id(number)).values(values))
    assert [is_intact(site, number) for number in range(6)] == [True, *[False] * 4, True]


@pytest.mark.every_store
def test_a_timeout_in_both_places_is_found(site: AnySite) -> None:
    """Open rows only: what was put back belongs there."""
    rows = hours(4)
    lease, endpoint = site.lease(), site.create(rows)
    site.handed_over(endpoint, lease, bad=(3,))
    site.claims.release_quarantined(endpoint)
    queries = site.audit()
    assert queries.in_both_places((), at_most=5) == (0, [])
    site.insert(rows[1:3])
    total, found = queries.in_both_places((), at_most=5)
    assert (total, [row.timeout_id for row in found]) == (2, [timeout_id(1), timeout_id(2)])
    assert [row.state for row in found] == ["handed_over"] * 2
    assert [len(queries.in_both_places((), at_most=n)[1]) for n in (0, 1)] == [0, 1]
    assert queries.in_both_places((), at_most=1)[0] == 2


@pytest.mark.tables
def test_endpoints_that_are_not_meant_take_no_place(site: Site) -> None:
    """However much is wrong with them, the first of the others are returned, and counted."""
    lease, rows = site.lease(), hours(1, start=5)
    site.handed_over(site.create(hours(3)), lease)
    second = site.source_of("Billing_TimeoutData")
    site.create(rows, source=second)
    billing = StoreEndpoint(name=EndpointName("Billing"), source=second)
    site.handed_over(billing, lease)
    site.insert(hours(3))
    site.insert(rows, source=second)
    table, queries = site.tables.timeout, site.audit()
    total, found = queries.in_both_places([billing.name], at_most=1)
    assert (total, [row.timeout_id for row in found]) == (1, [timeout_id(5)])
    assert queries.in_both_places((), at_most=1)[0] == 4
    site.write(delete(table).where(table.c.row_index == 0))
    total, gaps = queries.gaps([billing.name], at_most=1)
    assert (total, [gap.endpoint for gap in gaps]) == (1, [billing.name])
    assert queries.gaps((), at_most=1)[0] == 2


# ── tagged messages ───────────────────────────────────────────────────────────────────────────────


def test_known_timeouts_are_told_with_state_and_body(site: AnySite) -> None:
    """By batch and index; a body that is null is an empty one, as on the wire."""
    rows = [*hours(2), LegacyRow(id=timeout_id(2), body=None, due="2026-03-01 16:00:00.000000")]
    batch = site.handed_over(site.create(rows), site.lease(), bad=(1,))
    asked = [(batch.id, index) for index in range(3)]
    unknown = [(BatchId(batch.id + 1), 0), (batch.id, 7)]
    found = site.audit().known([*asked, *unknown])
    assert set(found) == {*asked}
    bodies = [BODY, BODY, b""]
    assert [found[m].body_hash for m in asked] == [sha256(body).hexdigest() for body in bodies]
    assert [found[m].state for m in asked[:2]] == ["handed_over", "quarantined"]
    assert found[asked[0]] == row_of(site, 0)


def test_a_row_that_was_claimed_again_has_a_mark_of_its_own(site: AnySite) -> None:
    """A message of the first batch is told from one of the second."""
    lease, endpoint = site.lease(), site.create(hours(1))
    first = site.claim(endpoint, lease).batch
    site.claims.release(first, lease)
    second = site.claim(endpoint, lease).batch
    asked = [(each.id, 0) for each in (first, second)]
    found = site.audit().known(asked)
    assert [found[each].state for each in asked] == ["released", "claimed"]


def test_rows_of_batches_that_were_claimed_lately_are_found(site: AnySite) -> None:
    """Page by page, in the order of their ids."""
    lease, endpoint = site.lease(), site.create(hours(4))
    first = site.claim(endpoint, lease, max_rows=2).batch
    site.claim(endpoint, lease, max_rows=2)
    batch, queries = site.tables.batch, site.audit()
    since = datetime.now(UTC) - timedelta(days=1)
    long_ago = {"claimed_at": since - timedelta(days=1)}
    site.write(update(batch).where(batch.c.id == first.id).values(long_ago))
    ids = queries.claimed_since(since, after=0, at_most=9)
    found = queries.rows_called(ids)
    assert [row.timeout_id for row in found] == [timeout_id(2), timeout_id(3)]
    assert found == queries.rows(after=ids[0] - 1, at_most=9)
    assert queries.claimed_since(since, after=ids[0], at_most=1) == ids[1:]
    assert queries.claimed_since(since, after=ids[1], at_most=1) == []


def test_rows_of_endpoints_that_are_not_meant_are_not_hashed(site: AnySite) -> None:
    """They come all the same, and as if they were intact; the others are hashed as ever."""
    endpoint = site.create(hours(2))
    site.handed_over(endpoint, site.lease())
    table, queries = site.tables.timeout, site.audit()
    site.write(update(table).values({"content_hash": "0" * 64}))
    meant = queries.rows(after=0, at_most=9, endpoints={endpoint.name})
    assert [row.is_intact for row in meant] == [False, False]
    assert [row.body_hash for row in meant] == [sha256(BODY).hexdigest()] * 2
    others = queries.rows(after=0, at_most=9, endpoints={EndpointName("Billing")})
    assert [row.id for row in others] == [row.id for row in meant]
    assert [row.is_intact for row in others] == [True, True]
