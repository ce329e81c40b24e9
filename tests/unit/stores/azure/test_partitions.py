"""Tests of ``migrator.stores.azure.partitions``."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.stores.azure.partitions import parse_scope

DUE = datetime(2026, 11, 3, 8, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("scope", "key", "is_ascending"),
    [
        ("yyyyMMddHH", "2026110308", True),
        ("yyyy-MM-dd", "2026-11-03", True),
        ("yyyy_MM_dd", "2026_11_03", True),
        ("yyyyMMddHHmm", "202611030815", True),
        ("dd-MM-yyyy", "03-11-2026", False),
        ("yyyydd", "202603", False),  # all months of a year in one another
    ],
)
def test_a_key_is_written_as_dotnet_writes_it(scope: str, key: str, is_ascending: bool) -> None:
    """Whoever looks for a range has to know whether keys sort as times do."""
    found = parse_scope(scope)
    assert (found.key_of(DUE), found.is_ascending) == (key, is_ascending)


@pytest.mark.parametrize("text", ["", "yyMMdd", "MMdd", "yyyy MM", "yyyy/MM", "yyyyMMddHHss"])
def test_another_format_is_refused(text: str) -> None:
    """Its keys would not be found, and its timeouts not be seen."""
    with pytest.raises(ValueError, match="such as yyyyMMddHH"):
        parse_scope(text)


@given(st.datetimes(min_value=datetime(1601, 1, 1)), st.datetimes(min_value=datetime(1601, 1, 1)))  # noqa: DTZ001 - keys are of UTC
def test_ascending_keys_sort_as_times(one: datetime, other: datetime) -> None:
    """What is due no later has no greater key."""
    scope = parse_scope("yyyyMMddHH")
    first, second = sorted([one, other])
    assert scope.key_of(first) <= scope.key_of(second)
