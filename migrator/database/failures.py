"""The one place that translates driver errors into ``MigratorError``.

Rules of this file: a message contains the database's primary message only (its detail may quote a
row), never parameters or a URL. The cause stays attached.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from migrator.database import mssql, oracle
from migrator.errors import MigratorError, StoreError, StoreLocked, StoreUnavailable

T = TypeVar("T")
K = TypeVar("K")

_PASSING_STATES: Final = (
    "08",  # connection exceptions
    "40",  # serialization failure, deadlock
    "53",  # out of connections, memory or disk
    "57P",  # server shuts down, starts up or closed an idle session
    "25P03",  # idle in transaction for too long
    "57014",  # statement timeout
    "55P03",  # lock timeout
)
_PASSING_SQLITE: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
)
_PASSING_MYSQL: Final = frozenset(
    {
        *(1020, 1205, 1213, 1637),  # changed meanwhile, lock timeout, deadlock, out of undo slots
        3101,  # the same transaction was elsewhere in the group: rolled back when it committed
        *(1021, 1037, 1038, 1041, 1114, 1206),  # out of disk, memory or room for locks
        *(1040, 1203, 1226),  # out of connections
        *(1053, 1077, 1078, 1079, 1047, 3032),  # shuts down, starts up, not ready, offline
        *(1158, 1159, 1160, 1161, 1184, 2002, 2003, 2006, 2013, 2055),  # the network
        *(1290, 1836),  # only reads, for another one is taking over
        *(1080, 1152, 1317, 1927, 4031),  # our session was ended
        *(1907, 1969, 3024),  # statement timeout
    }
)
"""Numbers of MariaDB and MySQL below 2000 and above 3000, and of the driver between."""
_ROW_STATES: Final = frozenset({"22", "23", "38", "39", "44", "P0"})
_ROW_MYSQL: Final = frozenset(
    {1267, 1300, 1366, 1442, 1644, 1690, 3140, 3141, 3819, 4025}  # text, a trigger, JSON, a check
)
_ROW_SQLITE: Final = re.compile("Could not decode to UTF-8|user-defined function raised")
_ROW_ORACLE: Final = re.compile(r"ORA-(20\d{3}|0140[01]|01438|01461|01722|12899|29275|22290)")
_LOCKED_STATES: Final = ("57014", "55P03")
_LOCK_TIMEOUT_MYSQL: Final = 1205
_TURNED_AWAY: Final = re.compile(
    r"FATAL:.*(does not exist|authentication failed|no pg_hba\.conf entry|permission denied"
    r"|not permitted to log in|not currently accepting connections)|no password supplied"
)
"""psycopg has no SQLSTATE for a failed connect; in another language it counts as passing."""
_RETRY_ATTEMPTS: Final = 3
_RETRY_MAX_WAIT_S: Final = 1.0


@contextmanager
def translating(failed: type[MigratorError], *, doing: str) -> Iterator[None]:
    """Turn database errors of the block into ``StoreUnavailable``, or *failed* if it refused.

    *doing*: what was attempted, for the message: ``claiming from public.Sales_TimeoutData``.
    """
    try:
        yield
    except (DBAPIError, OSError) as exc:  # oracledb looks the host's name up by itself
        why = _primary(exc) if isinstance(exc, DBAPIError) else str(exc)
        if isinstance(exc, DBAPIError) and not is_passing(exc):
            raise failed(f"the database refused {doing}: {why}") from exc
        if isinstance(exc, DBAPIError) and failed is StoreError and is_locked(exc):
            raise StoreLocked(
                f"{doing} waited too long for a lock, or for the answer: {why}; look for a "
                "transaction that locks the table, such as ALTER TABLE or VACUUM FULL"
            ) from exc
        raise StoreUnavailable(
            f"the database cannot be reached for {doing}: {why}; "
            "check store.url, the network and the database"
        ) from exc
    except SQLAlchemyError as exc:
        raise failed(f"{doing} failed: {type(exc).__name__}") from exc


def retrying(work: Callable[[], T]) -> T:
    """Return what *work* returns, repeated a little later while the database is unavailable.

    Only for calls that are safe to repeat. At most three attempts and 2 s of waiting. A lock
    timeout is not repeated: it has waited already.
    """
    attempts = Retrying(
        retry=retry_if_exception(_is_worth_another_try),
        stop=stop_after_attempt(_RETRY_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.1, max=_RETRY_MAX_WAIT_S),
        reraise=True,
    )
    return attempts(work)


def _is_worth_another_try(exc: BaseException) -> bool:
    return isinstance(exc, StoreUnavailable) and not isinstance(exc, StoreLocked)


def is_locked(exc: DBAPIError) -> bool:
    """Return True when a lock took longer than the session allows, and all is rolled back.

    On PostgreSQL also for a statement timeout; elsewhere that may end a commit, whose outcome is
    then unknown. SQLite locks whole files, which concerns more than one table.
    """
    code = _mysql_code(exc)
    if code is not None:
        return code == _LOCK_TIMEOUT_MYSQL
    if mssql.state_of(exc) is not None:
        return mssql.is_lock_timeout(exc)
    if oracle.code_of(exc) is not None:
        return oracle.is_lock_timeout(exc)
    return sqlstate(exc) in _LOCKED_STATES


def is_passing(exc: DBAPIError) -> bool:
    """Return True when the same call may succeed later: lost connection, lock, overload."""
    if exc.connection_invalidated:
        return True
    code = _mysql_code(exc)  # first: most have the same SQLSTATE
    if code is not None:
        return code in _PASSING_MYSQL
    if mssql.state_of(exc) is not None:
        return mssql.is_passing(exc)
    if oracle.code_of(exc) is not None:
        return oracle.is_passing(exc)
    state = sqlstate(exc)
    if state is not None:
        return state.startswith(_PASSING_STATES)
    if isinstance(exc.orig, sqlite3.Error):
        code = getattr(exc.orig, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in _PASSING_SQLITE  # low byte: primary code
    # a driver that has no code has no answer from the server, or was turned away at the door
    if _TURNED_AWAY.search(str(exc.orig)):
        return False
    return type(exc.orig).__name__ in {"OperationalError", "InterfaceError", "ConnectionTimeout"}


def is_of_row(error: BaseException) -> bool:
    """Return True when *error* may concern the content of one row, so that others can continue.

    Errors that other code raises while rows are read (an invalid date, no text) concern a row.
    """
    if isinstance(error, MigratorError):
        cause = error.__cause__
        return isinstance(cause, DBAPIError) and is_of_row(cause)
    if not isinstance(error, DBAPIError):
        return not isinstance(error, SQLAlchemyError | OSError | MemoryError)
    if is_passing(error):
        return False
    if isinstance(error, DataError | IntegrityError):
        return True
    if isinstance(error.orig, sqlite3.Error):
        return _ROW_SQLITE.search(str(error.orig)) is not None
    if oracle.code_of(error) is not None:
        return _ROW_ORACLE.fullmatch(str(oracle.code_of(error))) is not None
    code = _mysql_code(error)
    return code in _ROW_MYSQL if code is not None else (sqlstate(error) or "")[:2] in _ROW_STATES


def in_halves(
    keys: Sequence[K], read: Callable[[Sequence[K]], Sequence[T]]
) -> tuple[list[T], dict[K, Exception]]:
    """Return what *read* finds of *keys*, and the keys for which it raises an error of a row.

    In the order of *keys*: of a thousand, one that raises costs twenty reads.
    """
    found, odd, parts = list[T](), dict[K, Exception](), [keys] if keys else []
    while parts:
        some = parts.pop()
        try:
            found += read(some)
        except Exception as exc:
            if not is_of_row(exc):
                raise
            if len(some) == 1:
                odd[some[0]] = exc
            else:
                parts += [some[len(some) // 2 :], some[: len(some) // 2]]
    return found, odd


def sqlstate(exc: DBAPIError) -> str | None:
    return getattr(exc.orig, "sqlstate", None)


def _mysql_code(exc: DBAPIError) -> int | None:
    arguments: tuple[Any, ...] = getattr(exc.orig, "args", ())
    is_numbered = len(arguments) == 2 and isinstance(arguments[0], int)
    return (arguments[0] or None) if is_numbered else None


def _primary(exc: DBAPIError) -> str:
    diagnostics = getattr(exc.orig, "diag", None)
    primary = getattr(diagnostics, "message_primary", None)
    if _mysql_code(exc) is not None and exc.orig is not None:
        primary = str(exc.orig.args[1])
    if mssql.state_of(exc) is not None and exc.orig is not None:
        primary = mssql.without_rows(str(exc.orig.args[1]))
    text = primary or str(exc.orig)
    return (text.strip().splitlines() or [type(exc.orig).__name__])[0][:300]
