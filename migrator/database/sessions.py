"""How long sessions wait on any server, and what they are again when they are given back.

Rules of this file: a session that was told to be patient in another way is told the usual one again
before somebody else gets it, or it is closed.
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
class Patience:
    """What a session waits for, and for how long."""

    lock: timedelta = timedelta(seconds=5)
    """For a row or a table that somebody else holds. MariaDB and MySQL count whole seconds: less
    than one is no wait at all on MariaDB, and one second on MySQL."""
    statement: timedelta = timedelta(seconds=60)
    idle: timedelta = timedelta(seconds=15)
    """A transaction in which nothing is said: a stopped process must not keep its locks."""


PATIENCE: Final = Patience()
"""The usual one."""
LONG_STATEMENT: Final = timedelta(minutes=10)
"""Of what goes through a whole table."""


def milliseconds(span: timedelta) -> int:
    """Return *span* in whole milliseconds, one at least: 0 would be no limit."""
    return max(span // timedelta(milliseconds=1), 1)


def changed(connection: sa.Connection) -> Any:
    """Return the driver's connection, to be told something that ends when it is given back."""
    connection.info[_CHANGED] = True
    return connection.connection.driver_connection


@contextmanager
def as_of_statement(connection: sa.Connection) -> Iterator[None]:
    """Turn errors of the driver, told something beside SQLAlchemy, into what a statement raises."""
    base = connection.dialect.loaded_dbapi.Error
    try:
        yield
    except base as exc:
        raise DBAPIError.instance(
            "SET", None, exc, base, hide_parameters=True, dialect=connection.dialect
        ) from exc


def restoring(engine: sa.Engine, restore: Callable[[Any], None]) -> None:
    """Have *restore* make a driver's connection what it was, once it was ``changed``."""

    @sa.event.listens_for(engine, "checkin")
    def _forget(connection: Any, record: ConnectionPoolEntry) -> None:
        if connection is None or not record.info.pop(_CHANGED, False):
            return
        try:
            restore(connection)
        except Exception as exc:  # whatever it was, the next one gets another session
            record.invalidate(exc)
