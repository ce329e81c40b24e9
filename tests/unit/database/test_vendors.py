"""What servers other than PostgreSQL say of themselves and of failures, without a server."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import oracledb
import pytest
from oracledb import errors
from sqlalchemy import make_url
from sqlalchemy.dialects import mssql as mssql_types
from sqlalchemy.dialects import oracle as oracle_types
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.exc import DBAPIError

from migrator.database import mssql, mysql, oracle
from migrator.database.engine import open_engine, with_driver
from migrator.database.failures import is_passing, translating
from migrator.database.types import ColumnTime, UtcDateTime, rounded_up
from migrator.errors import DISTRIBUTION, DriverMissing, LedgerError, StoreError
from migrator.stores.sql.dialects import dialect_for

# the driver cannot be imported without unixODBC, and its errors are no more than their arguments
OdbcError = type("Error", (Exception,), {"__module__": "pyodbc"})


def odbc(state: str, message: str) -> DBAPIError:
    """Return an error as pyodbc raises it."""
    text = f"[{state}] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]{message}"
    return DBAPIError("SELECT 1", None, OdbcError(state, text))


def ora(message: str) -> DBAPIError:
    """Return an error as python-oracledb raises it."""
    details: Any = errors._Error(message=message)
    return DBAPIError("SELECT 1", None, oracledb.DatabaseError(details))


@pytest.mark.parametrize(
    ("failure", "passes"),
    [
        (odbc("40001", "You are the deadlock victim. (1205) (SQLExecDirectW)"), True),
        (odbc("42000", "Lock request time out period exceeded. (1222) (SQLExecDirectW)"), True),
        (odbc("HYT00", "Query timeout expired (0) (SQLExecDirectW)"), True),
        (odbc("08S01", "Communication link failure (0) (SQLExecDirectW)"), True),
        (odbc("HY000", "Database is not currently available. (40613) (SQLDriverConnect)"), True),
        (odbc("28000", "Login failed for user 'x'. (18456) (SQLDriverConnect)"), False),
        (odbc("42S02", "Invalid object name 'x'. (208) (SQLExecDirectW)"), False),
        (ora("ORA-00060: deadlock detected while waiting for resource"), True),
        (ora("ORA-30006: resource busy; acquire with WAIT timeout expired"), True),
        (ora("ORA-12541: TNS:no listener"), True),
        (ora("DPY-4024: call timeout of 60000 ms exceeded"), True),
        (ora("ORA-01017: invalid username/password; logon denied"), False),
        (ora("ORA-00942: table or view does not exist"), False),
    ],
)
def test_failures_that_pass_are_told_from_those_that_stay(
    failure: DBAPIError, passes: bool
) -> None:
    """Locks, lost connections and servers that move pass; rights and names do not."""
    assert is_passing(failure) is passes


@pytest.mark.parametrize(
    "message",
    [
        "String or binary data would be truncated in table 't', column 'c'. "
        "Truncated value: 'secret'. (2628) (SQLExecDirectW)",
        "Violation of UNIQUE KEY constraint 'k'. The duplicate key value is (secret). (2627) (SQL",
        "Conversion failed when converting the nvarchar value 'secret' to int. (245) (SQL",
    ],
)
def test_no_message_of_sql_server_quotes_a_row(message: str) -> None:
    """What was in a row stays out of logs and reports."""
    with pytest.raises(LedgerError) as caught, translating(LedgerError, doing="x"):
        raise odbc("42000", message)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("check", "told", "needed"),
    [
        (mysql.check_version, ["8.0.36"], None),
        (mysql.check_version, ["9.1.0-commercial"], None),
        (mysql.check_version, ["10.6.12-MariaDB"], None),
        # an old version of MySQL in front
        (mysql.check_version, ["5.5.5-10.11.19-MariaDB-0+deb12u1"], None),
        (mysql.check_version, ["5.7.44-log"], "8.0 or newer"),
        (mysql.check_version, ["5.5.5-10.5.23-MariaDB"], "10.6 or newer"),
        (mysql.check_version, ["strange"], "8.0 or newer"),
        (mssql.check_version, [13, 3], None),
        (mssql.check_version, [12, 5], None),  # Azure's number is no version
        (mssql.check_version, [12, 3], "2016"),
        (oracle.check_version, ["12.2.0.1.0"], None),
        (oracle.check_version, ["12.1.0.2.0"], "12.2 or newer"),
        (oracle.check_character_set, ["AL32UTF8"], None),
        (oracle.check_character_set, ["WE8MSWIN1252"], "AL32UTF8"),
    ],
)
def test_servers_that_cannot_do_what_a_claim_needs_are_refused(
    check: Callable[..., None], told: list[Any], needed: str | None
) -> None:
    """When they are connected to, by what they tell of themselves; what is needed is named."""
    with pytest.raises(StoreError, match=needed) if needed else nullcontext():
        check(*told)


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
    """A commit only prepared in InnoDB is rolled back if the binary log lacks it."""
    found = mysql.find_lossy_setting(flushed=flushed, has_binary_log=has_binary_log, synced=synced)
    assert found == how


def test_there_is_one_driver_for_each() -> None:
    """Another one is refused by name later, not exchanged in silence."""
    for url, driver in {
        "mysql://h/d": "mysql+pymysql",
        "mariadb+pymysql://h/d": "mysql+pymysql",
        "mysql+mysqldb://h/d": "mysql+mysqldb",
        "mssql://h/d": "mssql+pyodbc",
        "oracle://h/?service_name=x": "oracle+oracledb",
    }.items():
        assert with_driver(make_url(url)).drivername == driver


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("mysql://h/d", "pymysql", "mysql"), ("mssql://h/d", "pyodbc", "mssql"),
     ("oracle://h/?service_name=x", "oracledb", "oracle")],
)  # fmt: skip
def test_a_driver_that_is_not_installed_is_named_with_its_extra(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of our distribution: another one is called like the command."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DriverMissing) as caught:
        open_engine(url)
    assert str(caught.value) == (
        f"store.url needs {package}, which is not installed: "
        f'pip install "nservicebus-timeout-migrator[{extra}]"'
    )
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert any(package in each for each in project["optional-dependencies"][extra])


def test_an_address_may_say_what_we_would() -> None:
    """What is in the URL wins, in any letter case; but text is always sent whole."""
    plain = make_url("mssql+pyodbc://user@host/db?driver=ODBC+Driver+18+for+SQL+Server")
    assert mssql.connect_arguments(plain) == {"timeout": 10, "APP": "migrator"}
    own = plain.update_query_dict({"App": "mine"})
    assert mssql.connect_arguments(own) == {"timeout": 10}
    found = mysql.connect_arguments(make_url("mysql+pymysql://h/d?connect_timeout=3"))
    assert "connect_timeout" not in found
    assert found["charset"] == "utf8mb4"


def test_mysql_has_times_without_a_zone_and_dates_that_are_none() -> None:
    """The server knows no zones; its driver gives a date that is none as text."""
    kind, server = UtcDateTime(), MySQLDialect_pymysql()
    noon: Any = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert kind.process_bind_param(noon, server) == noon.replace(tzinfo=None)
    assert kind.process_result_value("0000-00-00 00:00:00", server) is None


def test_a_moment_is_rounded_as_the_column_rounds_it() -> None:
    """A DATE has whole seconds; datetime begins in 1753; what is written is never sooner."""
    moment = datetime(2026, 3, 1, 12, 0, 0, 1_000, tzinfo=UTC)
    dialect: Any = None
    date = ColumnTime(oracle_types.DATE())
    assert date.process_bind_param(moment, dialect) == datetime(2026, 3, 1, 12)  # noqa: DTZ001
    old = datetime(1000, 1, 1, tzinfo=UTC)
    kept = ColumnTime(mssql_types.DATETIME())
    assert kept.process_bind_param(old, dialect) == datetime(1753, 1, 1)  # noqa: DTZ001
    assert rounded_up(moment, timedelta(seconds=1)) == moment.replace(second=1, microsecond=0)
    assert rounded_up(moment, timedelta(milliseconds=10)).microsecond == 10_000


def test_oracle_names_are_upper_case_however_they_are_given() -> None:
    """SQLAlchemy spells upper case in lower case, unless it needs quotes (reference 1.1)."""
    spelled = dialect_for("oracle").spelled
    assert spelled("Sales_Orders_TO") == "sales_orders_to"
    assert spelled("Sales-EU_TO") == "SALES-EU_TO"
