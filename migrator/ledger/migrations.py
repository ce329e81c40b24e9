"""Bringing the ledger to the version this program needs; only ``migrator db upgrade`` does it.

Rules of this file: an upgrade is one transaction under one lock, so that a second one waits and
then finds nothing to do; the daemon only checks. The scripts are in ``alembic/`` of a source
checkout, which a wheel carries as ``migrator/_alembic``.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.schema import CreateSchema

from migrator.database.engine import reading, writing
from migrator.database.failures import translating
from migrator.errors import LedgerError, LedgerMissing
from migrator.ledger.identity import enter_identity
from migrator.ledger.names import ledger_names, quoted
from migrator.ledger.tables import LedgerTables, build_tables

UPGRADE_LOCK: Final = 6_294_018_377_315_624_229
"""Key of the advisory lock; any number that nobody else uses."""
_UPGRADE_LOCK_TIMEOUT: Final = "60s"
_REMEDY: Final = "run `migrator db upgrade`, or have your DBA run what `migrator db sql` prints"


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


def current(engine: Engine, tables: LedgerTables) -> str | None:
    """Return the version the ledger has; None when there is no ledger."""
    options = {
        "version_table": tables.names.table("alembic_version"),
        "version_table_schema": tables.names.schema,
    }
    doing = "reading the ledger's version"
    with translating(LedgerError, doing=doing), reading(engine) as connection:
        return MigrationContext.configure(connection, opts=options).get_current_revision()


def head() -> str:
    """Return the version this program needs."""
    found = ScriptDirectory(str(script_location())).get_current_head()
    if found is None:
        raise LedgerError(f"there are no migration scripts in {script_location()}")
    return found


def check_head(engine: Engine, tables: LedgerTables) -> None:
    """Return when the ledger has exactly the version this program needs.

    Raises:
        LedgerMissing: No ledger or another version; says what to do. Nothing was changed.
    """
    found, needed = current(engine, tables), head()
    if found is None:
        raise LedgerMissing(f"this database has no ledger yet: {_REMEDY}")
    if found == needed:
        return
    if found > needed:
        raise LedgerMissing(
            f"the ledger has version {found}, this program only knows {needed}: install the "
            "release that upgraded it, or a newer one"
        )
    raise LedgerMissing(f"the ledger has version {found}, this program needs {needed}: {_REMEDY}")


def sql(dialect: str, schema: str) -> str:
    """Return the SQL that creates the whole ledger from nothing, for a DBA to read and run."""
    tables = build_tables(ledger_names(dialect, schema))
    written = io.StringIO()
    config = _config(tables, dialect=dialect, output=written)
    if tables.names.schema is not None:
        written.write(f"CREATE SCHEMA IF NOT EXISTS {quoted(tables.names.schema)};\n\n")
    command.upgrade(config, "head", sql=True)
    return written.getvalue()


def script_location() -> Path:
    """Return the folder with the migration scripts, of a wheel or of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_alembic"
    return shipped if shipped.is_dir() else package.parent / "alembic"


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
