"""Tests of ``migrator.stores.sql``: sources, tables, names, indexes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import DateTime, Integer, LargeBinary, String, Text, Uuid
from sqlalchemy.types import TypeEngine

from migrator.database.types import GuidBytes
from migrator.stores.sql.dialects.base import beginning_with
from migrator.stores.sql.dialects.mssql import without_snapshots
from migrator.stores.sql.legacy_table import (
    COLUMNS,
    SHARED_COLUMNS,
    NotATimeoutsTable,
    build_source,
    owner_of,
    parse_source,
    timeouts_table,
)
from migrator.stores.sql.local_time import zone_of
from migrator.stores.sql.sql_persistence import default_table, endpoint_of

OWN, SHARED = ({key: key for key in keys} for keys in (COLUMNS, SHARED_COLUMNS))
names = st.text(st.characters(exclude_characters="\0"), min_size=1)


def _columns(*, zone: bool = False) -> list[dict[str, object]]:
    types = {"Id": Uuid(), "SagaId": Uuid(), "State": LargeBinary()}
    types["Time"] = DateTime(timezone=zone)
    return [{"name": name, "type": types.get(name, Text())} for name in COLUMNS]


@given(st.none() | names, names, st.text())
@example("public", "Sales Orders_TimeoutData", "Sales.Orders")
def test_a_source_names_exactly_one_table_or_one_endpoints_part_of_it(
    schema: str | None, table: str, owner: str
) -> None:
    """Whatever is in the names, parsing gives back what was built."""
    assert parse_source(build_source(schema, table)) == (schema, table)
    source = build_source(schema, table, owner)
    assert owner_of(source) == owner
    assert parse_source(source.removesuffix(f"#{owner}")) == (schema, table)


@pytest.mark.parametrize("source", ["", ".", "a.b.c", 'a"b', '"a', "a.", "#Sales", '"a#Sales'])
def test_what_was_not_built_is_refused(source: str) -> None:
    """A source is never guessed."""
    with pytest.raises(ValueError, match="names no endpoint's part"):
        owner_of(source)
    with pytest.raises(ValueError, match="names no table"):
        parse_source(source)


def test_columns_are_found_by_name_in_any_case_and_order() -> None:
    """Extra columns and another spelling do not matter."""
    columns = [{"name": str(c["name"]).lower(), "type": c["type"]} for c in _columns()]
    columns = [{"name": "extra", "type": Integer()}, *reversed(columns)]
    table = timeouts_table(None, "X", columns, OWN)
    assert set(table.c.keys()) == set(COLUMNS)
    assert {column.name for column in table.c} == {name.lower() for name in COLUMNS}


def _shared(**types: TypeEngine[Any]) -> list[dict[str, object]]:
    usual = {"Id": Uuid(), "SagaId": Uuid(), "State": LargeBinary(), "Time": DateTime()}
    return [
        {"name": n.lower(), "type": ({**usual, **types}).get(n, Text())} for n in SHARED_COLUMNS
    ]


def test_ids_of_bytes_are_guids() -> None:
    """Little-endian, as .NET writes them; what cannot hold a GUID is refused, not misread."""
    table = timeouts_table(None, "x", _shared(Id=LargeBinary(), SagaId=String(36)), SHARED)
    assert isinstance(table.c.Id.type, GuidBytes)
    with pytest.raises(NotATimeoutsTable, match=r"x\.id"):
        timeouts_table(None, "x", _shared(Id=Integer()), SHARED)


@pytest.mark.parametrize("has_zone", [False, True])
def test_a_due_column_without_a_zone_is_in_that_of_the_settings(has_zone: bool) -> None:
    """One with a zone knows better, and keeps its kind: else no index would be walked."""
    columns = _columns(zone=has_zone)
    table = timeouts_table("public", "T", columns, OWN, time_zone="Europe/Berlin")
    assert zone_of(table.c.Time) == (None if has_zone else "Europe/Berlin")
    plain: Any = timeouts_table("public", "T", columns, OWN).c.Time.type
    assert plain.with_zone is has_zone


@pytest.mark.parametrize(
    ("table", "endpoint"),
    [
        ("Sales_Orders-EU_TimeoutData", "Sales_Orders-EU"),
        ("fooTimeoutData", "foo"),
        ("TimeoutData", "TimeoutData"),
    ],
)
def test_a_table_shows_its_endpoint(table: str, endpoint: str) -> None:
    """With underscores where dots were, and nothing else replaced; never empty."""
    assert endpoint_of(table) == endpoint
    assert default_table("Sales.Orders-EU") == "Sales_Orders-EU_TimeoutData"


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
