"""What only a server with several databases and users shows about the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from dev.servers import PostgresServer
from migrator.database.engine import open_engine, reading, writing, writing_once
from migrator.errors import LedgerCloned, LedgerMissing
from migrator.ledger.adoption import SqlAdoption
from migrator.ledger.identity import check_identity
from migrator.ledger.states import BatchState, Event
from migrator.ledger.tables import build_tables, names_for
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import FIRST_DISPATCHER_LANE, EndpointName
from migrator.preflight.queries import LedgerFacts
from migrator.stores.sql.dialects.postgresql import PostgresqlDialect
from tests.contract.site import Site, hours


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    """A PostgreSQL database with a ledger."""
    engine = open_engine(database)
    yield Site(engine=engine)
    engine.dispose()


def test_a_cloned_database_is_refused_until_adopted(
    site: Site, postgres_server: PostgresServer
) -> None:
    """A clone must not use the original's queues; adopted, it has its own and knows its doubts."""
    lease = site.lease()
    endpoint = site.create(hours(4))
    claimed = site.claim(endpoint, lease, max_rows=2).batch
    staged = site.claim(endpoint, lease).batch
    site.batches.advance(staged, Event.BEGIN_STAGING, lease)
    site.leases.evict(lease.lane, lease.owner)
    site.engine.dispose()
    clone = postgres_server.create_database(template=str(site.engine.url.database))
    engine = open_engine(postgres_server.url(clone))
    tables = build_tables(names_for(engine))
    with pytest.raises(LedgerCloned, match="db adopt"):
        LedgerFacts(engine, tables).verify()
    new_id = SqlAdoption(engine, tables, site.runs).adopt()
    assert new_id != site.ledger_id
    assert check_identity(engine, tables) == new_id
    copy = Site(engine=engine)
    states = {
        batch.id: found.state
        for batch in (claimed, staged)
        if (found := copy.batches.find(batch.id))
    }
    assert states == {claimed.id: BatchState.CLAIMED, staged.id: BatchState.DOUBTFUL}
    assert check_identity(site.engine, site.tables) == site.ledger_id
    engine.dispose()
    postgres_server.drop_database(clone)


def test_a_database_without_ledger_says_what_to_do(database: str) -> None:
    """The remedy is in the message."""
    engine = open_engine(database)
    with pytest.raises(LedgerMissing, match="migrator db upgrade"):
        LedgerFacts(engine, build_tables(names_for(engine))).verify()
    engine.dispose()


def test_one_of_many_gets_a_free_lane(site: Site) -> None:
    """However many ask at once for a lane nobody ever had, one gets it."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: _try(site, n), range(8)))
    assert sum(found) == 1


def _try(site: Site, number: int) -> bool:
    try:
        site.lease(5, f"owner {number}")
    except AssertionError:
        return False
    return True


def test_sessions_are_prepared(site: Site) -> None:
    """Time zone, time limits and name of every session."""
    wanted = {
        "TimeZone": "UTC",
        "lock_timeout": "5s",
        "statement_timeout": "1min",
        "application_name": "migrator",
        "jit": "off",
        "synchronous_commit": "on",
    }
    with site.engine.connect() as connection:
        found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in wanted}
    assert found == wanted


def test_sessions_isolate_transactions_as_claims_want_it(site: Site) -> None:
    """Whatever a database has by default, and after a session was used in another way."""
    site.execute(
        f"ALTER DATABASE {site.engine.url.database} "
        "SET default_transaction_isolation = 'serializable'"
    )
    engine = open_engine(site.engine.url)
    show = "SHOW transaction_isolation"
    with reading(PostgresqlDialect().read_only(engine)) as connection:
        assert connection.exec_driver_sql(show).scalar_one() == "repeatable read"
    for opening in (reading, writing, writing_once):
        with opening(engine) as connection:
            assert connection.exec_driver_sql(show).scalar_one() == "read committed"
    engine.dispose()


def test_dispatchers_that_begin_at_once_get_a_lane_each(site: Site) -> None:
    """However many processes ask for however many endpoints, nobody shares and nobody fails."""
    endpoints = [
        StoreEndpoint(name=EndpointName(f"E{n}"), source=f"public.E{n}_TimeoutData")
        for n in range(6)
    ]
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(site.leases.dispatcher_lane, endpoints * 4))
    assert sorted(set(found)) == [FIRST_DISPATCHER_LANE + n for n in range(6)]
    assert found == found[:6] * 4


def test_folding_is_quick_without_statistics(site: Site) -> None:
    """A ledger nobody analysed is not searched as a whole for each of its batches."""
    lease = site.lease(1000)
    run = site.run(site.create())
    site.execute("ALTER TABLE migrator.timeout SET (autovacuum_enabled = false)")
    site.execute(
        "INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size,"
        " body_bytes, lease_token, dispatched_at) SELECT :run, 'Sales', 's', 1000, 'dispatch',"
        " 'dispatched', 1, 20, 0, 1, now() FROM generate_series(1, 3000)",
        run=run,
    )
    site.execute(
        "INSERT INTO migrator.timeout (source, endpoint, store_id, batch_id, row_index, due,"
        " content_hash) SELECT 's', 'Sales', n, 1 + n / 20, n % 20, now(), 'x'"
        " FROM generate_series(0, 59999) AS g(n)"
    )
    began_s = time.monotonic()
    assert site.dispatched.prune(lease, older_than=timedelta(seconds=-1)) == 4000
    assert time.monotonic() - began_s < 8  # searched as a whole it takes far more than that
    assert site.states() == {"dispatched": 60_000}
