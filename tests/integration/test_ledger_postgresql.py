"""What only PostgreSQL shows about the ledger: copies, many at once, and failovers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, select

from dev.servers import PostgresServer, wait_until
from migrator.database.engine import open_engine, reading, writing, writing_once
from migrator.delays.tagged import TaggedMessage
from migrator.errors import LedgerCloned
from migrator.ledger.batches import SqlRuns
from migrator.ledger.identity import check_identity
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.states import BatchState, Event, Mode
from migrator.ledger.tables import build_tables, names_for
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.tags import Attempt
from migrator.nservicebus.timeouts import (
    FIRST_DISPATCHER_LANE,
    RECALL_LANE,
    BatchId,
    EndpointName,
    Lane,
    TimeoutId,
)
from migrator.preflight.queries import LedgerFacts
from migrator.recovery.adoption import SqlAdoption
from migrator.recovery.lost_window import FailoverTerms, LostWindow
from migrator.stores.sql.dialects.postgresql import PostgresqlDialect
from tests.contract.site import LONG, NOW, LegacyRow, Site, due_in, hours, timeout_id
from tests.support.tagged import tagged_message


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
    found = [copy.batches.find(batch.id) for batch in (claimed, staged)]
    assert [each and each.state for each in found] == [BatchState.CLAIMED, BatchState.DOUBTFUL]
    assert check_identity(site.engine, site.tables) == site.ledger_id
    engine.dispose()
    postgres_server.drop_database(clone)


def test_sessions_are_prepared_whatever_the_database_has_by_default(site: Site) -> None:
    """Time zone, limits and isolation, also after a session was used in another way."""
    site.execute(
        f"ALTER DATABASE {site.engine.url.database} "
        "SET default_transaction_isolation = 'serializable'"
    )
    engine = open_engine(site.engine.url)
    wanted = {
        "TimeZone": "UTC",
        "lock_timeout": "5s",
        "statement_timeout": "1min",
        "application_name": "migrator",
        "jit": "off",
        "synchronous_commit": "on",
        "transaction_isolation": "read committed",
    }
    with reading(PostgresqlDialect().read_only(engine)) as connection:
        show = "SHOW transaction_isolation"
        assert connection.exec_driver_sql(show).scalar_one() == "repeatable read"
    for opening in (reading, writing, writing_once):
        with opening(engine) as connection:
            found = {each: connection.exec_driver_sql(f"SHOW {each}").scalar() for each in wanted}
        assert found == wanted
    engine.dispose()


def test_one_of_many_gets_a_free_lane(site: Site) -> None:
    """However many ask at once for a lane nobody ever had, one gets it."""
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda n: site.leases.acquire(Lane(5), f"owner {n}", LONG), range(8))
    assert sum(lease is not None for lease in found) == 1


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


@pytest.mark.punctual
def test_no_lane_of_many_is_lost_on_a_slow_database(site: Site) -> None:
    """Lanes are taken side by side, and no renewal waits for that or for all others."""
    lanes = [Lane(number) for number in range(64)]
    event.listen(site.engine, "before_cursor_execute", lambda *_: time.sleep(0.05))
    keeper = LeaseKeeper(site.leases, owner="me", duration=timedelta(seconds=10))
    keeper.start()
    try:
        with ThreadPoolExecutor(len(lanes)) as threads:
            taken = threads.map(lambda lane: keeper.acquire(lane, lambda: "x"), lanes)
            held = [each for each in taken if each is not None]
        assert len(held) == len(lanes)
        until = {each: each.valid_until_s for each in held}

        def are_all_renewed() -> bool:
            for each in held:
                each.check()
            return all(each.valid_until_s > until[each] + 4.0 for each in held)

        wait_until(are_all_renewed, what="every lease renewed again")
    finally:
        keeper.stop()


# ── a failover, settled by what was met in the levels ───────────────────────────────────────────


def seen(batch: int, index: int, number: int, attempt: int = 1) -> TaggedMessage:
    """Return the message of a row as it is met in a level."""
    return tagged_message(batch, index, timeout_id(number), 7)._replace(attempt=attempt)


def test_each_row_of_the_window_is_settled_by_what_was_met(site: Site) -> None:
    """Met: handed over. Not met and due later: to go yet. Due by then and not met: doubtful."""
    endpoint = site.create(hours(8))
    lease = site.lease()
    batch = site.claim(endpoint, lease, max_rows=3).batch
    batch = site.batches.advance(batch, Event.BEGIN_STAGING, lease)
    at = timedelta(hours=1)
    site.insert(
        [
            LegacyRow(id=timeout_id(20), due=due_in(at)),  # before the window: not ours
            LegacyRow(id=timeout_id(21), due=due_in(2 * at)),  # may have been delivered
        ]
    )
    lost = batch.id + 70
    met = {
        seen(batch.id, 0, 0),
        seen(lost, 5, 3, attempt=2),
        seen(lost, 9, 4, attempt=2),
        seen(lost + 1, 0, 99),
    }
    receipts = {Attempt(batch=batch.id, number=3), Attempt(batch=BatchId(lost), number=2)}
    terms = FailoverTerms(
        endpoints=[endpoint],
        mode=Mode.STAGED,
        doubtful_from=NOW + 1.5 * at,
        left_until=NOW + 2.5 * at,
        receipts=receipts,
    )
    failover = LostWindow(site.engine, site.tables, site.store, site.claims, site.runs)
    before = site.legacy_rows()
    found = failover.recover(met, terms, site.lease(RECALL_LANE), is_dry_run=True)
    assert (site.legacy_rows(), len(site.ledger_rows())) == (before, 3)  # a dry run
    found = failover.recover(met, terms, site.lease(RECALL_LANE), is_dry_run=False)
    event = site.queries.latest_event("failover_settled")
    assert event is not None
    assert event.detail == found.counts
    counts = {name: count for name, count in found.counts.items() if name != "doubtful_batches"}
    assert counts == {
        "handed_over_from_store": 2,
        "handed_over_from_batches": 1,
        "not_sent": 1,
        "doubtful": 2,
        "nowhere": 1,
    }
    assert found.committed == {
        Attempt(batch=batch.id, number=1),
        Attempt(batch=BatchId(lost), number=2),
    }
    assert [row.id for row in site.legacy_rows()] == [timeout_id(n) for n in (5, 6, 7, 20)]
    table = site.tables.batch.c
    with site.engine.connect() as connection:
        batches = {
            row.id: row
            for row in connection.execute(select(table.id, table.state, table.attempt, table.size))
        }
    rows = {row.store_id: (row.batch_id, row.row_index) for row in site.ledger_rows()}
    states = {number: batches[batch_id].state for number, (batch_id, _) in rows.items()}
    assert states == {
        timeout_id(0): "handed_over",
        timeout_id(1): "doubtful",
        timeout_id(2): "claimed",
        timeout_id(3): "handed_over",
        timeout_id(4): "handed_over",
        timeout_id(21): "doubtful",
    }
    assert rows[timeout_id(0)] == (batch.id, 0)
    assert (rows[timeout_id(3)], rows[timeout_id(4)]) == ((lost, 5), (lost, 9))
    assert (batches[lost].attempt, batches[lost].size) == (2, 2)
    assert all(number in (batch.id, lost) or number > lost + 1 for number in batches)
    assert batches[rows[timeout_id(2)][0]].attempt == 4  # above all that our queues may hold
    assert failover.nowhere({TimeoutId(timeout_id(n)) for n in (0, 5, 99)}) == {timeout_id(99)}
    again = failover.recover(met, terms, site.lease(RECALL_LANE), is_dry_run=True)
    assert (again.handed_over_from_store, again.handed_over_from_batches) == (0, 0)


def test_the_later_attempt_counts_of_a_row_that_was_met_twice(site: Site) -> None:
    """Whatever was met first; of a batch that the ledger has, and of one that it lacks."""
    endpoint, lease = site.create(hours(2)), site.lease()
    batch = site.claim(endpoint, lease, max_rows=1).batch
    batch = site.batches.advance(batch, Event.BEGIN_STAGING, lease)
    lost = batch.id + 1
    met = [seen(b, 0, n, attempt=a) for b, n in ((batch.id, 0), (lost, 1)) for a in (2, 1)]
    terms = FailoverTerms(endpoints=[endpoint], mode=Mode.STAGED, doubtful_from=NOW, left_until=NOW)
    failover = LostWindow(site.engine, site.tables, site.store, site.claims, site.runs)
    failover.recover(met, terms, site.lease(RECALL_LANE), is_dry_run=False)
    with site.engine.connect() as connection:
        attempts = {row.id: row.attempt for row in connection.execute(select(site.tables.batch))}
    assert attempts == {batch.id: 2, lost: 2}


def test_the_cutoff_is_that_of_the_daemon_that_worked(site: Site) -> None:
    """It may have been given as an option; then the settings know nothing of it."""
    endpoint = site.create()
    runs = SqlRuns(site.engine, site.tables, actor="a@b", version="0")
    ended = runs.begin(endpoint, {"cutoff_s": 60})
    runs.end(ended, "done")
    runs.begin(endpoint, {"cutoff_s": 0})
    runs.begin(endpoint, {"after_failover": True})
    failover = LostWindow(site.engine, site.tables, site.store, site.claims, site.runs)
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert failover.cutoffs(later) == {timedelta(0)}
    assert failover.cutoffs(None) == {timedelta(0), timedelta(minutes=1)}
