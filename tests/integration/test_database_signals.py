"""What a running daemon measures of a real database: locks, rows, replicas."""

from __future__ import annotations

import math
import time
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from dev.postgres import PostgresServer, PostgresStandby
from dev.processes import wait_until
from migrator.database.engine import open_engine
from migrator.database.replicas import ReplicaLag, standbys_behind
from migrator.errors import NotChecked, StoreError
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.throttle.signals import DatabaseLatency, Limits
from tests.contract.site import NOW, LegacyRow, Site, due_in, timeout_id

PATIENCE = timedelta(seconds=0.3)
LONG = timedelta(seconds=60)


@pytest.mark.parametrize("mode", ["SHARE", "ACCESS EXCLUSIVE"])
def test_a_lock_that_keeps_claims_out_is_measured(site: Site, mode: str) -> None:
    """It waits no longer than is of interest, changes nothing, and leaves no lock behind."""
    site.create([LegacyRow(id=timeout_id(1))])
    pulse = site.store
    assert pulse.access_latency_s(site.source, timeout=LONG) < LONG.total_seconds()
    with site.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(f"LOCK TABLE {site.quoted()} IN {mode} MODE")
        began_s = time.monotonic()
        found_s = pulse.access_latency_s(site.source, timeout=PATIENCE)
        assert time.monotonic() - began_s < 4.5  # sessions wait for 5 s else
    assert found_s >= PATIENCE.total_seconds()
    with site.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(f"LOCK TABLE {site.quoted()} IN ACCESS EXCLUSIVE MODE NOWAIT")
    assert len(site.legacy_rows()) == 1
    limit = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
    with site.engine.connect() as connection:  # the very session that was asked
        assert connection.exec_driver_sql(limit).one() == ("5s", "1min")


def test_one_table_that_refuses_us_holds_its_endpoint_alone(site: Site) -> None:
    """The others are measured all the same."""
    there = site.create([])
    gone = StoreEndpoint(name=EndpointName("Gone"), source=site.source_of("Gone_TimeoutData"))
    found = DatabaseLatency(Limits(60, 0), site.store, [gone, there]).measure()
    assert found[gone.name].value == math.inf
    assert "is not a timeouts table" in found[gone.name].text
    assert found[there.name].value < LONG.total_seconds()


def test_rows_are_counted_by_how_soon_they_are_due(site: Site) -> None:
    """Up to a limit; beyond it the database's own estimate is taken."""
    dues = [timedelta(seconds=-5), timedelta(seconds=30), timedelta(hours=2), timedelta(hours=3)]
    dues += [timedelta(days=400)]
    site.create([LegacyRow(id=timeout_id(n), due=due_in(each)) for n, each in enumerate(dues)])
    counting = site.store
    found = counting.count(site.source, NOW)
    assert (found.rows, found.is_all) == (5, True)
    assert found.due == [("overdue", 1), ("up to 1m", 1), ("up to 1d", 2), ("later", 1)]
    assert counting.count(site.source, NOW, most=5) == found
    limits = [NOW, NOW + timedelta(seconds=90), NOW + timedelta(hours=2)]
    limited = counting.count(site.source, NOW, limits=limits)
    assert (limited.due, list(limited.until)) == (found.due, [1, 2, 3])
    few = counting.count(site.source, NOW, most=3)
    assert (few.rows, few.is_all) == (4, False)
    with site.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ANALYZE {site.quoted()}")
    assert counting.count(site.source, NOW, most=3).rows == 5


def test_without_replicas_nobody_knows(site: Site) -> None:
    """One that is not connected is not up to date."""
    with pytest.raises(StoreError, match="no replica is connected"):
        ReplicaLag(site.engine).worst_s()


@pytest.mark.slow
def test_a_replica_that_stands_still_falls_behind() -> None:
    """With a real standby: nothing to apply is no lag, a paused replay is one that grows."""
    with PostgresServer() as primary:
        engine = open_engine(primary.url(primary.create_database()))
        lag = ReplicaLag(engine)
        with PostgresStandby(primary) as replica:
            wait_until(lambda: _is_up_to_date(lag), seconds=30, what="a standby")
            assert _behind(engine) == ["walreceiver"]
            primary.psql("CREATE ROLE watcher LOGIN")
            unprivileged = open_engine(engine.url.set(username="watcher"))
            with pytest.raises(NotChecked):
                _behind(unprivileged)
            unprivileged.dispose()
            time.sleep(2)
            assert lag.worst_s()[0] == 0  # idle is not behind
            replica.psql("SELECT pg_wal_replay_pause()")
            primary.psql("CREATE TABLE something (id int)")
            began_s = time.monotonic()
            wait_until(lambda: lag.worst_s()[0] > 2, seconds=20, what="a lag of 2 s")
            found_s, name = lag.worst_s()
            print(f"{name} is {found_s:.1f} s behind, {time.monotonic() - began_s:.1f} s later")
            assert found_s < time.monotonic() - began_s + 1
            replica.psql("SELECT pg_wal_replay_resume()")
            wait_until(lambda: lag.worst_s()[0] == 0, seconds=20, what="catching up")
        wait_until(lambda: _is_unknown(lag), seconds=20, what="that it is gone")
        engine.dispose()


def _behind(engine: Engine) -> object:
    with engine.connect() as connection:
        return standbys_behind(connection)


def _is_up_to_date(lag: ReplicaLag) -> bool:
    try:
        return lag.worst_s()[0] == 0
    except StoreError:
        return False


def _is_unknown(lag: ReplicaLag) -> bool:
    try:
        lag.worst_s()
    except StoreError as exc:
        return "no replica" in str(exc)
    return False
