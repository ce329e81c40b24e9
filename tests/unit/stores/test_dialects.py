"""What dialects decide without a server."""

from __future__ import annotations

import pytest

from migrator.stores.sql.dialects.base import beginning_with
from migrator.stores.sql.dialects.mssql import without_snapshots

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
