"""The pieces under stores and ledger: times, transactions, failures."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy import text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.exc import DBAPIError, OperationalError

from migrator.database.engine import open_engine, reading, writing
from migrator.database.failures import is_passing, retrying, translating
from migrator.database.types import UtcDateTime
from migrator.errors import ConfigError, LedgerError, StoreError, StoreUnavailable

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_times_are_stored_and_read_in_utc() -> None:
    """SQLite gets text that compares like time; a time without a zone is never guessed."""
    warsaw, kind, file = NOON.astimezone(timezone(timedelta(hours=1))), UtcDateTime(), dialect()
    assert kind.process_bind_param(warsaw, file) == "2026-03-01 12:00:00.000000"
    bare = UtcDateTime(with_zone=False).process_bind_param(warsaw, registry.load("postgresql")())
    assert bare == NOON.replace(tzinfo=None)
    for stored in ("2026-03-01 12:00:00", "2026-03-01 12:00:00.000", NOON, warsaw, bare):
        assert kind.process_result_value(stored, file) == NOON
    with pytest.raises(ValueError, match="naive"):
        kind.process_bind_param(bare, file)


def test_a_new_file_may_be_opened_while_another_writes_to_it(tmp_path: Path) -> None:
    """Whoever comes second waits, as for any lock."""
    with (
        closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE t (n)")
        engine = open_engine(f"sqlite:///{tmp_path}/x.db")
        opening = pool.submit(lambda: engine.connect().close())
        with pytest.raises(TimeoutError):
            opening.result(timeout=0.1)
        other.execute("COMMIT")
        opening.result(timeout=60)
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("nonsense", "not a database URL"),
        ("postgresql+nope://u:hunter2@h/d", "not a database URL"),
        ("postgresql+asyncpg://u:hunter2@h/d", "the driver asyncpg"),
        ("mysql+mysqldb://u:hunter2@h/d", "the driver MySQLdb"),
    ],
)
def test_other_databases_are_refused_with_an_example(url: str, word: str) -> None:
    """A wrong setting is no bug, and its password is not told."""
    with pytest.raises(ConfigError, match=word) as caught:
        open_engine(url)
    assert "postgresql+psycopg://" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """Whatever ends the block but its end rolls back, tables included."""
    engine = open_engine(f"sqlite:///{tmp_path}/x.db")

    def fail_half_way() -> None:
        with writing(engine) as connection:
            connection.execute(text("CREATE TABLE a (x integer)"))
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar_one() == 0
    engine.dispose()


def _driver_error(cause: Exception) -> DBAPIError:
    return OperationalError("SELECT 1", {}, cause)


def _sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("cause", "passing"),
    [
        (psycopg.errors.DeadlockDetected("x"), True),
        (psycopg.errors.LockNotAvailable("x"), True),
        (psycopg.errors.QueryCanceled("x"), True),
        (psycopg.errors.AdminShutdown("x"), True),
        (psycopg.errors.DiskFull("x"), True),
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.OperationalError("failed: FATAL:  the database system is starting up"), True),
        (psycopg.OperationalError('failed: FATAL:  database "x" does not exist'), False),
        (psycopg.OperationalError("FATAL:  password authentication failed for user"), False),
        (psycopg.OperationalError("fe_sendauth: no password supplied"), False),
        (psycopg.errors.InsufficientPrivilege("x"), False),
        (psycopg.errors.UndefinedTable("x"), False),
        (psycopg.errors.UniqueViolation("x"), False),
        (pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"), True),
        (pymysql.err.OperationalError(1213, "Deadlock found"), True),
        (pymysql.err.OperationalError(2003, "Can't connect to MySQL server"), True),
        (pymysql.err.OperationalError(1969, "max_statement_time exceeded"), True),
        (pymysql.err.OperationalError(1040, "Too many connections", sqlstate="08004"), True),
        (pymysql.err.OperationalError(1045, "Access denied", sqlstate="28000"), False),
        (pymysql.err.OperationalError(1049, "Unknown database 'x'"), False),
        (pymysql.err.OperationalError(1142, "DELETE command denied"), False),
        (pymysql.err.IntegrityError(1062, "Duplicate entry"), False),
        (_sqlite_error(sqlite3.SQLITE_BUSY), True),
        (_sqlite_error(sqlite3.SQLITE_BUSY_SNAPSHOT), True),
        (_sqlite_error(sqlite3.SQLITE_ERROR), False),
        (_sqlite_error(sqlite3.SQLITE_READONLY), False),
    ],
)
def test_passing_failures_are_told_from_lasting_ones(cause: Exception, passing: bool) -> None:
    """What may succeed later is unavailable, the rest is an answer."""
    error = _driver_error(cause)
    assert is_passing(error) is passing
    expected: type[Exception] = StoreUnavailable if passing else LedgerError
    with pytest.raises(expected, match="a test"), translating(LedgerError, doing="a test"):
        raise error
    error.connection_invalidated = True
    assert is_passing(error)


def test_messages_carry_one_line_of_the_cause() -> None:
    """Details of the server, which may quote a row, stay out."""
    cause = psycopg.errors.NotNullViolation("null value\nDETAIL: Failing row contains (secret)")
    with pytest.raises(StoreError) as caught, translating(StoreError, doing="a test"):
        raise _driver_error(cause)
    assert "null value" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("kind", "count"), [(StoreUnavailable, 3), (LedgerError, 1)])
def test_calls_are_repeated_only_while_unavailable(kind: type[Exception], count: int) -> None:
    """A few times, then the error comes through; an answer is never asked for twice."""
    calls: list[int] = []

    def failing() -> None:
        calls.append(1)
        raise kind("x")

    with pytest.raises(kind):
        retrying(failing)
    assert len(calls) == count
