"""Sessions on MariaDB and MySQL, set up as the rest of the program expects.

Rules of this file: what a server lacks is left out here and documented in ``docs/how-to/mysql.md``,
never imitated. Nothing depends on the server's own defaults.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL, Dialect

from migrator.database.sessions import (
    CONNECT_TIMEOUT_S,
    DEFAULT_TIMEOUTS,
    Timeouts,
    as_of_statement,
    changed,
    restoring,
)
from migrator.errors import StoreError

_MODE: Final = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,ANSI_QUOTES"
"""A value that does not fit is refused, not truncated; names are quoted as everywhere else.

Without ``NO_ZERO_DATE``: it would forbid giving back a row as it was.
"""
_OLDEST_MARIADB: Final = (10, 6)
_OLDEST_MYSQL: Final = (8, 0)
"""Both: the first with ``SKIP LOCKED`` and atomic DDL statements."""
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)+")
_ALWAYS: Final[Mapping[str, object]] = {
    "time_zone": "'+00:00'",
    "sql_select_limit": 2**64 - 1,  # else a batch could be read, and handed over, in part
    "sql_big_selects": 1,
    "sql_safe_updates": 0,
    "sql_auto_is_null": 0,
    "sql_quote_show_create": 1,
    "unique_checks": 1,
    "completion_type": 0,  # a commit ends the transaction, begins none, and stays connected
    # of MySQL 9.7: it would read a whole table where a claim names few rows, and lock it
    "optimizer_switch": (
        "if(locate('hypergraph_optimizer=on', @@optimizer_switch), 'hypergraph_optimizer=off', '')"
    ),
}
"""Against defaults that an administrator may have changed."""
_DURABILITY: Final = sa.text("SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog")
_FLUSHED_TWICE: Final = 3
_WRITES: Final = "SET SESSION TRANSACTION READ WRITE"
_READS_ONLY: Final = "migrator_reads_only"
_SHORTEST_S: Final = 0.001
_UNANSWERED_S: Final = 15
"""How much longer the driver waits for an answer than the server's own limit."""
_KEEPALIVE: Final[Mapping[str, int]] = {
    "TCP_KEEPIDLE": 10,  # s
    "TCP_KEEPINTVL": 5,  # s
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,  # ms
}


def connect_arguments(url: URL) -> dict[str, Any]:
    """The character set and mode always apply: with others, text would be truncated or refused."""
    wanted: Mapping[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        # for the server's greeting; sessions have their own timeouts
        "read_timeout": CONNECT_TIMEOUT_S,
        "write_timeout": CONNECT_TIMEOUT_S,
        # before SQLAlchemy has a look at the server, and ends its first transaction
        "init_command": _chosen(_ALWAYS),
    }
    left = {name: value for name, value in wanted.items() if name not in url.query}
    return {**left, "charset": "utf8mb4", "sql_mode": _MODE}


def prepare(engine: sa.Engine) -> None:
    """Set up new sessions; connecting raises ``StoreError`` if the server is too old for claims."""

    @sa.event.listens_for(engine, "do_connect")
    def _connect(dialect: Dialect, _record: object, _args: object, known: dict[str, Any]) -> Any:
        if isinstance(known.get("password"), str):
            known["password"] = known["password"].encode()  # as clients do, not as Latin-1
        if known.get("unix_socket"):
            return None
        connection = dialect.loaded_dbapi.connect(defer_connect=True, **known)
        connection.connect(_steady_socket(connection))
        return connection

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        check_version(str(connection.get_server_info()))
        _set(connection, _ALWAYS)  # also when the address has an init_command
        with connection.cursor() as cursor:
            cursor.execute(_WRITES)
        set_timeouts(connection)

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get(_READS_ONLY, False):
            connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    restoring(engine, _restore)


def _restore(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UNLOCK TABLES")
    set_timeouts(connection)


def read_only(engine: sa.Engine) -> sa.Engine:
    return engine.execution_options(isolation_level="REPEATABLE READ", **{_READS_ONLY: True})


def lock_table(connection: sa.Connection, quoted_name: str) -> None:
    """Lock out other sessions until *connection* returns to the pool; ends the open transaction."""
    changed(connection)
    connection.exec_driver_sql(f"LOCK TABLES {quoted_name.replace('%', '%%')} WRITE")


def change_timeouts(connection: sa.Connection, timeouts: Timeouts) -> None:
    with as_of_statement(connection):
        set_timeouts(changed(connection), timeouts)


def set_timeouts(connection: Any, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
    """MySQL limits only statements that read; a write is limited by its waits for locks.

    An idle transaction ends only with the idle session, which the pool notices.
    """
    statement_s = max(timeouts.statement.total_seconds(), _SHORTEST_S)
    is_mariadb = is_of_mariadb(str(connection.get_server_info()))
    lock_s = max(int(timeouts.lock.total_seconds()), 0 if is_mariadb else 1)
    # the one is for rows, the other for whole tables
    settings: dict[str, object] = {"innodb_lock_wait_timeout": lock_s, "lock_wait_timeout": lock_s}
    if is_mariadb:
        settings["max_statement_time"] = statement_s
        settings["idle_transaction_timeout"] = int(timeouts.idle.total_seconds())
    else:
        settings["max_execution_time"] = int(statement_s * 1000)
        settings["wait_timeout"] = int(timeouts.idle.total_seconds())
    _set(connection, settings)
    # the driver takes it only when it connects, and a claim and a verification differ by much
    connection._read_timeout = connection._write_timeout = statement_s + _UNANSWERED_S


def lossy_setting(connection: sa.Connection) -> str | None:
    """Return how the server may lose committed transactions; no session can prevent it."""
    flushed, has_log, synced = connection.execute(_DURABILITY).one()
    return find_lossy_setting(flushed=flushed, has_binary_log=bool(has_log), synced=synced)


def find_lossy_setting(*, flushed: int, has_binary_log: bool, synced: int) -> str | None:
    """Return the setting, with its value, by which a server may lose commits; None: there is none.

    With a binary log, InnoDB forces a commit to disk only as prepared, and after a failure rolls
    back what it does not find in that log. MariaDB's 3 forces the commit there, too.
    Source: MySQL reference manual, "sync_binlog"; MariaDB, "innodb_flush_log_at_trx_commit".
    """
    if flushed not in (1, _FLUSHED_TWICE):
        return f"innodb_flush_log_at_trx_commit is {flushed}"
    if has_binary_log and synced != 1 and flushed != _FLUSHED_TWICE:
        return f"sync_binlog is {synced}"
    return None


def check_version(version: str) -> None:
    is_mariadb, oldest = is_of_mariadb(version), _OLDEST_MYSQL
    if is_mariadb:
        oldest, version = _OLDEST_MARIADB, version.removeprefix("5.5.5-")  # for old replicas
    found = _NUMBER.search(version)
    if found is None or tuple(map(int, found.group().split(".")))[:2] < oldest:
        name = "MariaDB" if is_mariadb else "MySQL"
        needed = ".".join(map(str, oldest))
        raise StoreError(f"the database is {name} {version}; {needed} or newer is needed")


def is_of_mariadb(version: str) -> bool:
    return "mariadb" in version.lower()


def _set(connection: Any, settings: Mapping[str, object]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_chosen(settings))


def _chosen(settings: Mapping[str, object]) -> str:
    return "SET SESSION " + ", ".join(f"{name} = {value}" for name, value in settings.items())


def _steady_socket(connection: Any) -> socket.socket:
    """It detects within about 30 s that the peer is gone."""
    try:
        found = socket.create_connection(
            (connection.host, connection.port), connection.connect_timeout
        )
    except OSError:
        connection.connect()  # fails the same way, with the driver's error
        raise
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # Linux
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return found
