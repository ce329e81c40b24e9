"""What is known of MariaDB and MySQL before anybody asks them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import column, select
from sqlalchemy.dialects.mysql.pymysql import dialect
from sqlalchemy.engine import make_url

from migrator.database.mysql import (
    check_version,
    connect_arguments,
    how_it_forgets,
    with_driver,
)
from migrator.database.types import UtcDateTime, exactly
from migrator.errors import StoreError


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "mysql+pymysql://h/d", "mariadb://h/d", "mariadb+pymysql://h/d"]
)
def test_there_is_one_driver_for_both(url: str) -> None:
    """However the address calls the server, the dialect has one name."""
    assert with_driver(make_url(url)).drivername == "mysql+pymysql"


@pytest.mark.parametrize("url", ["postgresql+psycopg://h/d", "mysql+mysqldb://h/d"])
def test_other_drivers_are_left_alone(url: str) -> None:
    """They are refused by name later, not exchanged in silence."""
    assert with_driver(make_url(url)).drivername == url.partition(":")[0]


@pytest.mark.parametrize(
    "version",
    ["8.0.36", "8.4.2-commercial", "9.1.0", "10.6.12-MariaDB", "5.5.5-10.11.19-MariaDB-0+deb12u1"],
)
def test_servers_that_can_claim_are_taken(version: str) -> None:
    """As they tell their version; MariaDB may put an old one of MySQL in front."""
    check_version(version)


@pytest.mark.parametrize(
    ("version", "needed"),
    [
        ("5.7.44-log", "8.0"),
        ("5.5.5-10.5.23-MariaDB", "10.6"),
        ("10.3.39-MariaDB", "10.6"),
        ("strange", "8.0"),
    ],
)
def test_older_servers_are_refused_with_what_is_needed(version: str, needed: str) -> None:
    """They cannot leave out locked rows."""
    with pytest.raises(StoreError, match=f"{needed} or newer"):
        check_version(version)


@pytest.mark.parametrize(
    ("flushed", "has_binary_log", "synced", "how"),
    [
        (1, False, 0, None),
        (1, True, 1, None),
        (3, True, 0, None),
        (1, True, 0, "sync_binlog is 0"),
        (1, True, 100, "sync_binlog is 100"),
        (2, True, 1, "innodb_flush_log_at_trx_commit is 2"),
        (0, False, 0, "innodb_flush_log_at_trx_commit is 0"),
    ],
)
def test_a_commit_is_kept_by_both_logs(
    *, flushed: int, has_binary_log: bool, synced: int, how: str | None
) -> None:
    """What is only prepared in the one is rolled back if it is not in the other."""
    assert how_it_forgets(flushed=flushed, has_binary_log=has_binary_log, synced=synced) == how


def test_what_the_address_says_is_not_said_again() -> None:
    """An operator's own time limit wins."""
    found = connect_arguments(make_url("mysql+pymysql://h/d?connect_timeout=3"), 10)
    assert "connect_timeout" not in found
    assert found["charset"] == "utf8mb4"


def test_times_are_bound_without_a_zone_and_a_zero_date_is_none() -> None:
    """The server knows no zones; its driver gives a date that is none as text."""
    kind, server = UtcDateTime(), dialect()
    noon: Any = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert kind.process_bind_param(noon, server) == noon.replace(tzinfo=None)
    assert kind.process_result_value("0000-00-00 00:00:00", server) is None


def test_text_is_compared_letter_by_letter_when_that_is_meant() -> None:
    """Where a column's collation would not; elsewhere nothing is added."""
    query = select(exactly(column("a")))
    assert "COLLATE utf8mb4_bin" in str(query.compile(dialect=dialect()))
    assert "COLLATE" not in str(query)
