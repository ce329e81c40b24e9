"""NHibernate's table of all endpoints, on PostgreSQL: one endpoint goes, and comes back.

The table is made and filled with SQL of this test's own, as NHibernate would.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, timedelta

import pytest

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


@pytest.mark.slow
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

    listed = json.loads(rig.must("preview", "--all-endpoints", "--json"))["endpoints"]
    assert {each["endpoint"]: each["source"] for each in listed} == {
        "Sales": "public.timeoutentity#Sales",
        "Other.Endpoint": "public.timeoutentity#Other.Endpoint",
    }
    findings = json.loads(rig.must("preview", "--endpoint", "Sales", "--json"))["findings"]
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
