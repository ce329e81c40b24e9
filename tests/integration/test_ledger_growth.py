"""What the program asks of a large ledger, whatever PostgreSQL's statistics say of it.

Each statement is looked at as the program issued it: the server tells by which plan it carried it
out, and how many rows, or entries of an index, each step of that read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import psycopg
import pytest
from sqlalchemy import Engine, event

from migrator.database.engine import open_engine
from migrator.ledger.queries import SqlHandOvers
from migrator.ledger.report import ANY_QUARANTINED
from migrator.ledger.states import Event, Mode
from migrator.nservicebus.timeouts import TimeoutId
from migrator.recall.queries import forecast
from migrator.recall.rules import Scope
from migrator.stores.documents.ledger import DocumentLedger
from tests.contract.site import NOW, Site, hours

Statistics = Literal["none", "of the beginning", "of all"]
BATCH_ROWS: Final = 100
QUARANTINED: Final = 90
"""Rows, all of them in the first batch."""
_EXPLAIN: Final = {
    "log_min_duration": "0",
    "log_analyze": "on",
    "log_format": "json",
    "log_level": "notice",
    "log_timing": "off",
}
_FILL: Final = """
INSERT INTO migrator.batch (run_id, endpoint, source, lane, mode, state, attempt, size, body_bytes,
       first_due, last_due, lease_token, claimed_at, handed_over_at)
SELECT {run}, 'Sales.Orders', '{source}', 0, 'direct', 'handed_over', 1, {size}, 0,
       now() + '1 day', now() + '1 day', 1, now(), now() - interval '1 hour'
FROM generate_series({first}, {last} - 1, {size});
INSERT INTO migrator.timeout (source, endpoint, store_id, batch_id, row_index, destination, due,
       content_hash, state, reason)
SELECT '{source}', 'Sales.Orders', gen_random_uuid()::text, n / {size} + 1, n % {size}, 'Billing',
       now() + interval '1 day', '', CASE WHEN n < {bad} THEN 'quarantined' END, 'unbound'
FROM generate_series({first}, {last} - 1) n
"""


@dataclass
class Reads:
    """What each statement read of its tables and indexes since the last look."""

    found: list[tuple[int, str, str]] = field(default_factory=list)
    """How many rows or entries one step of a plan read, of what, and for which statement."""

    def listen(self, engine: Engine) -> None:
        """Have the server tell of every statement on the connections of *engine*."""

        @event.listens_for(engine, "connect")
        def _listen(connection: Any, _record: object) -> None:
            connection.add_notice_handler(self._note)
            was, connection.autocommit = connection.autocommit, True
            connection.execute("LOAD 'auto_explain'")
            for name, value in _EXPLAIN.items():
                connection.execute(f"SET auto_explain.{name} = '{value}'")
            connection.autocommit = was

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        _, is_plan, told = (notice.message_primary or "").partition("plan:")
        if is_plan:
            plan = json.loads(told)
            self._walk(plan["Plan"], plan["Query Text"])

    def _walk(self, step: dict[str, Any], statement: str) -> None:
        of = step.get("Index Name") or step.get("Relation Name")
        if of is not None:
            removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
            rows = step["Actual Rows"] + sum(step.get(name, 0) for name in removed)
            told = f"{of}, by {step['Node Type']}"
            self.found.append((int(rows * step["Actual Loops"]), told, statement))
        for each in step.get("Plans", ()):
            self._walk(each, statement)


@pytest.fixture
def reads(database: str) -> Iterator[tuple[Site, Reads]]:
    """A ledger, and what is read of it."""
    engine, found = open_engine(database), Reads()
    found.listen(engine)
    yield Site(engine=engine), found
    engine.dispose()


def _fill(site: Site, rows: int, statistics: Statistics) -> None:
    """Fill the ledger with *rows* handed over; the server looks at it when it is told to only."""
    address = site.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    what = {"run": 1, "source": site.source, "size": BATCH_ROWS, "bad": QUARANTINED}
    with psycopg.connect(address, autocommit=True) as connection:
        for table in ("timeout", "batch"):
            connection.execute(f"ALTER TABLE migrator.{table} SET (autovacuum_enabled = false)")
        connection.execute(_FILL.format(first=0, last=BATCH_ROWS, **what))
        if statistics == "of the beginning":
            connection.execute("ANALYZE")
        connection.execute(_FILL.format(first=BATCH_ROWS, last=rows, **what))
        if statistics == "of all":
            connection.execute("ANALYZE")


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("statistics", ["none", "of the beginning", "of all"])
def test_no_statement_reads_more_than_it_is_about(
    reads: tuple[Site, Reads], statistics: Statistics, rows: int
) -> None:
    """A batch's rows, what is in quarantine, one row per batch: never the ledger as a whole."""
    site, read = reads
    endpoint, lease = site.create(hours(2 * BATCH_ROWS)), site.lease()
    site.run(endpoint)
    _fill(site, rows, statistics)
    now = datetime.now(UTC)

    def asking(work: Callable[[], Any], *, of_each_batch: int = 0) -> Any:
        """Do *work*; of the rows it reads what few batches have, and so many of each batch."""
        read.found.clear()
        found = work()
        assert read.found, "the server told nothing"
        few = 2 * BATCH_ROWS  # what is in quarantine, too
        of_rows = [each for each in read.found if each[1].startswith("timeout")]
        assert max(read.found)[0] <= few + 2 * batches, max(read.found)
        assert not of_rows or max(of_rows)[0] <= few + of_each_batch * batches, max(of_rows)
        return found

    batches = rows // BATCH_ROWS
    ledger = DocumentLedger(site.engine, site.tables)
    claim = asking(lambda: site.claim(endpoint, lease, max_rows=BATCH_ROWS))
    assert len(asking(lambda: site.batches.rows(claim.batch))) == BATCH_ROWS
    asking(lambda: site.set_aside(claim.batch, lease, 1, 2))
    batch = asking(lambda: site.parking.park(claim.batch, {3: "Gone"}, lease))
    assert asking(lambda: site.batches.open_batches(lease)) == [batch]
    asking(lambda: site.batches.put_in(lease))
    asking(lambda: site.advance(batch, lease, Event.BEGIN_PUBLISHING, Event.ALL_SETTLED))
    asking(lambda: ledger.known(endpoint.source, [TimeoutId(str(n)) for n in range(100)]))
    asking(lambda: site.dispatched.prune(lease, older_than=timedelta(0)))
    hand_overs, since = SqlHandOvers(site.engine, site.tables, {}), now - timedelta(seconds=10)
    asking(lambda: hand_overs.handed_over(due_from=NOW, handed_over_from=since))

    progress = asking(site.queries.progress)
    assert sum(each.rows for each in progress.quarantine) == QUARANTINED + 2
    asking(lambda: site.queries.settled_lately(now - timedelta(hours=2), at_most=50))
    assert max(read.found)[0] <= 50
    asking(lambda: site.queries.quarantined([endpoint]))
    asking(lambda: site.queries.doubtful([endpoint]))
    until = now + timedelta(minutes=1)
    expected = asking(
        lambda: forecast(site.engine, site.tables, Scope(), now=now, not_before=until),
        of_each_batch=1,
    )
    assert expected.in_levels == rows - QUARANTINED
    retried = asking(lambda: site.quarantine.retry(ANY_QUARANTINED, mode=Mode.STAGED))
    assert retried == QUARANTINED + 2
