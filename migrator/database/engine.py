"""Opening the database, and the two kinds of transaction.

Rules of this file: every session works in UTC, waits for locks for a limited time, and never
weakens durability. A transaction either reads or writes, and declares which when it begins.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from migrator.database import mssql, mysql, oracle
from migrator.database.failures import retrying, translating
from migrator.database.sessions import (
    APPLICATION_NAME,
    CONNECT_TIMEOUT_S,
    DEFAULT_TIMEOUTS,
    milliseconds,
)
from migrator.database.types import GUID_BYTES, GUID_TEXT, SHOWN_TEXT, guid_bytes, guid_text
from migrator.errors import ConfigError, DriverMissing, MigratorError
from migrator.nservicebus.timeouts import content_hash

T = TypeVar("T")

LOCK_TIMEOUT: Final = DEFAULT_TIMEOUTS.lock
ISOLATION: Final = "READ COMMITTED"
"""At a higher level, a claim on PostgreSQL fails for each row that another session has removed.
MariaDB and MySQL lock gaps between rows, and claims would wait for each other.
"""
CONTENT_HASH: Final = "migrator_content_hash"
BODY_HASH: Final = "migrator_body_hash"
RETURNS_BODIES: Final = {"migrator_returns_bodies": True}
"""Options of a statement that returns bodies: PostgreSQL sends them in binary, not as text."""
_WRITES: Final = "migrator_writes"
_RETURNED_S: Final = "migrator_returned_s"
_FRESH_S: Final = 1.0
_EXAMPLE: Final = (
    "postgresql+psycopg://user@host/database, mysql+pymysql://user@host/database or sqlite:///file"
)

_POSTGRESQL_ARGUMENTS: Final[dict[str, Any]] = {
    # a server-side prepared statement may flip to a generic plan, which does not know how far
    # a claim has come; planning a claim takes 1 ms
    "prepare_threshold": None,
    "connect_timeout": CONNECT_TIMEOUT_S,
    "client_encoding": "utf8",
    "application_name": APPLICATION_NAME,
    # a silent network is found out within about 30 s
    "keepalives_idle": 10,  # s
    "keepalives_interval": 5,  # s
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # ms
}


def open_engine(url: str | URL, *, kept_open: int | None = None) -> sa.Engine:
    """Return an engine for the database at *url*; nothing is connected yet.

    Its pool keeps up to *kept_open* idle connections (5 by default) and opens at most 10 more.
    ``dispose`` it at the end. Parameters never appear in its logs or errors.

    Raises:
        ConfigError: *url* is no database URL, or its database or driver is not supported.
    """
    try:
        return _engine(with_driver(make_url(url)), kept_open)
    except (ArgumentError, NoSuchModuleError) as exc:
        raise ConfigError(
            f"store.url is not a database URL; write, for example, {_EXAMPLE}"
        ) from exc
    except ImportError as exc:
        raise _without_driver(with_driver(make_url(url)), exc) from exc


def _engine(parsed: URL, kept_open: int | None) -> sa.Engine:
    kind = parsed.get_backend_name()
    if kind not in _PREPARE:
        raise ConfigError(
            f"store.url: {kind} is not supported by this version; write, for example, {_EXAMPLE}"
        )
    options: dict[str, Any] = {} if kept_open is None else {"pool_size": kept_open}
    if kind in ("postgresql", "mysql"):
        options["isolation_level"] = ISOLATION
    if kind in _CONNECT_ARGUMENTS:
        options["connect_args"] = _CONNECT_ARGUMENTS[kind](parsed)
    engine = sa.create_engine(parsed, hide_parameters=True, **options)
    _ping_when_rested(engine)
    _PREPARE[kind](engine)
    return engine


def _ping_when_rested(engine: sa.Engine) -> None:
    """Checking a connection before each statement of a lane doubled the round trips."""

    @sa.event.listens_for(engine, "checkin")
    def _note(_connection: Any, record: Any) -> None:
        record.info[_RETURNED_S] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def _ask(connection: Any, record: Any, _proxy: object) -> None:
        returned_s = record.info.get(_RETURNED_S)
        if returned_s is None or time.monotonic() - returned_s < _FRESH_S:
            return
        try:
            is_alive = engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as exc:
            raise sa.exc.InvalidatePoolError from exc
        if not is_alive:
            raise sa.exc.InvalidatePoolError


def _postgresql_arguments(url: URL) -> dict[str, Any]:
    return {name: each for name, each in _POSTGRESQL_ARGUMENTS.items() if name not in url.query}


@contextmanager
def reading(
    engine: sa.Engine, failed: type[MigratorError] | None = None, *, doing: str = ""
) -> Iterator[sa.Connection]:
    """Open a transaction that only reads; *failed* and *doing* as for ``translating``."""
    with _translating(failed, doing), engine.connect() as connection:
        yield connection


@contextmanager
def writing(
    engine: sa.Engine, failed: type[MigratorError] | None = None, *, doing: str = ""
) -> Iterator[sa.Connection]:
    """Open a transaction that writes; errors of its commit are translated, too."""
    with (
        _translating(failed, doing),
        engine.connect().execution_options(**{_WRITES: True}) as connection,
        connection.begin(),
    ):
        yield connection


def retrying_read(
    engine: sa.Engine,
    work: Callable[[sa.Connection], T],
    *,
    failed: type[MigratorError],
    doing: str,
) -> T:

    def attempt() -> T:
        with reading(engine, failed, doing=doing) as connection:
            return work(connection)

    return retrying(attempt)


def _translating(failed: type[MigratorError] | None, doing: str) -> AbstractContextManager[None]:
    return nullcontext() if failed is None else translating(failed, doing=doing)


@contextmanager
def writing_once(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Commit a single statement as it returns: one round trip instead of three."""
    if engine.dialect.name != "postgresql":
        with writing(engine) as connection:
            yield connection
        return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection


def _prepare_postgresql(engine: sa.Engine) -> None:
    settings = {
        "TimeZone": "UTC",
        "lock_timeout": milliseconds(DEFAULT_TIMEOUTS.lock),
        "statement_timeout": milliseconds(DEFAULT_TIMEOUTS.statement),
        "idle_in_transaction_session_timeout": milliseconds(DEFAULT_TIMEOUTS.idle),
        "default_transaction_isolation": ISOLATION.lower(),  # of single statements
        # compiling a claim takes longer than the claim
        "jit": "off",
    }
    chosen = ", ".join(
        f"set_config('{name}', '{value}', false)" for name, value in settings.items()
    )
    # the ledger must survive a crash of the server; a stricter setting stays as it is
    durable = (
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )

    @sa.event.listens_for(engine, "before_cursor_execute")
    def _choose_format(
        _connection: object, cursor: Any, _text: str, _values: object, context: Any, _many: bool
    ) -> None:
        if context.execution_options.keys() >= RETURNS_BODIES.keys():
            cursor.format = 1  # binary

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        was_autocommit = connection.autocommit
        connection.autocommit = True
        connection.execute(f"SELECT {chosen}")
        connection.execute(durable)
        connection.autocommit = was_autocommit


def _is_busy(exc: BaseException) -> bool:
    code = exc.sqlite_errorcode if isinstance(exc, sqlite3.OperationalError) else 0
    return code & 0xFF == sqlite3.SQLITE_BUSY


@retry(
    retry=retry_if_exception(_is_busy),
    stop=stop_after_delay(LOCK_TIMEOUT),
    wait=wait_fixed(0.01),
    reraise=True,
)
def _write_ahead(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for this lock on a new file: of two processes, one failed."""
    connection.execute("PRAGMA journal_mode = WAL")


def _prepare_sqlite(engine: sa.Engine) -> None:
    """SQLAlchemy manages the transactions instead of the driver (its documented recipe)."""

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        connection.create_function(CONTENT_HASH, 2, content_hash, deterministic=True)
        connection.create_function(BODY_HASH, 1, _body_hash, deterministic=True)
        connection.create_function(SHOWN_TEXT, 1, _shown_text, deterministic=True)
        connection.create_function(GUID_TEXT, 1, guid_text, deterministic=True)
        connection.create_function(GUID_BYTES, 1, guid_bytes, deterministic=True)
        connection.execute(f"PRAGMA busy_timeout = {milliseconds(LOCK_TIMEOUT)}")
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # a reader that turns into a writer half-way can fail at once, so writers start as such
        is_writer = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _shown_text(text: bytes | None) -> str | None:
    return None if text is None else text.decode(errors="backslashreplace")


def _body_hash(body: bytes | None) -> str:
    return hashlib.sha256(body or b"").hexdigest()


def _without_driver(url: URL, why: ImportError) -> ConfigError:
    extra = _EXTRAS.get(url.drivername)
    if extra is None:
        return ConfigError(
            f"store.url needs the driver {why.name or why}; write, for example, {_EXAMPLE}"
        )
    if isinstance(why, ModuleNotFoundError):
        return DriverMissing("store.url", str(why.name), extra=extra)
    return ConfigError(f"the driver of {url.drivername} is installed but cannot be loaded: {why}")


def with_driver(url: URL) -> URL:
    name = re.sub("^mariadb", "mysql", url.drivername)
    return url.set(drivername=_DRIVERS.get(name, name))


_DRIVERS: Final = {"mysql": "mysql+pymysql", "mssql": "mssql+pyodbc", "oracle": "oracle+oracledb"}
_EXTRAS: Final = {driver: kind for kind, driver in _DRIVERS.items()}
_CONNECT_ARGUMENTS: Final = {
    "postgresql": _postgresql_arguments,
    "mssql": mssql.connect_arguments,
    "mysql": mysql.connect_arguments,
    "oracle": oracle.connect_arguments,
}
_PREPARE: Final = {
    "postgresql": _prepare_postgresql,
    "mssql": mssql.prepare,
    "mysql": mysql.prepare,
    "oracle": oracle.prepare,
    "sqlite": _prepare_sqlite,
}
