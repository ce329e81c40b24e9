"""Which database a ledger belongs to. The ledger's id names queues, so a clone must not use it.

Source: design section 5.2 (lanes).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from migrator.database.engine import reading
from migrator.database.types import database_now
from migrator.errors import LedgerCloned, LedgerError, LedgerMissing
from migrator.ledger.failover import demand_same_server, record_position
from migrator.ledger.tables import LedgerTables

_ID_CHARS: Final = 12
_UNKNOWN: Final = "-"
_WITH_CLUSTER: Final = ("postgresql", "mysql", "oracle")
_MSSQL_DATABASE: Final = text(
    # in an availability group, the server changes and the database is the same; on Azure, ids of
    # databases are another server's than those in this view
    "SELECT coalesce(CAST(group_database_id AS nvarchar(36)), "
    "CAST(SERVERPROPERTY('ServerName') AS nvarchar(128))), name "
    "FROM sys.databases WHERE name = DB_NAME()"
)
_ORACLE_SCHEMA: Final = text(
    "SELECT SYS_CONTEXT('USERENV', 'DB_NAME') || '.' || SYS_CONTEXT('USERENV', 'CON_NAME') "
    "|| '.' || SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') FROM dual"
)
_REMEDY: Final = (
    "its queues may belong to a daemon that still works on the original; if this is a copy to be "
    "migrated on its own, run `migrator db adopt`; if it is the same database at another place, "
    "and the former one will never be started again, run `migrator db adopt --moved`"
)


def check_identity(
    engine: Engine, tables: LedgerTables, *, may_have_failed_over: bool = False
) -> str:
    """Return the ledger's id. None of the refusals changes anything.

    Raises:
        LedgerMissing: There is no ledger row yet: `migrator db upgrade`.
        LedgerCloned: The ledger was created in another database.
        DatabaseFailedOver: Another server has taken over since.
    """
    doing = "reading the ledger's identity"
    with reading(engine, LedgerError, doing=doing) as connection:
        row = connection.execute(select(tables.ledger)).first()
        present = identity_of(connection)
        if row is None:
            raise LedgerMissing("the ledger is empty; run `migrator db upgrade`")
        if not is_same(row.identity, present):
            raise LedgerCloned(
                f"ledger {row.id} was created in {row.identity}, but this database is {present}: "
                f"{_REMEDY}"
            )
        if not may_have_failed_over:
            demand_same_server(connection, tables)
    return str(row.id)


def enter_identity(connection: Connection, tables: LedgerTables) -> None:
    """Write the ledger's id, its database's identity and the server's position, unless known."""
    if connection.execute(select(tables.ledger.c.id)).first() is None:
        connection.execute(
            insert(tables.ledger).values(
                id=new_id(), identity=identity_of(connection), created_at=database_now()
            )
        )
    if connection.scalar(select(func.count(tables.lease.c.position))) == 0:
        record_position(connection, tables)


def identity_of(connection: Connection) -> str:
    """Return what distinguishes this database from a copy of it: ``kind:cluster:database``."""
    dialect = connection.dialect.name
    return f"{dialect}:{_IDENTITIES[dialect](connection)}"


def _of_sqlite(connection: Connection) -> str:
    path = connection.exec_driver_sql("PRAGMA database_list").first()
    return str(Path(path[2]).resolve()) if path and path[2] else ":memory:"


def _of_mysql(connection: Connection) -> str:
    names = ("server_uuid", "server_uid")
    known = {
        name: value
        for each in names
        for name, value in connection.execute(text(f"SHOW GLOBAL VARIABLES LIKE '{each}'"))
    }
    server = next((known[name] for name in names if known.get(name)), _UNKNOWN)
    return f"{server}:{connection.scalar(text('SELECT database()'))}"


def _of_mssql(connection: Connection) -> str:
    return ":".join(connection.execute(_MSSQL_DATABASE).one())


def _of_oracle(connection: Connection) -> str:
    """The database's id, which a copy by RMAN does not share, if this user may read it."""
    try:
        found = connection.scalar(text("SELECT dbid FROM v$database"))
    except DBAPIError:
        found = _UNKNOWN
    return f"{found}:{connection.scalar(_ORACLE_SCHEMA)}"


def _of_postgresql(connection: Connection) -> str:
    try:
        with connection.begin_nested():
            found = connection.scalar(text("SELECT system_identifier FROM pg_control_system()"))
    except DBAPIError:  # a hosted server may forbid it; then the database's oid has to do
        found = _UNKNOWN
    oid = connection.scalar(text("SELECT oid FROM pg_database WHERE datname = current_database()"))
    return f"{found}:{oid}"


_IDENTITIES: Final[Mapping[str, Callable[[Connection], str]]] = {
    "sqlite": _of_sqlite,
    "mysql": _of_mysql,
    "mssql": _of_mssql,
    "oracle": _of_oracle,
    "postgresql": _of_postgresql,
}


def is_same(stored: str, present: str) -> bool:
    """Return whether both mean one database, as far as the user's rights show."""
    if stored == present:
        return True
    (kind, *_), (kind_now, *_) = stored.split(":"), present.split(":")
    if kind != kind_now or kind not in _WITH_CLUSTER:
        return False
    (_, cluster, name), (_, cluster_now, name_now) = stored.split(":", 2), present.split(":", 2)
    return name == name_now and _UNKNOWN in (cluster, cluster_now)


def new_id() -> str:
    return secrets.token_hex(_ID_CHARS // 2)
