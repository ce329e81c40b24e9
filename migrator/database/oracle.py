"""Sessions on Oracle, set up as the rest of the program expects.

Rules of this file: an empty text is NULL, so none is written into a NOT NULL column. A ``FOR
UPDATE`` waits for a limited time. A limit without an order is written as ROWNUM, because FETCH
FIRST cannot be combined with everything.

The SQL is compiled and parsed, but not yet run on a server (``docs/how-to/oracle.md``).
Source: Oracle documentation, SELECT ("for_update_clause", "Restrictions on the
row_limiting_clause"), ALTER SESSION; python-oracledb documentation, ``Connection.call_timeout``.
"""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import CompileError, DBAPIError

from migrator.database.sessions import (
    APPLICATION_NAME,
    CONNECT_TIMEOUT_S,
    DEFAULT_TIMEOUTS,
    Timeouts,
    changed,
    milliseconds,
    restoring,
)
from migrator.errors import StoreError

LOCK_WAIT_S: Final = 5
"""Of a locking read; a write waits as long as any call may take."""
_OLDEST: Final = (12, 2)
"""The first with names of 128 bytes."""
_CHARACTER_SETS: Final = frozenset({"AL32UTF8", "UTF8"})
_CHARACTER_SET: Final = (
    "SELECT value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'"
)
SESSION: Final = (
    "ALTER SESSION SET TIME_ZONE = '+00:00' NLS_SORT = 'BINARY' NLS_COMP = 'BINARY' "
    "NLS_NUMERIC_CHARACTERS = '.,' NLS_CALENDAR = 'GREGORIAN'"
)
_MORE_RESERVED_WORDS: Final = frozenset({"row", "rows", "session", "share", "user", "values"})
_PASSING: Final = frozenset(
    {
        *(54, 60, 30006, 8177, 1555),  # locked, deadlock, lock timeout, changed meanwhile
        *(18, 20, 2391, 12516, 12518, 12519, 12520),  # out of sessions
        *(28, 1012, 1013, 2396, 2399),  # our session or call was ended
        *(1033, 1034, 1089, 1090, 1092, 3113, 3114, 3135, 3136),  # shuts down, starts, is gone
        *(12170, 12514, 12528, 12537, 12541, 12543, 12547, 12570, 12571),  # network, listener
        *(25401, 25402, 25408, 16456),  # fails over
        *(1653, 1654, 1658, 1688, 1691, 30036, 4031),  # out of disk, undo or memory
    }
)
_PASSING_DRIVER: Final = frozenset(
    {"DPY-1001", "DPY-4011", "DPY-4024", "DPY-6000", "DPY-6001", "DPY-6003", "DPY-6005"}
)
_LOCKED: Final = frozenset({"ORA-00054", "ORA-30006"})


class Waiting:
    """A mixin for SQLAlchemy's compiler: limited lock waits; limits without order as ROWNUM."""

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        wanted = select._for_update_arg
        if select._limit_clause is not None:
            raise CompileError("ORA-02014: FOR UPDATE with a limit; use portable.first_for_update")
        clause = str(super().for_update_clause(select, **kw))  # type: ignore[misc] # SQLAlchemy's
        waits = clause and not (wanted.nowait or wanted.skip_locked)
        return f"{clause} WAIT {LOCK_WAIT_S}" if waits else clause

    def visit_select(self, select_stmt: Any, *args: Any, **kw: Any) -> Any:
        """A correlated subquery with FETCH FIRST may not see its parent."""
        limit = select_stmt._limit_clause
        is_ordered = len(select_stmt._order_by_clauses) or len(select_stmt._group_by_clauses)
        if limit is not None and not is_ordered and not select_stmt._distinct:
            select_stmt = select_stmt.limit(None).where(sa.literal_column("ROWNUM") <= limit)
        return super().visit_select(select_stmt, *args, **kw)  # type: ignore[misc] # SQLAlchemy's


def connect_arguments(url: URL) -> dict[str, Any]:
    wanted = {
        "program": APPLICATION_NAME,
        "tcp_connect_timeout": float(CONNECT_TIMEOUT_S),
        "expire_time": 1,  # minutes, after which a silent network is found out
    }
    return {name: value for name, value in wanted.items() if name not in url.query}


def adapt(dialect: Any) -> None:
    compiler = dialect.statement_compiler
    dialect.statement_compiler = type("WaitingCompiler", (Waiting, compiler), {})
    preparer = dialect.identifier_preparer
    preparer.reserved_words = preparer.reserved_words | _MORE_RESERVED_WORDS


def prepare(engine: sa.Engine) -> None:
    """Give every new session UTC, binary sort order, and timeouts.

    Connecting raises ``StoreError`` if the server is too old or its character set is not Unicode.
    """
    adapt(engine.dialect)

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        check_version(str(connection.version))
        set_timeouts(connection)
        with connection.cursor() as cursor:
            cursor.execute(SESSION)
            cursor.execute(_CHARACTER_SET)
            check_character_set(str(cursor.fetchone()[0]))

    restoring(engine, set_timeouts)


def change_timeouts(connection: sa.Connection, timeouts: Timeouts) -> None:
    set_timeouts(changed(connection), timeouts)


def set_timeouts(connection: Any, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
    """The driver has no other timeout."""
    connection.call_timeout = milliseconds(timeouts.statement)


def check_version(version: str) -> None:
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < _OLDEST:
        raise StoreError(f"the database is Oracle {version}; 12.2 or newer is needed")


def check_character_set(name: str) -> None:
    """Raise ``StoreError`` if the ledger could not store each destination of NVARCHAR2."""
    if name not in _CHARACTER_SETS:
        raise StoreError(f"the database's character set is {name}; AL32UTF8 is needed")


def code_of(exc: DBAPIError) -> str | None:
    """Return ``ORA-00060`` or ``DPY-4011``; None: another driver's error."""
    arguments: tuple[Any, ...] = getattr(exc.orig, "args", ())
    found = getattr(arguments[0], "full_code", None) if arguments else None
    return str(found) if found else None


def is_lock_timeout(exc: DBAPIError) -> bool:
    return code_of(exc) in _LOCKED


def is_passing(exc: DBAPIError) -> bool:
    code = code_of(exc) or ""
    ora = re.fullmatch(r"ORA-0*(\d+)", code)
    return code in _PASSING_DRIVER or (ora is not None and int(ora.group(1)) in _PASSING)
