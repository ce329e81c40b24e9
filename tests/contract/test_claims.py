"""What every store promises about claiming, over every database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from migrator.errors import LeaseLost
from migrator.ledger.states import BatchState, Mode
from migrator.ledger.work import Lease
from migrator.nservicebus.timeouts import content_hash
from migrator.stores.ports import Claims, Store
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.sql_persistence import Placement, SqlStore
from tests.contract.any_site import NOW, AnySite, LegacyRow, due_in, hours, timeout_id
from tests.contract.site import Site

pytestmark = pytest.mark.every_store(slow=True)

_store: type[Store] = SqlStore
_claims: type[Claims] = SqlClaims

ODD_NAMES = [
    "Sales",
    "Sales.Orders.EU",
    "sales-orders",
    "Sales Orders",
    'Sales"Orders',
    "Sales'Orders",
    "Sälös",
    "SALES",
    "100%Sales",
    "Sales:Orders",
    "Sales;--",
]


@pytest.mark.every_store
def test_claim_takes_the_soonest_due_first(site: AnySite) -> None:
    """Batches come in order of due time, whatever the order in the table."""
    endpoint, lease = site.create(list(reversed(hours(7)))), site.lease()
    claims = site.claim_all(endpoint, lease, max_rows=3)
    assert [site.ids(claim) for claim in claims] == [
        [timeout_id(n) for n in chunk] for chunk in ((0, 1, 2), (3, 4, 5), (6,))
    ]


@pytest.mark.every_store
def test_a_claimed_row_is_in_the_ledger_and_no_longer_in_the_store(site: AnySite) -> None:
    """What one side loses is what the other side gets, value by value."""
    headers = '{"NServiceBus.MessageId":"m-ü","none":null}'
    row = LegacyRow(id=timeout_id(7), body=b"\x00\xff", saga_id=timeout_id(3), headers=headers)
    claim = site.claim(site.create([row]), site.lease())
    assert (site.legacy_rows(), site.remains()) == ([], [])
    (kept,) = site.ledger_rows()
    assert (kept.store_id, kept.source, kept.endpoint) == (row.id, site.source, "Sales.Orders")
    assert (kept.body, kept.headers, kept.saga_id) == (row.body, row.headers, row.saga_id)
    assert (kept.batch_id, kept.row_index, kept.state) == (claim.batch.id, 0, None)
    assert kept.due.isoformat() == "2026-03-01T13:00:00.123456+00:00"


def test_a_batch_knows_its_size_and_range(site: AnySite) -> None:
    """Size, bytes and due times of the batch are those of its rows."""
    endpoint, lease = site.create(hours(4)), site.lease()
    run = site.run(endpoint)
    claim = site.claim(endpoint, lease, run=run, mode=Mode.DIRECT)
    batch = claim.batch
    assert (batch.size, batch.body_bytes, batch.attempt) == (4, 4 * len(b'{"a":1}'), 0)
    assert (batch.state, batch.mode, batch.lane) == (BatchState.CLAIMED, Mode.DIRECT, 0)
    assert (batch.run, batch.endpoint, batch.source) == (run, "Sales.Orders", site.source)
    assert site.batches.find(batch.id) == batch
    with site.engine.connect() as connection:
        row = connection.execute(site.tables.batch.select()).one()
    assert (row.first_due, row.last_due) == (NOW + timedelta(hours=1), NOW + timedelta(hours=4))
    assert row.claimed_at is not None


def test_the_range_leaves_out_its_start_and_takes_its_end(site: AnySite) -> None:
    """``due_after`` is exclusive, ``due_until`` inclusive."""
    claim = site.claim(
        site.create(hours(5)),
        site.lease(),
        due_after=NOW + timedelta(hours=2),
        due_until=NOW + timedelta(hours=4),
    )
    assert site.ids(claim) == [timeout_id(2), timeout_id(3)]


def test_a_range_without_rows_leaves_no_batch_behind(site: AnySite) -> None:
    """Nothing to claim is None, and no empty batch shows up anywhere."""
    endpoint, lease = site.create(hours(2)), site.lease()
    request = site.request(endpoint, lease, due_until=NOW)
    assert site.claims.claim(request) is None
    assert site.batches.open_batches(lease) == []
    assert len(site.legacy_rows()) == 2


@pytest.mark.every_store
def test_a_look_tells_where_a_claim_would_find_something(site: AnySite) -> None:
    """Of all that it is asked at once; where a table has nothing in the range, it says so."""
    endpoint, lease = site.create(hours(2)), site.lease()
    there, late = (
        site.request(endpoint, lease, due_until=NOW + timedelta(hours=n)) for n in (1, 0)
    )
    found = site.claims.promising([late, there])
    assert there in found
    if isinstance(site.claims, SqlClaims):
        assert list(found) == [there]
        assert site.claims.promising([late]) == []
        assert site.claims.promising([]) == []
    assert site.batches.open_batches(lease) == []


@pytest.mark.every_store
def test_rows_without_a_usable_due_time_stay(site: AnySite) -> None:
    """NULL, infinity and times before the year 1000 are never claimed."""
    rows = [LegacyRow(id=timeout_id(n), due=due) for n, due in enumerate(site.unusable_times)]
    endpoint = site.create([*rows, LegacyRow(id=timeout_id(99))])
    (claim,) = site.claim_all(endpoint, site.lease(), max_rows=10)
    assert site.ids(claim) == [timeout_id(99)]
    assert [row.id for row in site.legacy_rows()] == [row.id for row in rows]


@pytest.mark.every_store
def test_many_rows_due_at_the_same_moment_are_all_claimed_once(site: AnySite) -> None:
    """A cursor in the middle of equal due times loses none and repeats none."""
    endpoint = site.create([LegacyRow(id=timeout_id(n)) for n in range(10)])
    claims = site.claim_all(endpoint, site.lease(), max_rows=3)
    found = [row_id for claim in claims for row_id in site.ids(claim)]
    assert sorted(found) == [timeout_id(n) for n in range(10)]
    assert [claim.batch.size for claim in claims] == [3, 3, 3, 1]


def test_row_indexes_count_up_from_zero_in_order_of_due_time(site: AnySite) -> None:
    """Row indexes are what staging relies on: complete, and soonest first."""
    claim = site.claim(site.create(list(reversed(hours(5)))), site.lease())
    rows = site.batches.rows(claim.batch)
    assert [row.row_index for row in rows] == [0, 1, 2, 3, 4]
    assert [row.due_at for row in rows] == sorted(row.due_at for row in rows)


def test_the_byte_limit_counts_bodies_and_headers(site: AnySite) -> None:
    """A batch stops before the row that would exceed the limit; non-ASCII counts in bytes."""
    rows = [
        LegacyRow(
            id=timeout_id(n), due=due_in(timedelta(hours=n)), body=b"x" * 60, headers="ä" * 20
        )
        for n in range(4)
    ]
    claim = site.claim(site.create(rows), site.lease(), max_bytes=299)
    assert claim.batch.size == 2
    assert len(site.legacy_rows()) == 2


def test_a_row_larger_than_the_byte_limit_is_claimed_alone(site: AnySite) -> None:
    """One huge row does not stop the line."""
    rows = [LegacyRow(id=timeout_id(n), due=due_in(timedelta(hours=n))) for n in range(2)]
    claim = site.claim(site.create(rows), site.lease(), max_bytes=1)
    assert site.ids(claim) == [timeout_id(0)]


def test_limits_beyond_32_bits_are_limits(site: AnySite) -> None:
    """Large settings do not overflow in the database."""
    claim = site.claim(site.create(hours(1)), site.lease(), max_bytes=2**40)
    assert claim.batch.size == 1


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_may_contain_anything(build_site: Callable[..., AnySite], name: str) -> None:
    """Whatever the endpoint is called, its rows are found, claimed and released."""
    site = build_site(endpoint_name=name)
    rows = hours(2)
    site.create(rows)
    endpoint, lease = site.store.find(name), site.lease()
    assert endpoint.source == site.source
    claim = site.claim(endpoint, lease)
    assert site.claims.release(claim.batch, lease) == 2
    assert site.legacy_rows() == rows


@pytest.mark.own_table
@pytest.mark.parametrize(
    "placement",
    [
        pytest.param(Placement(prefix="Custom"), id="prefix"),
        pytest.param(Placement(prefix=""), id="empty prefix"),
        pytest.param(Placement(table="my timeouts"), id="table"),
        pytest.param(Placement(table="with.dot"), id="dotted table"),
    ],
)
def test_a_placement_says_where_the_table_is(
    build_site: Callable[..., Site], placement: Placement
) -> None:
    """Prefix and table of an endpoint are taken verbatim."""
    site = build_site(placements={"Sales.Orders": placement})
    table = placement.table or f"{placement.prefix}TimeoutData"
    site.create(hours(1), source=site.source_of(table))
    endpoint = site.store.find("Sales.Orders")
    assert site.claim(endpoint, site.lease()).batch.source == site.source_of(table)
    assert [found.name for found in site.store.endpoints()] == ["Sales.Orders"]


@pytest.mark.own_table
def test_extra_columns_do_no_harm(site: Site) -> None:
    """Somebody's own column does not hinder claim and release."""
    rows, lease = hours(2), site.lease()
    endpoint = site.create(rows)
    site.execute(f'ALTER TABLE {site.quoted()} ADD COLUMN "Note" text')
    claim = site.claim(endpoint, lease)
    site.claims.release(claim.batch, lease)
    assert site.legacy_rows() == rows


CONTENTS = [
    pytest.param(None, None, id="NULLs"),
    pytest.param("", b"", id="empty"),
    pytest.param("", None, id="empty headers, NULL body"),
    pytest.param(None, b"\x00", id="NULL headers, zero byte"),
    pytest.param('{\r\n  "a": "ä€😀"\r\n}', bytes(range(256)), id="unicode, all bytes"),
]


@pytest.mark.parametrize(("headers", "body"), CONTENTS)
def test_the_content_hash_is_the_domains(
    site: AnySite, headers: str | None, body: bytes | None
) -> None:
    """What the database or the adapter computes is what ``verify`` will compute."""
    endpoint = site.create([LegacyRow(id=timeout_id(1), headers=headers, body=body)])
    site.claim(endpoint, site.lease())
    (kept,) = site.ledger_rows()
    assert kept.content_hash == content_hash(kept.headers, kept.body)
    assert kept.body == body


@pytest.mark.every_store
@pytest.mark.parametrize(("headers", "body"), CONTENTS)
def test_release_puts_rows_back_byte_for_byte(
    site: AnySite, headers: str | None, body: bytes | None
) -> None:
    """A released row cannot be told from one that was never claimed."""
    row = LegacyRow(
        id=timeout_id(1),
        headers=headers,
        body=body,
        destination="Büro@MACHINE",
        saga_id=None,
        due=due_in(timedelta(microseconds=7)),
        version=None,
    )
    endpoint, lease = site.create([row]), site.lease()
    claim = site.claim(endpoint, lease)
    assert site.claims.release(claim.batch, lease) == 1
    assert (site.legacy_rows(), site.remains()) == ([row], [])


def test_a_released_batch_says_so_and_has_a_higher_attempt(site: AnySite) -> None:
    """After a release nothing of the batch counts any more, and its rows can be claimed again."""
    endpoint, lease = site.create(hours(2)), site.lease()
    claim = site.claim(endpoint, lease)
    site.claims.release(claim.batch, lease)
    released = site.batches.find(claim.batch.id)
    assert released is not None
    assert released.state is BatchState.RELEASED
    assert released.attempt > claim.batch.attempt
    assert site.states() == {"released": 2}
    again = site.claim(endpoint, lease)
    assert again.batch.size == 2
    assert site.states() == {"released": 2, "claimed": 2}


def test_release_by_a_former_owner_changes_nothing(site: AnySite) -> None:
    """A paused owner cannot give rows back behind the new owner's back."""
    endpoint, lease = site.create(hours(2)), site.lease()
    claim = site.claim(endpoint, lease)
    site.lease()
    with pytest.raises(LeaseLost):
        site.claims.release(claim.batch, lease)
    assert site.legacy_rows() == []
    assert site.states() == {"claimed": 2}


@pytest.mark.parametrize("lane", [0, 1])
def test_claim_without_the_lease_moves_nothing(site: AnySite, lane: int) -> None:
    """A token that is not the lane's, or a lane nobody has, is refused before anything moves."""
    endpoint, lease = site.create(hours(2)), site.lease()
    stale = Lease(lane=lane, owner="old", token=lease.token - 1)  # type: ignore[arg-type]
    with pytest.raises(LeaseLost):
        site.claims.claim(site.request(endpoint, stale))
    assert len(site.legacy_rows()) == 2
    assert site.ledger_rows() == []


@pytest.mark.every_store
def test_rows_the_ledger_has_stay_in_the_store(site: AnySite) -> None:
    """A restored backup of the legacy table is not claimed a second time, nor in the way."""
    endpoint, lease = site.create(hours(4)), site.lease()
    site.claim(endpoint, lease, max_rows=3)
    site.insert(hours(3))
    claims = site.claim_all(endpoint, lease, max_rows=2)
    assert [site.ids(claim) for claim in claims] == [[timeout_id(3)]]
    assert [row.id for row in site.legacy_rows()] == [timeout_id(n) for n in range(3)]


@pytest.mark.own_table
def test_the_same_id_in_another_table_is_another_timeout(site: Site) -> None:
    """Ids are unique per table only."""
    first, lease = site.create(hours(1)), site.lease()
    other = site.source_of("Billing_TimeoutData")
    second = site.create(hours(1), source=other)
    assert site.claim(first, lease).batch.size == 1
    assert site.claim(second, lease).batch.source == other


@pytest.mark.own_table
def test_a_row_with_values_of_other_types_stops_no_claim(site: Site) -> None:
    """SQLite takes a value of any type into any column."""
    if not site.is_sqlite:
        pytest.skip("other databases refuse it")
    endpoint = site.create(hours(2))
    site.execute(
        f"UPDATE {site.quoted()} SET \"State\" = 'x', \"Headers\" = CAST('{{}}' AS BLOB) "
        'WHERE "Id" = :id',
        id=timeout_id(0),
    )
    found = site.batches.rows(site.claim(endpoint, site.lease()).batch)
    assert [row.body for row in found] == [b"x", hours(1)[0].body]
    assert found[0].headers_text == "{}"
