"""Tests of ``migrator.stores.sql``: sources, tables, names, indexes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import DateTime, Integer, LargeBinary, String, Text, Uuid
from sqlalchemy.types import TypeEngine

from migrator.database.guids import GuidBytes
from migrator.errors import StoreError
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.dialects.base import beginning_with
from migrator.stores.sql.dialects.mssql import without_snapshots
from migrator.stores.sql.legacy_table import (
    COLUMNS,
    SHARED_COLUMNS,
    NotATimeoutsTable,
    build_shared_source,
    build_source,
    parse_shared_source,
    parse_source,
    shared_name,
    shared_table,
    timeouts_table,
)
from migrator.stores.sql.local_time import zone_of
from migrator.stores.sql.sql_persistence import default_table, endpoint_of

names = st.text(st.characters(exclude_characters="\0"), min_size=1)


def _columns(*, zone: bool = False) -> list[dict[str, object]]:
    types = {"Id": Uuid(), "SagaId": Uuid(), "State": LargeBinary()}
    types["Time"] = DateTime(timezone=zone)
    return [{"name": name, "type": types.get(name, Text())} for name in COLUMNS]


@given(st.none() | names, names)
def test_a_source_names_exactly_one_table(schema: str | None, table: str) -> None:
    """Whatever is in the names, parsing gives back what was built."""
    assert parse_source(build_source(schema, table)) == (schema, table)


def test_plain_names_stay_readable() -> None:
    """The usual source is just schema and table with a dot."""
    assert build_source("public", "Sales Orders_TimeoutData") == "public.Sales Orders_TimeoutData"


@pytest.mark.parametrize("source", ["", ".", "a.b.c", 'a"b', '"a', "a."])
def test_what_was_not_built_is_refused(source: str) -> None:
    """A source is never guessed."""
    with pytest.raises(ValueError, match="names no table"):
        parse_source(source)


def test_all_seven_columns_are_needed() -> None:
    """The message says which are missing."""
    with pytest.raises(NotATimeoutsTable, match="Time, PersistenceVersion"):
        timeouts_table(
            "public",
            "X",
            [c for c in _columns() if c["name"] not in {"Time", "PersistenceVersion"}],
        )


def test_columns_are_found_by_name_in_any_case_and_order() -> None:
    """Extra columns and another spelling do not matter."""
    columns = [{"name": str(c["name"]).lower(), "type": c["type"]} for c in _columns()]
    columns = [{"name": "extra", "type": Integer()}, *reversed(columns)]
    table = timeouts_table(None, "X", columns).table
    assert set(table.c.keys()) == set(COLUMNS)
    assert {column.name for column in table.c} == {name.lower() for name in COLUMNS}


@pytest.mark.parametrize("zone", [True, False])
def test_the_due_column_keeps_its_kind_of_timestamp(zone: bool) -> None:
    """Comparing across kinds would make the index useless."""
    column = timeouts_table("public", "X", _columns(zone=zone)).table.c.Time
    assert column.type.with_zone is zone  # type: ignore[attr-defined]


# ── shared tables ───────────────────────────────────────────────────────────────────────────────


@given(st.none() | names, names, st.text())
def test_a_shared_source_names_one_table_and_one_endpoint(
    schema: str | None, table: str, owner: str
) -> None:
    """Whatever is in the names, parsing gives back what was built."""
    source = build_shared_source(shared_name(schema, table), owner)
    named, found = parse_shared_source(source)
    assert (named, found) == (shared_name(schema, table), owner)


def test_plain_shared_names_stay_readable() -> None:
    """Schema, table and endpoint."""
    source = build_shared_source(shared_name("public", "timeoutentity"), "Sales.Orders")
    assert source == "public.timeoutentity#Sales.Orders"


@pytest.mark.parametrize("source", ["", "public.timeoutentity", "#Sales", '"a#Sales'])
def test_a_source_without_owner_is_no_part_of_a_table(source: str) -> None:
    """It is never guessed."""
    with pytest.raises(ValueError, match="names no endpoint's part"):
        parse_shared_source(source)


def _shared(**types: TypeEngine[Any]) -> list[dict[str, object]]:
    usual = {"Id": Uuid(), "SagaId": Uuid(), "State": LargeBinary(), "Time": DateTime()}
    return [
        {"name": n.lower(), "type": ({**usual, **types}).get(n, Text())} for n in SHARED_COLUMNS
    ]


def test_columns_may_have_been_renamed() -> None:
    """A naming strategy of NHibernate may call them anything."""
    columns = [{**c, "name": "due"} if c["name"] == "time" else c for c in _shared()]
    table = shared_table("public", "x", columns, {"Time": "Due"})
    assert (table.c.Time.name, table.c.Endpoint.name) == ("due", "endpoint")
    with pytest.raises(NotATimeoutsTable, match="Time"):
        shared_table("public", "x", columns, {})


def test_ids_of_bytes_are_guids() -> None:
    """Little-endian, as .NET writes them; what cannot hold a GUID is refused, not misread."""
    table = shared_table(None, "x", _shared(Id=LargeBinary(), SagaId=String(36)), {})
    assert isinstance(table.c.Id.type, GuidBytes)
    with pytest.raises(NotATimeoutsTable, match=r"x\.id"):
        shared_table(None, "x", _shared(Id=Integer()), {})


@pytest.mark.parametrize("has_zone", [False, True])
def test_a_due_column_without_a_zone_is_in_that_of_the_settings(has_zone: bool) -> None:
    """One with a zone knows better."""
    columns = _columns(zone=has_zone)
    legacy = timeouts_table("public", "T", columns, time_zone="Europe/Berlin")
    assert zone_of(legacy.table.c.Time) == (None if has_zone else "Europe/Berlin")


@pytest.mark.parametrize(
    ("endpoint", "table"),
    [
        ("Sales", "Sales_TimeoutData"),
        ("Sales.Orders-EU", "Sales_Orders-EU_TimeoutData"),
        ("A..B", "A__B_TimeoutData"),
    ],
)
def test_only_dots_are_replaced(endpoint: str, table: str) -> None:
    """Everything else stays as it is."""
    assert default_table(endpoint) == table


@pytest.mark.parametrize(
    ("table", "endpoint"),
    [
        ("Sales_Orders_TimeoutData", "Sales_Orders"),
        ("fooTimeoutData", "foo"),
        ("TimeoutData", "TimeoutData"),
    ],
)
def test_a_table_shows_its_endpoint(table: str, endpoint: str) -> None:
    """With underscores where dots were; never empty."""
    assert endpoint_of(table) == endpoint


def test_other_databases_are_refused_by_name() -> None:
    """The message says which database is not supported."""
    with pytest.raises(StoreError, match="firebird"):
        dialect_for("firebird")


INDEXES = [("PK", "Id"), ("ByBoth", "Endpoint"), ("ByBoth", "TIME"), ("ByTime", "Time")]


@pytest.mark.parametrize(
    ("names", "index"),
    [
        (["Time"], "ByTime"),
        (["endpoint", "time"], "ByBoth"),
        (["Endpoint"], "ByBoth"),
        (["Time", "Endpoint"], None),
        (["SagaId"], None),
    ],
)
def test_an_index_counts_when_it_begins_with_the_columns(
    names: list[str], index: str | None
) -> None:
    """In their order, in any letter case."""
    assert beginning_with(INDEXES, names) == index


def test_a_database_without_snapshots_is_told_with_what_allows_them() -> None:
    """Its name is quoted, whatever it is."""
    remark = without_snapshots("Sal]es")
    assert remark.subject == "Sal]es"
    assert "ALTER DATABASE [Sal]]es] SET ALLOW_SNAPSHOT_ISOLATION ON" in remark.remedy
