"""A timeout's whole way on databases that only some people can run: ``MSSQL_URL``, ``ORACLE_URL``.

Everything is said through the program's own parts, so the same lines run on SQLite and PostgreSQL,
where CI shows that the test itself is right. Give it a database for nothing else: the legacy table
is dropped afterwards, and the ledger stays. SQL Server's must allow snapshot isolation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from sqlalchemy import delete

from migrator.database.engine import open_engine, writing
from migrator.ledger.states import BatchState
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import DelayedMessage
from migrator.nservicebus.timeouts import NO_SAGA, TimeoutId
from migrator.stores.sql.seeding import SeedRow, create_table, insert_rows
from migrator.verify.stores import SqlVerifications
from tests.contract.site import NOW, Site

_URLS: Final = {"mssql": "MSSQL_URL", "oracle": "ORACLE_URL"}


@pytest.fixture(params=["postgresql", "sqlite", *_URLS])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A site on each kind of database, for an endpoint that nobody else knows."""
    if request.param == "postgresql":
        url = request.getfixturevalue("database")
    else:
        variable = _URLS.get(request.param, "")
        url = os.environ.get(variable) if variable else f"sqlite:///{tmp_path}/legacy.db"
        if not url:
            pytest.skip(f"runs on request: set {variable} to a database for nothing else")
    engine = open_engine(url)
    yield Site(engine=engine, endpoint_name=f"T{uuid4().hex[:8]}", schema=None)
    engine.dispose()


@pytest.fixture
def endpoint(anywhere: Site) -> Iterator[StoreEndpoint]:
    """Three timeouts, an hour apart: text of any language, an empty body, many bytes."""
    site, rows = (
        anywhere,
        [_row(0, "Größe €", b"{}"), _row(1, "B", b""), _row(2, "C", b"x" * 10**5)],
    )
    blank = site.store.blank(site.store.source_of(site.endpoint_name))
    create_table(site.engine, blank)
    insert_rows(site.engine, blank, rows)
    yield site.store.find(site.endpoint_name)
    with writing(site.engine) as connection:
        blank.table.drop(connection)


def _row(number: int, destination: str, body: bytes) -> SeedRow:
    return SeedRow(
        id=str(uuid4()),
        destination=destination,
        saga_id=NO_SAGA,
        body=body,
        due_at=NOW + timedelta(hours=number + 1),
        headers_text='{"NServiceBus.MessageId": "ü"}',
    )


def _survey(site: Site, endpoint: StoreEndpoint) -> list[tuple[object, ...]]:
    found = [row for chunk in site.store.survey(endpoint) for row in chunk]
    return sorted((r.id, r.destination, r.due_at, r.headers_text, r.body_bytes) for r in found)


def test_rows_are_claimed_by_due_time_and_go_back_as_they_were(
    anywhere: Site, endpoint: StoreEndpoint
) -> None:
    """What is claimed is what was there, soonest first, and release puts the same back."""
    site, before = anywhere, _survey(anywhere, endpoint)
    lease = site.lease()
    site.store.trial_claim(endpoint)
    claim = site.claim(endpoint, lease, max_rows=2)
    rows = site.batches.rows(claim.batch)
    assert [row.destination for row in rows] == ["Größe €", "B"]
    assert [row.body for row in rows] == [b"{}", b""]
    assert {row.headers_text for row in rows} == {'{"NServiceBus.MessageId": "ü"}'}
    rest = site.claim(endpoint, lease, max_rows=2, cursor=claim.cursor)
    assert (rest.batch.size, rest.batch.body_bytes) == (1, 10**5)
    assert site.claims.claim(site.request(endpoint, lease)) is None
    assert [site.claims.release(each.batch, lease) for each in (claim, rest)] == [2, 1]
    assert _survey(site, endpoint) == before


def test_a_claim_skips_what_others_hold(anywhere: Site, endpoint: StoreEndpoint) -> None:
    """A row that a timeout manager is removing is left to it, and nobody waits."""
    site = anywhere
    if site.is_sqlite:
        pytest.skip("one writer at a time")
    table, lease = site.store.legacy_table(endpoint.source).table, site.lease()
    first = min(_survey(site, endpoint), key=lambda row: str(row[2]))[0]
    other = site.second()
    with writing(other.engine) as connection:
        connection.execute(delete(table).where(table.c.Id == first))
        assert site.claim(endpoint, lease).batch.size == 2
    other.engine.dispose()


def test_the_books_say_what_was_claimed(anywhere: Site, endpoint: StoreEndpoint) -> None:
    """Content is as it was claimed, by its hash, and nothing is in both places."""
    site, lease = anywhere, anywhere.lease()
    claim = site.claim(endpoint, lease, max_rows=2)
    books = SqlVerifications(site.engine, site.tables, site.store)
    rows = [row for row in books.rows(after=0, at_most=1000) if row.batch == claim.batch.id]
    assert [*books.intact([row.id for row in rows]).values()] == [True, True]
    balance = next(each for each in books.balances() if each.source == endpoint.source)
    assert (balance.in_store, balance.claimed) == (1, 2)
    assert balance.rows == {BatchState.CLAIMED: 2}
    assert books.in_both_places([endpoint.name], at_most=5) == (0, [])
    site.claims.release(claim.batch, lease)


def test_a_stored_timeout_is_known_again(anywhere: Site, endpoint: StoreEndpoint) -> None:
    """The same timeout twice is one row, in the table or in the ledger, and never too early."""
    site, lease = anywhere, anywhere.lease()
    due_at = NOW + timedelta(days=1, milliseconds=1)
    new = DelayedMessage(
        native_id="m",
        headers={},
        id=TimeoutId(str(uuid4())),
        destination="D",
        saga_id=str(uuid4()),
        due_at=due_at,
        headers_text="{}",
        body=b"",
    )
    first = site.intake.apply(endpoint, [new, new], lease)
    again = site.intake.apply(endpoint, [new], lease)
    assert (first.stored + first.known, first.stored, again.known) == (2, 1, 1)
    assert next(row[2] for row in _survey(site, endpoint) if row[0] == new.id) >= due_at  # type: ignore[operator]
    claim = site.claim(endpoint, lease)
    assert site.intake.apply(endpoint, [new], lease).known == 1
    site.claims.release(claim.batch, lease)
