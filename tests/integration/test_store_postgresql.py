"""Claims next to others who use the same table, on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import Connection, event, text

from migrator.database import engine
from migrator.database.engine import open_engine, reading, writing
from migrator.errors import StoreError, StoreUnavailable
from migrator.ledger.claims import hold_lease
from migrator.ledger.report import HeldDestination
from migrator.ledger.rights import GrantedTable, Purpose, Work, grants
from migrator.ledger.states import Mode
from migrator.ledger.tables import quoted
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.satellites import ClearTimeouts
from migrator.nservicebus.timeouts import (
    FIRST_DISPATCHER_LANE,
    RECALL_LANE,
    Lane,
)
from migrator.recovery.lost_window import FailoverTerms, LostWindow
from migrator.stores.requests import ClaimRequest
from migrator.stores.sql.dialects.postgresql import PostgresqlDialect
from migrator.stores.sql.legacy_table import parse_source
from migrator.stores.sql.moving import Move
from migrator.stores.sql.seeding import SeedSpec, insert_rows, invent
from tests.contract.nhibernate_site import NHibernateSite
from tests.contract.site import COLUMNS, NOW, Site, hours, locked, timeout_id
from tests.support.tagged import tagged_message


def test_claim_skips_rows_a_timeout_manager_is_deleting(site: Site) -> None:
    """A row locked by a running delete is left to it; if that is rolled back, a later claim's."""
    endpoint, lease = site.create(hours(3)), site.lease()
    with site.engine.connect() as manager:
        locked(manager, site.quoted(), timeout_id(0))
        claim = site.claim(endpoint, lease)
        manager.rollback()
    assert site.ids(claim) == [timeout_id(1), timeout_id(2)]
    assert site.ids(site.claim(endpoint, lease)) == [timeout_id(0)]


def test_renewing_does_not_wait_for_a_claim(site: Site) -> None:
    """A slow claim never costs its owner the lane."""
    lease = site.lease()
    with writing(site.engine) as claiming:
        hold_lease(claiming, site.tables, lease)
        site.leases.renew(lease, timedelta(minutes=1), doing="claiming")


def test_taking_a_lane_over_waits_for_a_claim_under_way(site: Site) -> None:
    """The batch of a late claim belongs to the new owner, never to nobody."""
    endpoint = site.create(hours(3))
    old = site.leases.acquire(Lane(0), "old", timedelta(seconds=-1))
    assert old is not None
    with ThreadPoolExecutor(1) as pool:
        with writing(site.engine) as claiming:
            hold_lease(claiming, site.tables, old)
            taking = pool.submit(site.lease, 0, "new")
            request = site.request(endpoint, old, run=site.run(endpoint))
            legacy = site.store.legacy_table(endpoint.source)
            assert site.claims.claim_within(claiming, legacy, request) is not None
            assert not taking.done()
        new = taking.result(timeout=10)
    (adopted,) = site.batches.open_batches(new)
    assert adopted.size == 3


def test_a_session_whose_zone_was_lost_moves_no_due_time(site: Site) -> None:
    """A pooler may hand us another session than the one that was told to be in UTC."""
    rows = hours(2)
    endpoint, lease = site.create(rows), site.lease()

    @event.listens_for(site.engine, "begin")
    def _forget(connection: Connection) -> None:
        connection.exec_driver_sql("SET TIME ZONE 'Pacific/Chatham'")

    claim = site.claim(endpoint, lease)
    found = [row.due_at for row in site.batches.rows(claim.batch)]
    assert found == [NOW + timedelta(hours=n) for n in (1, 2)]
    assert site.claims.release(claim.batch, lease) == 2
    assert site.legacy_rows() == rows


def test_no_transaction_is_open_between_calls(site: Site) -> None:
    """Nothing we did keeps a lock or holds vacuum back."""
    endpoint, lease = site.create(hours(3)), site.lease()
    claim = site.claim(endpoint, lease)
    site.batches.rows(claim.batch)
    site.claims.claim(site.request(endpoint, lease))
    next(iter(site.store.scan(endpoint)), None)
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND state LIKE 'idle in%' AND pid <> pg_backend_pid()"
    )
    with site.engine.connect() as connection:
        assert connection.execute(query).scalar_one() == 0


def test_another_schema(database: str) -> None:
    """The legacy tables may be in any schema; its name may need quotes."""
    engine = open_engine(database)
    with writing(engine) as connection:
        connection.execute(text('CREATE SCHEMA "Sales EU.x"'))
    site = Site(engine=engine, schema="Sales EU.x")
    rows = hours(2)
    site.create(rows)
    endpoint, lease = site.store.find("Sales.Orders"), site.lease()
    assert parse_source(endpoint.source) == ("Sales EU.x", "Sales_Orders_TimeoutData")
    site.claims.release(site.claim(endpoint, lease).batch, lease)
    assert site.legacy_rows() == rows
    engine.dispose()


@pytest.fixture
def role(site: Site) -> Iterator[str]:
    """A login role without any rights."""
    name = "daemon of test"
    site.execute(f"CREATE ROLE {quoted(name)} LOGIN")
    yield name
    site.execute(f"DROP OWNED BY {quoted(name)}")
    site.execute(f"DROP ROLE {quoted(name)}")


def _as_role(site: Site, role: str) -> Site:
    return Site(engine=open_engine(site.engine.url.set(username=role)))


def _grant(site: Site, role: str) -> None:
    legacy = site.store.legacy_table(site.source)
    table = GrantedTable(
        schema=str(legacy.table.schema), name=legacy.table.name, lock_column=legacy.lock_column
    )
    for statement in grants(
        site.tables.names, role, [table], Work(purposes=[*Purpose])
    ).splitlines():
        site.execute(statement)


def test_the_printed_grants_are_enough(site: Site, role: str) -> None:
    """A user with them can do everything; without one of them, the missing one is named."""
    endpoint = site.create(hours(3))
    _grant(site, role)
    limited = _as_role(site, role)
    site.execute(f"REVOKE DELETE ON {site.quoted()} FROM {quoted(role)}")
    with pytest.raises(StoreError, match=r"lacks DELETE on public\.Sales_Orders.*db grants"):
        limited.store.trial_claim(endpoint)
    _grant(site, role)
    limited.store.trial_claim(endpoint)
    lease = limited.lease()
    claim = limited.claim(endpoint, lease)
    assert limited.parking.park(claim.batch, {2: "Gone"}, lease).size == 2
    assert limited.claims.release(claim.batch, lease) == 2
    assert (
        limited.intake.apply(endpoint, [ClearTimeouts(saga_id=timeout_id(9))], lease).cleared == 0
    )
    _dispatch(limited, endpoint, lease)
    limited.queries.progress()
    limited.settled_rows.purge(before=NOW + timedelta(days=9999))
    _settle(limited, endpoint)
    limited.leases.release(lease)
    limited.engine.dispose()
    assert len(site.legacy_rows()) == 1  # one is parked, and one was claimed last


def _settle(site: Site, endpoint: StoreEndpoint) -> None:
    """Find out what `migrator db adopt --after-failover --dry-run` says."""
    seen = tagged_message(700, 0, timeout_id(0), 7)
    terms = FailoverTerms(
        endpoints=[endpoint],
        mode=Mode.STAGED,
        doubtful_from=NOW,
        left_until=NOW,
    )
    failover = LostWindow(site.engine, site.tables, site.store, site.claims, site.runs)
    assert not failover.cutoffs(failover.last_heartbeat())
    lease = site.lease(RECALL_LANE)
    for _ in range(2):  # the second time the numbers are above that already
        found = failover.recover([seen], terms, lease, is_dry_run=True)
        assert found.handed_over_from_store == 1
    site.leases.release(lease)
    assert site.claim(endpoint, site.lease(5, "another"), max_rows=1).batch.id > 700


def _dispatch(site: Site, endpoint: StoreEndpoint, lease: Lease) -> None:
    """Do with the ledger what a dispatcher does."""
    held = HeldDestination(
        endpoint=endpoint.name,
        source=endpoint.source,
        destination="A",
        reason="unbound",
        detail="no way",
        tries=1,
        since=NOW,
        next_try_at=NOW,
    )
    assert site.leases.dispatcher_lane(endpoint) == FIRST_DISPATCHER_LANE
    site.held.hold([held])
    assert site.held.held(endpoint) == [held]
    site.held.free(endpoint, ["A"])
    assert site.dispatched.prune(lease, older_than=timedelta(0)) == 0


def test_a_connection_that_broke_while_it_rested_is_replaced(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before it is used again; one that was used just now is not."""
    pid = text("SELECT pg_backend_pid()")
    with reading(site.engine) as connection:
        broken = connection.scalar(pid)
    other = open_engine(site.engine.url)
    with reading(other) as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": broken})
    other.dispose()
    with pytest.raises(StoreUnavailable), reading(site.engine, StoreError, doing="x") as connection:
        connection.scalar(pid)
    with reading(site.engine) as connection:
        broken = connection.scalar(pid)
        connection.execute(text("SELECT 1"))
    monkeypatch.setattr(engine, "_FRESH_S", 0.0)
    other = open_engine(site.engine.url)
    with reading(other) as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": broken})
    other.dispose()
    with reading(site.engine, StoreError, doing="x") as connection:
        assert connection.scalar(pid) != broken


def _plan(site: Site, request: ClaimRequest) -> str:
    """Return how the server would carry out a claim."""
    dialect, legacy = PostgresqlDialect(), site.store.legacy_table(request.endpoint.source)
    statement = dialect.statement(
        Move(legacy=legacy, ledger=site.tables, request=request, batch_id=1)
    )
    with writing(site.engine) as connection:
        dialect.plan(connection, request)
        compiled = statement.compile(site.engine, compile_kwargs={"literal_binds": True})
        rows = connection.execute(text(f"EXPLAIN {compiled}".replace(":", r"\:")))
        return "\n".join(row[0] for row in rows)


def _fill(site: Site, count: int, source: str | None = None) -> list[str]:
    """Fill a table with invented rows, due within five days; return their ids.

    The server is kept from looking at it in the middle of a test: it would be analysed.
    """
    source = source or site.source
    what = SeedSpec(
        endpoint="Sales.Orders",
        count=count,
        due_from=NOW,
        due_until=NOW + timedelta(days=5),
        destinations=("Billing", "Shipping"),
        seed=len(source),
    )
    rows = list(invent(what))
    site.execute(f"ALTER TABLE {site.quoted()} SET (autovacuum_enabled = false)")
    insert_rows(site.engine, site.store.blank(source), rows)
    return [row.id for row in rows]


def test_claims_use_the_time_index_without_statistics(site: Site) -> None:
    """A table nobody analysed is not read as a whole for every batch."""
    endpoint, lease = site.create(), site.lease()
    _fill(site, 5000)
    claim = site.claim(endpoint, lease)
    plan = _plan(site, site.request(endpoint, lease, cursor=claim.cursor))
    assert 'Index Scan using "Sales_Orders_TimeoutData_TimeIdx"' in plan
    assert "Seq Scan" not in plan
    assert "using timeout_open" in plan


def test_claims_of_a_shared_table_use_the_index_of_endpoint_and_time(site: Site) -> None:
    """Neither a claim nor a look for endpoints reads the rows of all others."""
    shared = NHibernateSite(engine=site.engine)
    endpoint, lease = shared.create(), shared.lease()
    for source in (shared.source, f"{shared.table}#Before", f"{shared.table}#Sales.Orders.EU"):
        _fill(shared, 4000, source)
    before = _blocks_read(shared)
    assert len(shared.store.endpoints()) == 4
    assert _blocks_read(shared) - before < 60  # the table has some 2000
    claim = shared.claim(endpoint, lease)
    plan = _plan(shared, shared.request(endpoint, lease, cursor=claim.cursor))
    assert "Index Scan using timeoutentity_endpointidx" in plan
    assert "Seq Scan" not in plan
    assert "Sort Key: timeoutentity" not in plan


def _blocks_read(site: Site) -> int:
    """Return how many blocks of the shared table and its indexes were looked at so far."""
    with site.engine.connect() as connection:
        connection.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        connection.exec_driver_sql("SELECT pg_stat_clear_snapshot()")
        connection.commit()
        return int(
            connection.exec_driver_sql(
                "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read "
                "FROM pg_statio_user_tables WHERE relname = 'timeoutentity'"
            ).scalar_one()
        )


@pytest.mark.parametrize("is_analysed", [False, True])
def test_claims_by_id_use_the_primary_key(site: Site, is_analysed: bool) -> None:
    """A hundred ids are looked up, one by one, in a table of any size."""
    endpoint, lease = site.create(), site.lease()
    ids = _fill(site, 1000)
    others = ", ".join(f'"{name}"' for name in COLUMNS if name != "Id")
    site.execute(
        f'INSERT INTO {site.quoted()} ("Id", {others}) '
        f"SELECT gen_random_uuid(), {others} FROM {site.quoted()}, generate_series(1, 19)"
    )
    if is_analysed:
        site.execute(f"ANALYZE {site.quoted()}")
    plan = _plan(site, site.request(endpoint, lease, only=ids[:100]))
    assert 'Index Scan using "Sales_Orders_TimeoutData_pkey"' in plan
    assert "TimeIdx" not in plan
    assert "Seq Scan" not in plan
    assert site.claim(endpoint, lease, only=ids[:100]).batch.size == 100
