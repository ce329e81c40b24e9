"""What every store promises about claiming, over every database."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from migrator.errors import LeaseLost, RowsKept, StoreLocked
from migrator.ledger.states import BatchState, Mode, RowState
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import Lane, content_hash
from migrator.stores.ports import Claims, Store
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.sql_persistence import Placement, SqlStore
from tests.contract.any_site import NOW, AnySite, LegacyRow, due_in, hours, timeout_id
from tests.contract.site import Site

pytestmark = pytest.mark.every_store(slow=True)

_store: type[Store] = SqlStore
_claims: type[Claims] = SqlClaims

ODD_NAMES = ["Sales.Orders-EU", "SALES Sälös 100%", "Sales\"Orders'1", "Sales:Orders;--"]


@pytest.mark.every_store
def test_claim_takes_the_soonest_due_first(site: AnySite) -> None:
    """Batches come in order of due time, whatever the order in the table."""
    endpoint, lease = site.create(list(reversed(hours(7)))), site.lease()
    claims = site.claim_all(endpoint, lease, max_rows=3)
    assert [site.ids(claim) for claim in claims] == [
        [timeout_id(n) for n in chunk] for chunk in ((0, 1, 2), (3, 4, 5), (6,))
    ]
    assert [row.row_index for row in site.batches.rows(claims[1].batch)] == [0, 1, 2]


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
    assert site.claims.claim(late) is None
    assert site.batches.open_batches(lease) == []


@pytest.mark.tables
def test_a_table_that_another_transaction_keeps_is_told_apart_and_given_up_soon(
    site: Site,
) -> None:
    """Look and claim end within moments, whatever a session waits for else; then it goes on."""
    endpoint, lease = site.create(hours(1)), site.lease()
    asked = site.request(endpoint, lease)
    if site.is_sqlite:
        pytest.skip("it locks whole files")
    assert site.claims.promising([asked])  # what a table is made of is known by then
    with site.engine.connect() as other, other.begin():
        dialect_for(other.dialect.name).lock_table(other, site.quoted())
        for ask in (lambda: site.claims.promising([asked]), lambda: site.claims.claim(asked)):
            began_s = time.monotonic()
            with pytest.raises(StoreLocked):
                ask()
            assert time.monotonic() - began_s < 4.0  # sessions wait for 5 s else
    assert site.claims.claim(asked) is not None


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


@pytest.mark.parametrize(("max_bytes", "size"), [(299, 2), (1, 1), (2**40, 4)])
def test_the_byte_limit_counts_bodies_and_headers(site: AnySite, max_bytes: int, size: int) -> None:
    """A batch stops before the row that would exceed it; a larger one is claimed alone."""
    rows = [
        LegacyRow(
            id=timeout_id(n), due=due_in(timedelta(hours=n)), body=b"x" * 60, headers="ä" * 20
        )
        for n in range(4)
    ]
    claim = site.claim(site.create(rows), site.lease(), max_bytes=max_bytes)
    assert site.ids(claim) == [timeout_id(n) for n in range(size)]
    assert len(site.legacy_rows()) == 4 - size


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
        pytest.param(Placement(table="my.own timeouts"), id="table"),
    ],
)
def test_a_placement_says_where_the_table_is(
    build_site: Callable[..., Site], placement: Placement
) -> None:
    """Taken verbatim, prefix or table; a column that somebody added does no harm."""
    site = build_site(placements={"Sales.Orders": placement})
    table = placement.table or f"{placement.prefix}TimeoutData"
    source = site.source_of(table)
    site.create(hours(1), source=source)
    site.execute(f'ALTER TABLE {site.quoted(source)} ADD COLUMN "Note" text')
    endpoint, lease = site.store.find("Sales.Orders"), site.lease()
    claim = site.claim(endpoint, lease)
    assert claim.batch.source == source
    assert site.claims.release(claim.batch, lease) == 1
    assert site.legacy_rows(source) == hours(1)
    assert [found.name for found in site.store.endpoints()] == ["Sales.Orders"]


CONTENTS = [
    (None, None),
    ("", b""),
    ("", None),
    (None, b"\x00"),
    ('{\r\n  "a": "ä€😀"\r\n}', bytes(range(256))),
]
"""Headers and bodies."""


@pytest.mark.every_store
def test_release_puts_rows_back_byte_for_byte(site: AnySite) -> None:
    """And the ledger has the hash of it by which ``verify`` will know it."""
    rows = [
        LegacyRow(
            id=timeout_id(number),
            headers=headers,
            body=body,
            destination="Büro@MACHINE",
            saga_id=None,
            due=due_in(timedelta(microseconds=7)),
            version=None,
        )
        for number, (headers, body) in enumerate(CONTENTS)
    ]
    endpoint, lease = site.create(rows), site.lease()
    claim = site.claim(endpoint, lease)
    kept = {row.store_id: row for row in site.ledger_rows()}
    assert [kept[row.id].body for row in rows] == [row.body for row in rows]
    assert all(row.content_hash == content_hash(row.headers, row.body) for row in kept.values())
    assert site.claims.release(claim.batch, lease) == len(rows)
    assert (site.legacy_rows(), site.remains()) == (rows, [])


@pytest.mark.every_store
def test_an_id_that_is_stored_again_keeps_no_other_row(site: AnySite) -> None:
    """It goes to quarantine and stays there while the store has the other; nothing circles."""
    rows = hours(5)
    endpoint, lease = site.create(rows), site.lease()
    claim = site.claim(endpoint, lease)
    theirs = replace(rows[3], body=b"theirs")
    site.insert([theirs])
    assert site.claims.release(claim.batch, lease) == 4
    for _ in range(2):
        assert site.claims.release_quarantined(None) == 0
        (kept,) = (row for row in site.ledger_rows() if row.state == RowState.QUARANTINED)
        assert (kept.store_id, kept.reason) == (theirs.id, Reason.ID_TAKEN)
    assert len(site.legacy_rows()) == 5
    assert site.manager.remove(theirs.id)
    assert site.claims.release_quarantined(None) == 1
    assert [row.id for row in site.legacy_rows()] == [row.id for row in rows]


def saga(number: int) -> LegacyRow:
    """Return a row of a saga of its own."""
    return replace(hours(1, start=number)[0], saga_id=timeout_id(number))


@pytest.mark.own_table
def test_a_row_that_the_table_refuses_keeps_no_other_row(site: Site) -> None:
    """However many there are; the detail has the database's words."""
    endpoint, lease = site.create([saga(number) for number in range(9)]), site.lease()
    claim = site.claim(endpoint, lease)
    site.execute(f'CREATE UNIQUE INDEX one_of_a_saga ON {site.quoted()} ("SagaId")')
    twins = [replace(saga(20 + number), saga_id=timeout_id(number)) for number in (0, 4, 5)]
    site.insert(twins)
    assert site.claims.count_taken(site.source) == 0
    assert site.claims.release(claim.batch, lease) == 6
    assert site.claims.release_quarantined(None) == 0
    kept = [row for row in site.ledger_rows() if row.state == RowState.QUARANTINED]
    assert [row.store_id for row in kept] == [timeout_id(number) for number in (0, 4, 5)]
    assert {row.reason for row in kept} == {Reason.REFUSED_BY_STORE}
    assert all("refused rows that go back" in row.reason_detail for row in kept)
    assert len(site.legacy_rows()) == 6 + 3
    assert site.manager.remove(twins[0].id)
    assert site.claims.release_quarantined(endpoint) == 1


def test_rows_that_no_claim_gets_are_counted(site: AnySite) -> None:
    """What the ledger has is not among them, nor what waits for a destination."""
    endpoint, lease = site.create(hours(4)), site.lease()
    site.claim(endpoint, lease, max_rows=1)
    site.insert(hours(1))
    request = site.request(endpoint, lease)
    assert site.claims.unclaimed(request) in (3, 0)  # nobody locks a document
    assert site.claims.unclaimed(replace(request, due_until=NOW + timedelta(hours=2.5))) in (1, 0)


_KEEPERS = {
    "postgresql": (
        "CREATE FUNCTION keeps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$",
        "CREATE TRIGGER soft_delete {} DELETE ON {} FOR EACH ROW EXECUTE FUNCTION keeps()",
    ),
    "sqlite": ("", "CREATE TRIGGER soft_delete BEFORE DELETE ON {1} BEGIN SELECT RAISE({2}); END"),
    "mysql": (
        "",
        "CREATE TRIGGER soft_delete BEFORE DELETE ON {1} FOR EACH ROW "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'soft_delete forbids it'",
    ),
}
"""How each database is told to keep rows: a function, and a trigger called ``soft_delete``."""


@pytest.mark.own_table
@pytest.mark.parametrize("says_so", [False, True], ids=["silently", "with an error"])
def test_a_table_that_keeps_its_rows_is_an_error_that_names_the_trigger(
    site: Site, *, says_so: bool
) -> None:
    """At the trial and at every claim, until nothing keeps them; nothing is in both places."""
    endpoint, lease = site.create(hours(3)), site.lease()
    function, trigger = _KEEPERS[site.kind]
    body = "RAISE EXCEPTION 'soft_delete forbids it';" if says_so else "RETURN NULL;"
    how = "ABORT, 'soft_delete forbids it'" if says_so else "IGNORE"
    for text in filter(None, (function.format(body), trigger.format("BEFORE", site.quoted(), how))):
        site.execute(text)
    if says_so or site.is_mysql:  # an error of each row, which is left alone for a while
        assert site.claims.claim(site.request(endpoint, lease)) is None
    else:
        with pytest.raises(RowsKept, match="soft_delete"):
            site.store.trial_claim(endpoint)
        with pytest.raises(RowsKept, match="soft_delete"):
            site.claim(endpoint, lease)
    assert (site.legacy_rows(), site.ledger_rows()) == (hours(3), [])
    of_table = f" ON {site.quoted()}" if site.is_postgresql else ""
    site.execute(f"DROP TRIGGER soft_delete{of_table}")
    with closing(site.second()) as later:
        assert later.claim(endpoint, lease).batch.size == 3


@pytest.mark.own_table
def test_a_row_that_is_written_again_when_it_is_removed_is_not_claimed(site: Site) -> None:
    """It would be sent twice: by us, and by whoever finds it there."""
    if not site.is_postgresql:
        pytest.skip("only PostgreSQL lets a trigger write the table it is on")
    endpoint, lease = site.create(hours(3)), site.lease()
    function, trigger = _KEEPERS[site.kind]
    site.execute(function.format(f"INSERT INTO {site.quoted()} SELECT OLD.*; RETURN OLD;"))
    site.execute(trigger.format("AFTER", site.quoted()))
    with pytest.raises(RowsKept, match="rows that are removed stay there"):
        site.claim(endpoint, lease)
    assert (site.legacy_rows(), site.ledger_rows()) == (hours(3), [])


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


def test_a_former_owner_moves_nothing(site: AnySite) -> None:
    """Who was paused claims no rows of a lane that is another's, and gives none back."""
    endpoint, lease = site.create(hours(2)), site.lease()
    claim = site.claim(endpoint, lease, max_rows=1)
    site.lease()
    nobodys = replace(lease, lane=Lane(1))
    with pytest.raises(LeaseLost):
        site.claims.release(claim.batch, lease)
    for stale in (lease, nobodys):
        with pytest.raises(LeaseLost):
            site.claims.claim(site.request(endpoint, stale))
    assert [row.id for row in site.legacy_rows()] == [timeout_id(1)]
    assert site.states() == {"claimed": 1}


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
