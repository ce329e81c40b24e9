"""Sessions on SQL Server, so that they do what the rest of the program takes for granted.

Rules of this file: every lock is asked for by a hint, so the database may have
READ_COMMITTED_SNAPSHOT on or off; the first error rolls a whole transaction back; there is no
session time zone, so the ledger's times are UTC without saying so.

Compiled, parsed and read; nobody has run it on a server yet (``docs/how-to/sql-server.md``).
Source: SQL Server documentation, "SET XACT_ABORT", "SET LOCK_TIMEOUT", "CREATE INDEX"
("Required SET options"), "Table hints"; SQLAlchemy
documentation, "Pyodbc pooling"; pyodbc wiki, "Connection".
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.mssql.base import MSSQLCompiler
from sqlalchemy.engine import URL
from sqlalchemy.exc import CompileError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from migrator.errors import StoreError

_OLDEST_MAJOR: Final = 13
"""SQL Server 2016: the first with index keys of 1700 bytes; the ledger's are up to 1510."""
_HOSTED: Final = frozenset({5, 8, 11, 12})
"""Editions of Azure and Fabric: always the newest engine, whatever number they tell."""
_VERSION: Final = (
    "SELECT CAST(SERVERPROPERTY('ProductMajorVersion') AS int), "
    "CAST(SERVERPROPERTY('EngineEdition') AS int)"
)
_NEEDED: Final = (
    "ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL, "
    "QUOTED_IDENTIFIER"
)
"""By the ledger's indexes: no row can be written without; a server or DSN may set them off.

With NOCOUNT, which a server may set on, nobody would be told how many rows were changed.
"""
_PASSING_STATES: Final = ("08", "40001", "HYT")
"""Connection exceptions, deadlock, timeouts of a login, a statement or a lock."""
_PASSING: Final = frozenset(
    {
        *(1205, 1222, -2, 3960),  # deadlock, lock timeout, statement timeout, changed meanwhile
        *(701, 1105, 1204, 8645, 8651, 9002, 10928, 10929),  # out of memory, disk, locks, log
        *(40197, 40501, 40540, 40613, 49918, 49919, 49920),  # Azure: moves, busy, not available
        *(596, 6005, 6006, 17142, 17147, 17148),  # our session was ended; shuts down, paused
        *(922, 927, 976, 978, 983),  # recovers, restores, changes its role in a group
        *(20, 64, 233, 10053, 10054, 10060, 11001),  # the network
    }
)
_CHANGED: Final = "migrator_session_changed"
_NUMBER: Final = re.compile(r"\((-?\d+)\) \(SQL")
"""pyodbc puts the server's number before the name of the ODBC function."""
_QUOTED_ROW: Final = re.compile(
    r"(Truncated value: |duplicate key value is |converting the \S+ value )('.*'|\(.*\))"
)
"""Where a message of the server quotes what is in a row."""


class LockingCompiler(MSSQLCompiler):
    """Refuses to leave out a lock in silence, as SQLAlchemy does for SQL Server."""

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Return nothing, for there is no such clause; the hint must be there."""
        del kw
        if not any("UPDLOCK" in hint for hint in select._hints.values()):
            raise CompileError("FOR UPDATE has no hint for SQL Server; use portable.for_update")
        return ""


def with_driver(url: URL) -> URL:
    """Return *url* with the one driver that is used."""
    return url.set(drivername="mssql+pyodbc") if url.drivername == "mssql" else url


def connect_arguments(url: URL, *, application: str, timeout_s: int) -> dict[str, Any]:
    """Return what the driver is told, as far as *url* does not say it."""
    said = {name.casefold() for name in url.query}
    if "odbc_connect" in said:
        return {"timeout": timeout_s}
    return {"timeout": timeout_s} | ({} if "app" in said else {"APP": application})


def adapt(dialect: Any) -> None:
    """Have a dialect of SQLAlchemy write statements as this file wants them."""
    dialect.statement_compiler = LockingCompiler


def prepare(engine: Engine, *, lock: timedelta, statement: timedelta) -> None:
    """Give every new session its patience, and have it roll back whole transactions.

    Raises, when connecting:
        StoreError: The server is older than the oldest that can hold the ledger.
    """
    dialect: Any = engine.dialect
    # the driver manager would hand a session on with our settings, or give us one without
    dialect.loaded_dbapi.pooling = False
    adapt(dialect)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.timeout = max(int(statement.total_seconds()), 1)
        cursor = connection.cursor()
        try:
            cursor.execute(session_settings(lock))
            check_version(*cursor.execute(_VERSION).fetchone())
        finally:
            cursor.close()
        connection.commit()

    @event.listens_for(engine, "checkin")
    def _forget(connection: Any, record: ConnectionPoolEntry) -> None:
        if connection is None or not record.info.pop(_CHANGED, False):
            return
        try:
            _be_patient(connection, lock=lock, statement=statement)
        except Exception as exc:  # whatever it was, the next one gets another session
            record.invalidate(exc)


def for_now(connection: Connection, *, lock: timedelta, statement: timedelta) -> None:
    """Have *connection* be patient in another way, until it is given back."""
    connection.info[_CHANGED] = True
    _be_patient(connection.connection.driver_connection, lock=lock, statement=statement)


def _be_patient(connection: Any, *, lock: timedelta, statement: timedelta) -> None:
    connection.timeout = max(int(statement.total_seconds()), 1)
    cursor = connection.cursor()
    try:
        cursor.execute(f"SET LOCK_TIMEOUT {max(lock // timedelta(milliseconds=1), 1)}")
    finally:
        cursor.close()


def session_settings(lock: timedelta) -> str:
    """Return the statement that every session begins with."""
    milliseconds = lock // timedelta(milliseconds=1)
    # a legacy timeout manager gives up after a deadlock, and we try again
    return (
        f"SET XACT_ABORT ON; SET LOCK_TIMEOUT {milliseconds}; SET DEADLOCK_PRIORITY LOW; "
        f"SET {_NEEDED} ON; SET NUMERIC_ROUNDABORT, NOCOUNT OFF"
    )


def check_version(major: int | None, edition: int) -> None:
    """Return when a server with this *major* version and *edition* is new enough.

    Raises:
        StoreError: It is not.
    """
    if edition not in _HOSTED and (major or 0) < _OLDEST_MAJOR:
        raise StoreError("the database is older than SQL Server 2016, the oldest that will do")


def state_of(exc: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error of pyodbc; None: it is of another driver."""
    arguments: tuple[Any, ...] = getattr(exc.orig, "args", ())
    is_odbc = type(exc.orig).__module__ == "pyodbc" and len(arguments) > 1
    return str(arguments[0]) if is_odbc else None


def is_passing(exc: DBAPIError) -> bool:
    """Return True when the same call may succeed later; of an error of pyodbc."""
    found = _NUMBER.search(str(exc.orig))
    if found is not None and int(found.group(1)) in _PASSING:
        return True
    return (state_of(exc) or "").startswith(_PASSING_STATES)


def without_rows(message: str) -> str:
    """Return *message* without what it quotes of a row."""
    return _QUOTED_ROW.sub(r"\1…", message)
