"""Bringing the ledger to the version this program needs; only ``migrator db upgrade`` does it.

Rules of this file: an upgrade is one transaction under one lock, so that a second one waits and
then finds nothing to do; the daemon only checks, with ``version``.
"""

from __future__ import annotations

import io
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text
from sqlalchemy.schema import CreateSchema

from migrator.database.engine import writing
from migrator.database.failures import translating
from migrator.errors import LedgerError
from migrator.ledger.identity import enter_identity
from migrator.ledger.names import ledger_names, quoted
from migrator.ledger.tables import LedgerTables, build_tables
from migrator.ledger.version import script_location

UPGRADE_LOCK: Final = 6_294_018_377_315_624_229
"""Key of the advisory lock; any number that nobody else uses."""
_UPGRADE_LOCK_TIMEOUT: Final = "60s"


def upgrade(engine: Engine, tables: LedgerTables) -> None:
    """Create the ledger or bring it to the newest version; repeating is harmless.

    Raises:
        LedgerError: A right is missing, or the ledger is newer than this program.
    """
    with translating(LedgerError, doing="upgrading the ledger"), writing(engine) as connection:
        _lock(connection)
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


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = '{_UPGRADE_LOCK_TIMEOUT}'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
