"""Leases of as many lanes as there may be, on a database that answers slowly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final

import pytest
from sqlalchemy import Engine, event

from dev.servers import wait_until
from migrator.database.engine import open_engine
from migrator.ledger.identity import check_identity
from migrator.ledger.lease_keeper import LeaseKeeper
from migrator.ledger.leases import SqlLeases
from migrator.ledger.migrations import upgrade
from migrator.ledger.tables import build_tables, names_for
from migrator.nservicebus.timeouts import Lane

LANES: Final = 64
LEASE: Final = timedelta(seconds=10)
SLOW_S: Final = 0.05
"""Before each statement: a database far away, or a busy one."""


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """A database that answers slowly once the ledger is there."""
    engine = open_engine(database)
    yield engine
    engine.dispose()


@pytest.mark.punctual
def test_no_lane_of_many_is_lost_on_a_slow_database(engine: Engine) -> None:
    """Lanes are taken side by side, and no renewal waits for that or for all others."""
    tables = build_tables(names_for(engine))
    upgrade(engine, tables)
    leases = SqlLeases(engine, tables, check_identity(engine, tables))
    event.listen(engine, "before_cursor_execute", lambda *_: time.sleep(SLOW_S))
    keeper = LeaseKeeper(leases, owner="me", duration=LEASE)
    keeper.start()
    try:
        with ThreadPoolExecutor(LANES) as threads:
            taken = list(threads.map(lambda n: keeper.acquire(Lane(n), lambda: "x"), range(LANES)))
        held = [each for each in taken if each is not None]
        assert len(held) == LANES
        until = {each: each.valid_until_s for each in held}

        def are_all_renewed(*, by_s: float) -> bool:
            for each in held:
                each.check()
            return all(each.valid_until_s > until[each] + by_s for each in held)

        wait_until(lambda: are_all_renewed(by_s=4.0), what="every lease renewed again")
    finally:
        keeper.stop()
