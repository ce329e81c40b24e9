"""What a failover lost is settled row by row, by the messages that were met in the levels."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from migrator.database.engine import open_engine
from migrator.failover.store import FailoverTerms, SeenRow, SqlFailover
from migrator.ledger.runs import SqlRuns
from migrator.ledger.states import Event, Mode
from migrator.nservicebus.tags import Attempt, RowTag
from migrator.nservicebus.timeouts import RECALL_LANE, BatchId, TimeoutId
from tests.contract.site import NOW, LegacyRow, Site, due_in, hours, timeout_id


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    """A PostgreSQL database with a ledger."""
    engine = open_engine(database)
    yield Site(engine=engine)
    engine.dispose()


def seen(batch: int, index: int, number: int, attempt: int = 1) -> SeenRow:
    """Return the message of a row as it is met in a level."""
    mark = RowTag(batch=BatchId(batch), row_index=index, timeout_id=TimeoutId(timeout_id(number)))
    return SeenRow(row=mark, attempt=attempt)


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
        tool_version="0",
        doubtful_from=NOW + 1.5 * at,
        left_until=NOW + 2.5 * at,
        receipts=receipts,
    )
    failover = SqlFailover(site.engine, site.tables, site.store, site.claims)
    before = site.legacy_rows()
    found = failover.settle(met, terms, site.lease(RECALL_LANE), None)
    assert (site.legacy_rows(), len(site.ledger_rows())) == (before, 3)  # a dry run
    finished = list[object]()
    found = failover.settle(
        met, terms, site.lease(RECALL_LANE), lambda _connection, done: finished.append(done)
    )
    assert finished == [found]
    assert (found.from_store, found.from_batches, found.not_sent) == (2, 1, 1)
    assert (found.doubtful, found.nowhere) == (2, 1)
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
    again = failover.settle(met, terms, site.lease(RECALL_LANE), None)
    assert (again.from_store, again.from_batches, again.nowhere) == (0, 0, 1)


def test_the_cutoff_is_that_of_the_daemon_that_worked(site: Site) -> None:
    """It may have been given as an option; then the settings know nothing of it."""
    endpoint = site.create()
    runs = SqlRuns(site.engine, site.tables, actor="a@b", version="0")
    ended = runs.begin(endpoint, {"cutoff_s": 60})
    runs.end(ended, "done")
    runs.begin(endpoint, {"cutoff_s": 0})
    runs.begin(endpoint, {"after_failover": True})
    failover = SqlFailover(site.engine, site.tables, site.store, site.claims)
    later = datetime.now(UTC) + timedelta(minutes=1)
    assert failover.cutoffs(later) == {timedelta(0)}
    assert failover.cutoffs(None) == {timedelta(0), timedelta(minutes=1)}
