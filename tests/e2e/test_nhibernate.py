"""NHibernate's table of all endpoints, on PostgreSQL: one endpoint goes, and comes back.

The table is made and filled with SQL of this test's own, as NHibernate would.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from dev.servers import wait_until
from tests.e2e.arrivals import Receiver
from tests.e2e.dispatching import settings_text, start_dispatcher
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig
from tests.e2e.rows import Row, row

TABLE = """
CREATE TABLE TimeoutEntity (
    Id uuid NOT NULL PRIMARY KEY, Destination varchar(1024), SagaId uuid, State bytea,
    Endpoint varchar(440), Time timestamp, Headers text, CorrelationId varchar(1024));
CREATE INDEX TimeoutEntity_SagaIdIdx ON TimeoutEntity (SagaId);
CREATE INDEX TimeoutEntity_EndpointIdx ON TimeoutEntity (Endpoint, Time);
"""


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """The usual rig with NHibernate's table, empty."""
    rig.settings["MIGRATOR_STORE__KIND"] = "nhibernate"
    rig.table_name = "timeoutentity"
    with rig.sql() as connection:
        connection.execute(TABLE)
    return rig


def compact(given: Row) -> Row:
    """Return a row as NHibernate 7 and later write it: whole seconds, slashes escaped."""
    headers = json.dumps(json.loads(given.headers or "{}"), separators=(",", ":"))
    due_at = given.due_at.replace(microsecond=0)
    return replace(given, headers=headers.replace("/", r"\/"), due_at=due_at)


def insert(rig: Rig, rows: Iterable[Row], owner: str | None) -> None:
    """Store rows as NHibernate would."""
    with rig.sql() as connection:
        for each in rows:
            due = each.due_at.astimezone(UTC).replace(tzinfo=None)
            connection.execute(
                "INSERT INTO TimeoutEntity (Id, Destination, SagaId, State, Endpoint, Time, "
                "Headers) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [each.id, each.destination, each.saga_id, each.body, owner, due, each.headers],
            )


def test_one_endpoint_goes_and_comes_back(rig: Rig) -> None:
    """Rows of others are never touched; what was rolled back cannot be told from before."""
    mine = [compact(row()) for _ in range(20)]
    mine.append(replace(compact(row()), headers=None, body=None))
    insert(rig, mine, "Sales")
    insert(rig, [compact(row(timedelta(seconds=-5))) for _ in range(3)], "Other.Endpoint")
    insert(rig, [compact(row())], None)
    before = rig.stored()
    rig.create_ledger()
    rig.create_levels()
    rig.create_receivers("Billing")

    listed = json.loads(rig.must("endpoints", "--json"))["endpoints"]
    assert {each["endpoint"]: each["source"] for each in listed} == {
        "Sales": "public.timeoutentity#Sales",
        "Other.Endpoint": "public.timeoutentity#Other.Endpoint",
    }
    findings = json.loads(rig.must("check", "--endpoint", "Sales", "--json"))["findings"]
    assert [f["text"] for f in findings if f["check"] == "legacy-table"] == [
        "1 row belongs to no endpoint: endpoint is NULL or empty; no timeout manager ever sends "
        "it, and it stays"
    ]
    (previewed,) = json.loads(rig.must("preview", "--endpoint", "Sales", "--json"))["endpoints"]
    assert (previewed["stored"], previewed["to_migrate"]) == (21, 21)

    rig.migrate()
    ours = {each.id for each in mine}
    left = rig.stored()
    assert left == {id_: columns for id_, columns in before.items() if id_ not in ours}
    rig.must("verify", "--endpoint", "Sales")

    done = json.loads(rig.must("rollback", "--endpoint", "Sales", "--yes", "--json"))
    assert done["handed_over"]["found"]["restored"] == 21
    assert rig.stored() == before
    assert rig.drain_levels() == []


def test_seeds_are_rows_of_the_endpoint(rig: Rig) -> None:
    """In a table that is there, or in one that is made."""
    with rig.sql() as connection:
        connection.execute("DROP TABLE TimeoutEntity")
    rig.must("seed", "--endpoint", "Sales.EU", "--count", "7")
    rig.must("seed", "--endpoint", "Billing", "--count", "2")
    with rig.sql() as connection:
        found = connection.execute("SELECT Endpoint, Headers FROM TimeoutEntity").fetchall()
    assert Counter(owner for owner, _ in found) == {"Sales.EU": 7, "Billing": 2}
    assert all(r"application\/json" in headers and "\n" not in headers for _, headers in found)


@pytest.mark.slow
def test_a_dispatcher_stores_in_it_and_sends_from_it(rig: Rig, tmp_path: Path) -> None:
    """New timeouts beside old ones; the end of a saga removes its rows."""
    saga = "5f6e0000-0000-4000-8000-00000000c2d1"
    rig.config = tmp_path / "migrator.toml"
    rig.config.write_text(settings_text("Sales", mode="dispatch"))
    insert(rig, [compact(row(timedelta(seconds=4), destination="Billing"))], "Sales")
    insert(rig, [compact(row(timedelta(seconds=-60)))], "Other.Endpoint")
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    rig.create_ledger()
    process = start_dispatcher(rig)
    with Receiver(rig.broker_url, "Sales", "Billing", "error") as receiver:
        soon = endpoint.deferred(3, to="Billing")
        endpoint.send(soon, endpoint.saga_timeout(3600, saga_id=saga))
        receiver.wait_for(soon)
        wait_until(lambda: len(receiver.arrivals) == 2, what="the old row's message")
        with rig.sql() as connection:
            query = "SELECT Endpoint, SagaId::text FROM TimeoutEntity ORDER BY Endpoint"
            assert connection.execute(query).fetchall() == [
                ("Other.Endpoint", "00000000-0000-0000-0000-000000000000"),
                ("Sales", saga),
            ]
        endpoint.send(endpoint.clear_timeouts(saga))
        wait_until(lambda: len(rig.stored()) == 1, what="the saga's row removed")
    rig.stop(process)
