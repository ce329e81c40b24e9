"""The vendor's rules for table names."""

from __future__ import annotations

import pytest

from migrator.errors import StoreError
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.sql_persistence import default_table, endpoint_of


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
