"""Bringing the ledger to the version this program needs; only ``migrator db upgrade`` does it.

Rules of this file: an upgrade is one transaction under one lock, so that a second one waits and
then finds nothing to do; where a database commits each statement by itself, an upgrade that was
interrupted is finished by the next one (``repeatable``); the daemon only checks, with ``version``.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text
from sqlalchemy.schema import CreateSchema

from migrator.database import mysql
from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.errors import LedgerError, StoreUnavailable
from migrator.ledger import repeatable
from migrator.ledger.identity import enter_identity
from migrator.ledger.names import ledger_names, quoted
from migrator.ledger.tables import LedgerTables, build_tables
from migrator.ledger.version import script_location

UPGRADE_LOCK: Final = 6_294_018_377_315_624_229
"""Key of the advisory lock; any number that nobody else uses."""
_UPGRADE_LOCK_TIMEOUT_S: Final = 60
_UPGRADE_PATIENCE: Final = mysql.Patience(
    lock=timedelta(minutes=1), statement=timedelta(hours=1), idle=timedelta(minutes=5)
)
DIALECTS: Final = ("postgresql", repeatable.RepeatableMySQLImpl.__dialect__, "sqlite")
"""Kinds of database the ledger can be in."""


def upgrade(engine: Engine, tables: LedgerTables) -> None:
    """Create the ledger or bring it to the newest version; repeating is harmless.

    Raises:
        LedgerError: A right is missing, or the ledger is newer than this program.
    """
    doing = "upgrading the ledger"
    with translating(LedgerError, doing=doing), writing(engine) as connection, _locked(connection):
        if tables.names.schema is not None:
            connection.execute(CreateSchema(tables.names.schema, if_not_exists=True))
        command.upgrade(_config(tables, connection=connection), "head")
        enter_identity(connection, tables)


def sql(dialect: str, schema: str) -> str:
    """Return the SQL that creates the whole ledger from nothing, for a DBA to read and run."""
    tables = build_tables(ledger_names(dialect, schema))
    written = io.StringIO()
    config = _config(tables, dialect=dialect, output=written)
    if tables.names.schema is not None:
        written.write(f"CREATE SCHEMA IF NOT EXISTS {quoted(tables.names.schema)};\n\n")
    command.upgrade(config, "head", sql=True)
    return written.getvalue()


def _config(
    tables: LedgerTables,
    *,
    connection: Connection | None = None,
    dialect: str | None = None,
    output: io.StringIO | None = None,
) -> Config:
    config = Config(output_buffer=output) if output else Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.attributes.update(
        connection=connection, names=tables.names, metadata=tables.metadata, dialect=dialect
    )
    return config


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_UPGRADE_LOCK_TIMEOUT_S}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
    if connection.dialect.name != "mysql":
        yield
        return
    mysql.for_now(connection, _UPGRADE_PATIENCE)
    # a lock of the whole server, held by the session: no statement commits it away
    key = {"key": f"migrator.{UPGRADE_LOCK}", "seconds": _UPGRADE_LOCK_TIMEOUT_S}
    own = "concat(:key, '.', crc32(database()))"
    if connection.scalar(text(f"SELECT get_lock({own}, :seconds)"), key) != 1:
        raise StoreUnavailable("somebody else is upgrading the ledger; try again")
    try:
        yield
    finally:
        if not connection.invalidated:  # a lost session has lost its locks, too
            connection.execute(text(f"SELECT release_lock({own})"), {"key": key["key"]})
