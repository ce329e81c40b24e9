"""The version the ledger has, and the one this program needs.

Every verb that works with the ledger checks this first. Importing Alembic, which only an upgrade
needs, would take longer than the check. The scripts are in ``alembic/`` of a source checkout; a
wheel has them as ``migrator/_alembic``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnClause, Connection, Engine, column, inspect, select, table

from migrator.database.engine import reading
from migrator.documents import Document
from migrator.errors import LedgerError, LedgerMissing
from migrator.ledger.tables import LedgerTables

VERSION_TABLE: Final = "alembic_version"
_REMEDY: Final = "run `migrator db upgrade`, or have your DBA run what `migrator db sql` prints"


class UpgradeDocument(Document, title="migrator/db-upgrade/1"):
    """`migrator db upgrade --json`."""

    before: str | None
    after: str | None
    needed: str
    dry_run: bool


def current(engine: Engine, tables: LedgerTables) -> str | None:
    doing = "reading the ledger's version"
    with reading(engine, LedgerError, doing=doing) as connection:
        return _current(connection, tables)


def _current(connection: Connection, tables: LedgerTables) -> str | None:
    name, schema = tables.names.table(VERSION_TABLE), tables.names.schema
    if not inspect(connection).has_table(name, schema=schema):
        return None
    version: ColumnClause[str] = column("version_num")
    asked = select(version).select_from(table(name, schema=schema))
    return connection.scalars(asked).one_or_none()


@cache
def head() -> str:
    """Scripts are named after their versions, in ascending order.

    Read once: an upgrade may replace the scripts under a running daemon, which still needs its own
    version.
    """
    found = [path.name.partition("_")[0] for path in script_location().glob("versions/[0-9]*_*.py")]
    if not found:
        raise LedgerError(f"there are no migration scripts in {script_location()}")
    return max(found)


def check_head(engine: Engine, tables: LedgerTables) -> None:
    """Raise ``LedgerMissing``, with the remedy, unless the ledger has the version needed."""
    found, needed = current(engine, tables), head()
    if found is None:
        raise LedgerMissing(f"this database has no ledger yet: {_REMEDY}")
    _refuse_newer(found, needed)
    if found != needed:
        raise LedgerMissing(
            f"the ledger has version {found}, this program needs {needed}: {_REMEDY}"
        )


def check_upgradable(connection: Connection, tables: LedgerTables) -> None:
    """Raise ``LedgerMissing`` if the ledger is newer than this program."""
    _refuse_newer(_current(connection, tables), head())


def _refuse_newer(found: str | None, needed: str) -> None:
    if found is not None and found > needed:
        raise LedgerMissing(
            f"the ledger has version {found}, this program only knows version {needed}: install "
            "the release that upgraded it, or a newer one"
        )


def script_location() -> Path:
    package = Path(__file__).resolve().parents[1]
    shipped = package / "_alembic"
    return shipped if shipped.is_dir() else package.parent / "alembic"
