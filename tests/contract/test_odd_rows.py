"""One row that cannot be claimed, or read, as others are: they go on, and it is set aside."""

from __future__ import annotations

from contextlib import closing

import pytest
import sqlalchemy as sa

from migrator.database.engine import writing
from migrator.errors import StoreError
from migrator.ledger.states import RowState
from migrator.nservicebus.conversion import Quarantine
from tests.contract.any_site import hours, timeout_id
from tests.contract.site import Site

pytestmark = pytest.mark.tables

_KEEPERS = {
    "postgresql": (
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF OLD.\"Id\" = '{id}' THEN RAISE EXCEPTION 'it is kept'; END IF; RETURN OLD; END $$",
        "CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()",
    ),
    "mysql": (
        "CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW IF OLD.Id = '{id}' THEN "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'it is kept'; END IF",
    ),
    "sqlite": (
        "CREATE TRIGGER keep BEFORE DELETE ON {table} WHEN OLD.\"Id\" = '{id}' "
        "BEGIN SELECT RAISE(ABORT, 'it is kept'); END",
    ),
}
"""What makes the table refuse to give up one row."""


def test_a_row_that_its_table_keeps_is_left_and_costs_nothing(site: Site) -> None:
    """All others are claimed, and it is not found again at once."""
    endpoint, lease, kept = site.create(hours(40)), site.lease(), timeout_id(20)
    for statement in _KEEPERS[site.kind]:
        site.execute(statement.format(id=kept, table=site.quoted()).replace(":", r"\:"))
    claims = site.claim_all(endpoint, lease, max_rows=25)
    others = [timeout_id(n) for n in range(40) if n != 20]
    assert sorted(each for claim in claims for each in site.ids(claim)) == others
    assert [each.id for each in site.legacy_rows()] == [kept]
    asked = site.request(endpoint, lease)
    assert (site.claims.promising([asked]), site.claims.claim(asked)) == ([], None)
    assert len(site.batches.open_batches(lease)) == len(claims) <= 8
    with closing(site.second()) as other:
        assert other.claims.claim(asked) is None  # it finds out by itself
    on_table = f" ON {site.quoted()}" if site.is_postgresql else ""
    site.execute(f"DROP TRIGGER keep{on_table}")
    with closing(site.second()) as other:
        claim = other.claims.claim(asked)
    assert claim is not None
    assert site.ids(claim) == [kept]
    if site.is_postgresql:
        site.execute("DROP FUNCTION keep")


def test_a_row_whose_text_cannot_be_read_is_set_aside_as_it_is(site: Site) -> None:
    """Byte for byte, so that it can go back; the claim beside it takes all others."""
    if not site.is_sqlite:
        pytest.skip("it keeps no such bytes, or only in a database of its own")
    endpoint, lease, odd = site.create(hours(40)), site.lease(), timeout_id(20)
    bad = b'{"a": "\xff\xfe"}'
    site.execute(
        f'UPDATE {site.quoted()} SET "Headers" = CAST(:bad AS TEXT) WHERE "Id" = :id',
        bad=bad, id=odd,
    )  # fmt: skip
    claims = site.claim_all(endpoint, lease, max_rows=100)
    assert sum(claim.batch.size for claim in claims) == 40
    found, unreadable = list[str](), list[Quarantine]()
    for claim in claims:
        rows, bad_ones = site.batches.readable(claim.batch)
        found += [each.id for each in rows]
        unreadable += bad_ones
    assert (sorted(found), unreadable) == ([timeout_id(n) for n in range(40) if n != 20], [])
    row = site.tables.timeout.c
    kept = sa.select(
        row.store_id, row.reason, sa.cast(row.headers, sa.LargeBinary), row.reason_detail
    ).where(row.state == RowState.QUARANTINED)
    with site.engine.connect() as connection:
        ((store_id, reason, headers, detail),) = connection.execute(kept).all()
    assert (store_id, reason, headers) == (odd, "unprocessable", bad)
    assert "UTF-8" in detail or "function" in detail
    for claim in claims:
        site.hand_over(claim, lease)
    assert site.claims.release_quarantined(endpoint) == 1
    with site.engine.connect() as connection:
        put_back = sa.text(f'SELECT CAST("Headers" AS BLOB) FROM {site.quoted()}')
        assert connection.execute(put_back).scalar_one() == bad


def test_a_row_of_the_ledger_that_cannot_be_read_is_found_alone(site: Site) -> None:
    """The others are read as ever, in their order."""
    endpoint, lease = site.create(hours(40)), site.lease()
    claim = site.claim(endpoint, lease)
    if not site.is_sqlite:
        pytest.skip("its columns take no such value")
    table = site.tables.timeout
    odd = sa.update(table).where(table.c.row_index.in_([7, 23])).values(due=sa.literal("no time"))
    with writing(site.engine) as connection:
        connection.execute(sa.text(str(odd.compile(compile_kwargs={"literal_binds": True}))))
    batch = site.batches.find(claim.batch.id)
    assert batch is not None
    rows, unreadable = site.batches.readable(batch)
    assert [each.row_index for each in rows] == [n for n in range(40) if n not in {7, 23}]
    assert [(each.row_index, each.timeout_id) for each in unreadable] == [
        (n, timeout_id(n)) for n in (7, 23)
    ]
    assert all("ValueError" in each.detail for each in unreadable)


def test_what_is_of_the_table_is_blamed_on_no_row(site: Site) -> None:
    """A table that is gone raises, and nothing is left out for it."""
    endpoint, lease = site.create(hours(2)), site.lease()
    asked = site.request(endpoint, lease)
    assert site.claims.promising([asked])
    site.execute(f"DROP TABLE {site.quoted()}")
    with pytest.raises(StoreError):
        site.claims.claim(asked)
    assert site.states() == {}
