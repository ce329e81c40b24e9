"""What workers ask the database while there is nothing to do: nothing that it has to write down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event

from migrator.dispatcher.due import Poller
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.handover.claiming import ClaimableCache, Claimer
from migrator.handover.pacing import Pacer
from migrator.ledger.clock import DatabaseClock
from migrator.ledger.held_destinations import HeldDestinations
from migrator.ledger.queries import LedgerQueries
from migrator.ledger.states import Mode
from migrator.nservicebus.conversion import BrokerLimits
from migrator.nservicebus.timeouts import FIRST_DISPATCHER_LANE
from migrator.stores.endpoints import Selection
from tests.contract.site import NOW, LegacyRow, Site, due_in, timeout_id
from tests.support.due_times import KnownDueTimes


@contextmanager
def transaction_ids(engine: Engine) -> Iterator[list[str]]:
    """Note the id of each transaction of *engine* that has got one by its end."""
    taken: list[str] = []

    def note(dbapi_connection: Any, *_more: object) -> None:
        asked = dbapi_connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()
        taken.extend(each for each in asked if each is not None)

    def at_its_end(connection: Any) -> None:
        note(connection.connection.driver_connection)

    event.listen(engine, "commit", at_its_end)
    event.listen(engine, "rollback", at_its_end)
    try:
        yield taken
    finally:
        event.remove(engine, "commit", at_its_end)
        event.remove(engine, "rollback", at_its_end)


def poller(site: Site) -> Poller:
    """Return what looks for rows of an endpoint whose only one is due in a month."""
    due = due_in(datetime.now(UTC) - NOW + timedelta(days=30))
    endpoint = site.create([LegacyRow(id=timeout_id(1), due=due)])
    return Poller(
        endpoint=endpoint,
        run=site.run(endpoint),
        claims=site.claims,
        batches=site.batches,
        dispatched=DispatchedBatches(site.engine, site.tables),
        held=HeldDestinations(site.held, site.parking, endpoint, is_dispatched=True),
        routes=None,  # type: ignore[arg-type]  # nothing is held, nothing is sent
        clock=DatabaseClock(site.engine),
        interval=timedelta(seconds=0.5),
        look_ahead=timedelta(seconds=1),
        max_rows=100,
        max_bytes=1 << 20,
        remember=timedelta(hours=1),
        conversion=BrokerLimits(),
        fault=lambda _name: None,
        due_times=KnownDueTimes(),
    )


def test_looking_takes_no_transaction_id(site: Site) -> None:
    """Neither a dispatcher's looks nor a lane's nor those of whoever tells how it goes."""
    lease, dispatching = site.lease(), site.lease(FIRST_DISPATCHER_LANE)
    looks = poller(site)
    claimer = Claimer(
        claims=site.claims,
        clock=DatabaseClock(site.engine),
        selection=lambda: Selection(cutoff=timedelta(days=60), horizon=None),
        endpoints=[(looks.endpoint, looks.run)],
        mode=Mode.STAGED,
        max_bytes=1 << 20,
        claimable=ClaimableCache(site.claims, DatabaseClock(site.engine)),
        pacer=Pacer(),
    )
    queries = LedgerQueries(site.engine, site.tables)
    with transaction_ids(site.engine) as taken:
        for _ in range(3):
            assert not looks.claim_due(dispatching)
            assert claimer.claim(lease, max_rows=100) is None
        assert looks.dispatched.prune(dispatching, older_than=timedelta(0)) == 0
        assert site.batches.put_in(lease) == []
        assert site.leases.open_batches() == []
        assert site.leases.owner_of(lease.lane) == lease.owner
        assert queries.progress().lanes
        queries.latest_events(limit=50)
    assert taken == []


def test_a_claim_that_finds_nothing_takes_one(site: Site) -> None:
    """So the test above would notice."""
    lease, looks = site.lease(), poller(site)
    request = site.request(looks.endpoint, lease, due_until=looks.clock.now())
    with transaction_ids(site.engine) as taken:
        assert site.claims.claim(request) is None
    assert len(taken) == 1


@pytest.mark.parametrize("every_s", [0.1, 0.5, 60.0])
def test_pauses_grow_while_nothing_is_found_and_only_then(site: Site, every_s: float) -> None:
    """Up to a limit, unless rows are wanted less often anyway."""
    looks = poller(site)
    looks.interval = looks.pause = timedelta(seconds=every_s)
    lease = site.lease(FIRST_DISPATCHER_LANE)
    pauses = []
    for _ in range(6):
        looks.claim_due(lease)
        pauses.append(looks.pause.total_seconds())
    assert pauses == sorted(pauses)
    assert pauses[-1] == max(1.5, every_s)
