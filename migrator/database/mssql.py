"""Sessions on SQL Server, set up as the rest of the program expects.

Rules of this file: every lock is requested by a hint, so the database may have
READ_COMMITTED_SNAPSHOT on or off. The first error rolls a whole transaction back. There is no
session time zone, so the ledger's times are UTC implicitly.

The SQL is compiled, parsed, and run on a T-SQL server of another vendor with FreeTDS, not yet on
SQL Server (``docs/how-to/sql-server.md``).
Source: SQL Server documentation, "SET XACT_ABORT", "SET LOCK_TIMEOUT", "CREATE INDEX" ("Required
SET options"), "Table hints"; SQLAlchemy documentation, "Pyodbc pooling"; pyodbc wiki, "Connection".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import CompileError, DBAPIError

from migrator.database.sessions import (
    APPLICATION_NAME,
    CONNECT_TIMEOUT_S,
    DEFAULT_TIMEOUTS,
    Timeouts,
    as_of_statement,
    changed,
    milliseconds,
    restoring,
)
from migrator.errors import StoreError

_OLDEST_MAJOR: Final = 13
"""SQL Server 2016: the first with index keys of 1700 bytes; the ledger's have up to 1510."""
_HOSTED: Final = frozenset({5, 8, 11, 12})
"""Editions of Azure and Fabric: always the newest engine, whatever number they report."""
_VERSION: Final = (
    "SELECT CAST(SERVERPROPERTY('ProductMajorVersion') AS int), "
    "CAST(SERVERPROPERTY('EngineEdition') AS int)"
)
ISOLATION: Final = "READ COMMITTED"
_DRIVER_NAME: Final = 6
"""SQL_DRIVER_NAME of ODBC: the file of the driver."""
SESSION: Final = (
    # a legacy timeout manager gives up after a deadlock, and we try again
    f"SET TRANSACTION ISOLATION LEVEL {ISOLATION}; "
    "SET XACT_ABORT ON; SET DEADLOCK_PRIORITY LOW; SET ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, "
    "ARITHABORT, CONCAT_NULL_YIELDS_NULL, QUOTED_IDENTIFIER ON; "
    "SET NUMERIC_ROUNDABORT, NOCOUNT OFF"
)
"""The ledger's indexes require these options; NOCOUNT would hide the number of changed rows."""
_PASSING_STATES: Final = ("08", "40001", "HYT")
"""Connection exceptions, deadlock, timeouts of a login, a statement or a lock."""
_LOCK_TIMEOUT: Final = 1222
_PASSING: Final = frozenset(
    {
        *(
            1205,
            _LOCK_TIMEOUT,
            -2,
            3960,
        ),  # deadlock, lock timeout, statement timeout, changed meanwhile
        *(701, 1105, 1204, 8645, 8651, 9002, 10928, 10929),  # out of memory, disk, locks, log
        # Azure: moves, busy, not available, not open yet for logins, more requests than it takes
        *(615, 926, 4060, 4221, 10936, 40197, 40501, 40540, 40613, 42108, 42109),
        *(49918, 49919, 49920),
        *(596, 6005, 6006, 17142, 17147, 17148),  # our session was ended; shuts down, paused
        *(922, 927, 976, 978, 983),  # recovers, restores, changes its role in a group
        *(20, 64, 121, 233, 10053, 10054, 10060, 11001),  # the network
        3903,  # the transaction is gone that was to be rolled back: a driver lost why, see adapt
    }
)
"""On premises, 4060 may also be a wrong name, which is then reported again and again.

Source: Microsoft's documentation, "Troubleshoot connectivity issues and other errors" (Azure SQL
Database, list of transient fault error codes); the errors that its own clients retry.
"""
_NO_TRANSACTION: Final = 3903
_NUMBER: Final = re.compile(r"\((-?\d+)\)(?= \(SQL|; \[|$)")
"""pyodbc puts the server's number behind each message, and the ODBC function behind the first."""
_QUOTED_ROW: Final = re.compile(
    r"(Truncated value: |duplicate key value is |converting the \S+ value )('.*'|\(.*\))"
)
"""Where a message of the server quotes values of a row."""


class Locking:
    """A mixin for SQLAlchemy's compiler, which otherwise omits locks on SQL Server silently."""

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        if not any("UPDLOCK" in hint for hint in select._hints.values()):
            raise CompileError("FOR UPDATE has no hint for SQL Server; use portable.for_update")
        return ""


def connect_arguments(url: URL) -> dict[str, Any]:
    given = {name.casefold() for name in url.query}
    if "odbc_connect" in given:
        return {"timeout": CONNECT_TIMEOUT_S}
    named = {} if "app" in given else {"APP": APPLICATION_NAME}
    return {"timeout": CONNECT_TIMEOUT_S, **named}


def adapt(dialect: Any) -> None:
    """Configure a dialect of SQLAlchemy for this file's rules.

    All text is NVARCHAR, as a parameter and as a literal: as VARCHAR, letters outside the
    database's code page become question marks. Only what is compared with a VARCHAR column stays
    VARCHAR, because its index would not be searched otherwise.
    """
    compiler, types = dialect.statement_compiler, dialect.colspecs
    dialect.statement_compiler = type("LockingCompiler", (Locking, compiler), {})
    narrow, wide = types[sa.String], types[sa.Unicode]
    dialect.colspecs = {**types, sa.String: wide, sa.VARCHAR: narrow, sa.CHAR: narrow}
    # every session sets this one; SQLAlchemy could not restore one that it cannot read
    dialect.get_default_isolation_level = lambda _connection: ISOLATION
    rollback = dialect.do_rollback

    def do_rollback(connection: Any) -> None:
        """Ignore that an error has rolled back already; that would hide the error."""
        try:
            rollback(connection)
        except dialect.loaded_dbapi.Error as exc:
            if _NO_TRANSACTION not in _numbers(exc):
                raise

    dialect.do_rollback = do_rollback


def prepare(engine: sa.Engine) -> None:
    """Set up new sessions; connecting raises ``StoreError`` if the server is too old."""
    dialect: Any = engine.dialect
    # the driver manager would hand a session on with our settings, or give us one without
    dialect.loaded_dbapi.pooling = False
    adapt(dialect)

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(SESSION)
            check_version(*cursor.execute(_VERSION).fetchone())
        set_timeouts(connection)
        connection.commit()

    restoring(engine, set_timeouts)


def change_timeouts(connection: sa.Connection, timeouts: Timeouts) -> None:
    with as_of_statement(connection):
        set_timeouts(changed(connection), timeouts)


def set_timeouts(connection: Any, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
    connection.timeout = max(int(timeouts.statement.total_seconds()), 1)
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"SET LOCK_TIMEOUT {milliseconds(timeouts.lock)}")


def check_version(major: int | None, edition: int) -> None:
    if edition not in _HOSTED and (major or 0) < _OLDEST_MAJOR:
        raise StoreError("the database is older than SQL Server 2016, the oldest supported version")


def state_of(exc: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error of pyodbc; None: another driver's error."""
    arguments: tuple[Any, ...] = getattr(exc.orig, "args", ())
    is_odbc = type(exc.orig).__module__ == "pyodbc" and len(arguments) > 1
    return str(arguments[0]) if is_odbc else None


def is_passing(exc: DBAPIError) -> bool:
    if not _PASSING.isdisjoint(_numbers(exc.orig)):
        return True
    return (state_of(exc) or "").startswith(_PASSING_STATES)


def is_lock_timeout(error: BaseException | None) -> bool:
    if not isinstance(error, DBAPIError) or state_of(error) is None:
        return False
    return _LOCK_TIMEOUT in _numbers(error.orig)


def _numbers(error: BaseException | None) -> Sequence[int]:
    text = str(error.args[-1]) if error is not None and error.args else ""
    return [int(found) for found in _NUMBER.findall(text)]


def foreign_driver(connection: sa.Connection) -> str | None:
    driver: Any = connection.connection.driver_connection
    name = str(driver.getinfo(_DRIVER_NAME))
    return None if "msodbcsql" in name.casefold() else name


def length(text: str) -> int:
    """Return the length of *text* in NVARCHAR: a pair of UTF-16 counts as two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def without_rows(message: str) -> str:
    return _QUOTED_ROW.sub(r"\1…", message)
