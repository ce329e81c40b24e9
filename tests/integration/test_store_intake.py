"""Storing new timeouts next to claims that are just under way, on a real PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest

from migrator.database.engine import open_engine, writing
from migrator.domain.states import Mode
from migrator.domain.timeouts import NO_SAGA, TimeoutId
from migrator.ports import Applied, Batch, Lease, NewTimeout, StoreEndpoint
from migrator.stores.fencing import hold_lease
from tests.contract.site import NOW, Site

_FAST_S = 0.1
"""For 500 rows; they take a third of it on a small machine."""


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    """A PostgreSQL database with a ledger."""
    engine = open_engine(database)
    yield Site(engine=engine)
    engine.dispose()


def _new(number: int) -> NewTimeout:
    return NewTimeout(
        id=TimeoutId(str(uuid4())),
        destination="Billing",
        saga_id=NO_SAGA,
        due_at=NOW + timedelta(minutes=number),
        headers_text='{"NServiceBus.MessageId": "m"}' * 20,
        body=b"x" * 500,
    )


def _waits(site: Site) -> bool:
    """Return whether somebody waits for a lock within ten seconds."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    for _ in range(500):
        with site.engine.connect() as connection:
            if connection.exec_driver_sql(query).scalar_one():
                return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_redelivered_message_is_known_while_its_row_is_being_claimed(
    site: Site, is_committed: bool
) -> None:
    """Storing waits for the claim, then finds the row where the claim left it."""
    endpoint, lease = site.create(), site.lease()
    row = _new(1)
    site.intake.apply(endpoint, [row], lease)
    request = site.request(endpoint, lease, mode=Mode.DISPATCH)
    legacy = site.store.legacy_table(endpoint.source)
    with ThreadPoolExecutor(1) as pool:
        with site.engine.connect() as claiming:
            hold_lease(claiming, site.tables, lease)
            assert site.claims.claim_within(claiming, legacy, request) is not None
            storing = pool.submit(site.intake.apply, endpoint, [row], lease)
            assert _waits(site)
            claiming.commit() if is_committed else claiming.rollback()
        assert storing.result(timeout=10) == Applied(stored=0, known=1, cleared=0)
    assert len(site.legacy_rows()) + len(site.ledger_rows()) == 1


def test_a_row_that_is_being_given_back_is_known(site: Site) -> None:
    """Whoever of the two comes first, one row is in the store."""
    endpoint, lease = site.create(), site.lease()
    rows = [_new(n) for n in range(40)]
    site.intake.apply(endpoint, rows, lease)
    batch = site.claim(endpoint, lease, mode=Mode.DISPATCH).batch

    def give(index: int, batch: Batch = batch) -> None:
        site.claims.give_back(batch, [index], lease)

    with ThreadPoolExecutor(4) as pool:
        given = [pool.submit(give, n) for n in range(40)]
        stored = [pool.submit(site.intake.apply, endpoint, [row], lease) for row in rows]
        assert [f.result(timeout=20) for f in given] == [None] * 40
        assert {f.result(timeout=20).known for f in stored} == {1}
    assert sorted(row.id for row in site.legacy_rows()) == sorted(row.id for row in rows)
    assert site.ledger_rows() == []


def _timed(site: Site, endpoint: StoreEndpoint, lease: Lease, rows: list[NewTimeout]) -> float:
    began_s = time.monotonic()
    site.intake.apply(endpoint, rows, lease)
    return time.monotonic() - began_s


@pytest.mark.punctual
def test_storing_many_rows_is_quick(site: Site) -> None:
    """500 new rows are one statement; redelivered ones cost no more."""
    endpoint, lease = site.create(), site.lease()
    chunks = [[_new(n) for n in range(500)] for _ in range(5)]
    assert min(_timed(site, endpoint, lease, chunk) for chunk in chunks) < _FAST_S
    assert min(_timed(site, endpoint, lease, chunk) for chunk in chunks) < _FAST_S
    assert len(site.legacy_rows()) == 2500


def test_a_lane_taken_over_while_storing_waits(site: Site) -> None:
    """The next owner begins when the former one's rows are in."""
    site.create()
    lease = site.lease()
    with ThreadPoolExecutor(1) as pool:
        with writing(site.engine) as storing:
            hold_lease(storing, site.tables, lease)
            taking = pool.submit(site.lease)
            assert _waits(site)
        assert taking.result(timeout=10).token == lease.token + 1
