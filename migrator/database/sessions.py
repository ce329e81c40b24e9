"""How long sessions wait on any server, and how they are reset when they return to the pool.

Rules of this file: a session whose timeouts were changed gets the default ones again before it is
reused, or it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

APPLICATION_NAME: Final = "migrator"
CONNECT_TIMEOUT_S: Final = 10
_CHANGED: Final = "migrator_session_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    lock: timedelta = timedelta(seconds=5)
    """MariaDB and MySQL count whole seconds: less is no wait on MariaDB, and 1 s on MySQL."""
    statement: timedelta = timedelta(seconds=60)
    idle: timedelta = timedelta(seconds=15)
    """A transaction without statements: a stopped process must not keep its locks."""


DEFAULT_TIMEOUTS: Final = Timeouts()
LONG_STATEMENT: Final = timedelta(minutes=10)
"""Of a statement that reads a whole table."""


def milliseconds(span: timedelta) -> int:
    """Return *span* in whole milliseconds, at least one: 0 would mean no limit."""
    return max(span // timedelta(milliseconds=1), 1)


def changed(connection: sa.Connection) -> Any:
    """Return the driver's connection, whose settings are reset when it returns to the pool."""
    connection.info[_CHANGED] = True
    return connection.connection.driver_connection


@contextmanager
def as_of_statement(connection: sa.Connection) -> Iterator[None]:
    """Turn errors of the driver, called directly, into what a statement raises."""
    base = connection.dialect.loaded_dbapi.Error
    try:
        yield
    except base as exc:
        raise DBAPIError.instance(
            "SET", None, exc, base, hide_parameters=True, dialect=connection.dialect
        ) from exc


def restoring(engine: sa.Engine, restore: Callable[[Any], None]) -> None:
    """Call *restore* with each connection that was ``changed`` when it returns to the pool."""

    @sa.event.listens_for(engine, "checkin")
    def _forget(connection: Any, record: ConnectionPoolEntry) -> None:
        if connection is None or not record.info.pop(_CHANGED, False):
            return
        try:
            restore(connection)
        except Exception as exc:  # whatever it was, the next one gets another session
            record.invalidate(exc)
