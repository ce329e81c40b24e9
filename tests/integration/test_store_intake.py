"""Storing new timeouts next to claims that are just under way, on a real PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event

from migrator.ledger.claims import hold_lease
from migrator.ledger.states import Mode
from migrator.ledger.work import Batch
from migrator.nservicebus.satellites import DelayedMessage
from migrator.nservicebus.timeouts import NO_SAGA, TimeoutId
from migrator.stores.sql.intake import Applied
from tests.contract.site import NOW, Site


def _new(number: int) -> DelayedMessage:
    return DelayedMessage(
        native_id="m",
        headers={},
        id=TimeoutId(str(uuid4())),
        destination="Billing",
        saga_id=NO_SAGA,
        due_at=NOW + timedelta(minutes=number),
        headers_text='{"NServiceBus.MessageId": "m"}' * 20,
        body=b"x" * 500,
    )


def _waits(site: Site) -> bool:
    """Return whether somebody waits for a lock within a minute."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    for _ in range(3000):
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
        assert storing.result(timeout=60) == Applied(stored=0, known=1, cleared=0)
    assert len(site.legacy_rows()) + len(site.ledger_rows()) == 1


def test_a_row_that_is_being_parked_is_known(site: Site) -> None:
    """Whichever of the two comes first, it is in the ledger once."""
    endpoint, lease = site.create(), site.lease()
    rows = [_new(n) for n in range(40)]
    site.intake.apply(endpoint, rows, lease)
    batch = site.claim(endpoint, lease, mode=Mode.DISPATCH).batch

    def give(index: int, batch: Batch = batch) -> None:
        site.parking.park(batch, {index: "Gone"}, lease)

    with ThreadPoolExecutor(4) as pool:
        given = [pool.submit(give, n) for n in range(40)]
        stored = [pool.submit(site.intake.apply, endpoint, [row], lease) for row in rows]
        assert [f.result(timeout=60) for f in given] == [None] * 40
        assert {f.result(timeout=60).known for f in stored} == {1}
    assert site.legacy_rows() == []
    assert site.states() == {"parked": 40}


@contextmanager
def _statements(site: Site) -> Iterator[list[int]]:
    """Collect of each statement how many rows of parameters it was sent with, one after another."""
    sent: list[int] = []

    def note(*given: Any) -> None:
        parameters = given[3]  # a list: one statement for each of them
        sent.append(len(parameters) if isinstance(parameters, list) else 1)

    event.listen(site.engine, "before_cursor_execute", note)
    yield sent
    event.remove(site.engine, "before_cursor_execute", note)


def test_storing_many_rows_is_quick(site: Site) -> None:
    """500 new rows are one statement; redelivered ones cost no more."""
    endpoint, lease = site.create(), site.lease()
    site.intake.apply(endpoint, [_new(0)], lease)  # looks at the table as well
    few, many = [_new(1)], [_new(n) for n in range(500)]
    with _statements(site) as for_few:
        site.intake.apply(endpoint, few, lease)
    for rows in (many, many, few):
        with _statements(site) as sent:
            site.intake.apply(endpoint, rows, lease)
        assert sum(sent) <= sum(for_few) + 1
    assert len(site.legacy_rows()) == 502
