"""What a half-finished run of the vendor's migration tool leaves in a SQL database.

Source: reference ``legacy-stores.md`` 5.2, 5.3 and 5.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Inspector,
    MetaData,
    String,
    Table,
    Text,
    cast,
    inspect,
    select,
)
from sqlalchemy.dialects import mssql

from migrator.database.engine import retrying_read
from migrator.errors import StoreError
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import build_source

STATE_TABLE: Final = "TimeoutsMigration_State"
VENDOR_RUN_TABLE: Final = "TimeoutData_migration_"
_RUNS: Final = "MigrationsEntity"
_STAGED: Final = "StagedTimeoutEntity"
_RUN_COLUMNS: Final = ("MigrationRunId", "EndpointName", "Status")
_OPEN_RUN: Final = ("0", "1")
"""Preparing, and in progress; kept as text or number, depending on the tool's version."""
_SHORT: Final = String(500).with_variant(mssql.NVARCHAR(500), "mssql")
"""SQL Server's ``text`` cannot be compared, and its ``varchar`` may turn letters into ``?``."""
_DONE_ROW: Final = "2"
_LOOKING: Final = "looking for runs of the vendor's tool"
_REMEDY: Final = "resume or abort it with the vendor's tool first"


def unfinished_vendor_runs(engine: Engine) -> Sequence[str]:
    """Return one sentence per unfinished run and per damaged one, in any schema; may be empty."""
    return retrying_read(engine, _look, failed=StoreError, doing=_LOOKING)


def unfinished_shared_runs(engine: Engine) -> Sequence[str]:
    """Return the same for NHibernate's table, of which the tool makes copies of its own.

    Any command of the tool makes its tables, so that only what is in them counts.
    """
    return retrying_read(engine, _look_for_shared, failed=StoreError, doing=_LOOKING)


def _look_for_shared(connection: Connection) -> list[str]:
    inspector, found = inspect(connection), []
    for schema in _schemas(inspector):
        for name in inspector.get_table_names(schema=schema):
            if name.casefold() == _RUNS.casefold():
                table = _found_table(inspector, schema, name, *_RUN_COLUMNS)
                found += [
                    f"run {run_id} of endpoint {endpoint} is unfinished: {_REMEDY}"
                    for run_id, endpoint in _rows_of_open_runs(connection, table)
                ]
            elif name.casefold() == _STAGED.casefold():
                table = _found_table(inspector, schema, name, "BatchState")
                if _has_rows_with_other(connection, table.c.BatchState):
                    found.append(
                        f"{build_source(schema, name)} holds timeouts that the vendor's tool has "
                        f"not delivered: {_REMEDY}"
                    )
    return found


def _look(connection: Connection) -> list[str]:
    inspector, found, run_tables = inspect(connection), [], []
    open_ids: set[str] = set()
    for schema in _schemas(inspector):
        names = inspector.get_table_names(schema=schema)
        if STATE_TABLE in names:
            for run_id, endpoint in _open_runs(connection, schema):
                open_ids.add(run_id)
                found.append(f"run {run_id} of endpoint {endpoint} is unfinished: {_REMEDY}")
        run_tables += [(schema, name) for name in names if VENDOR_RUN_TABLE in name]
    for schema, name in run_tables:
        run_id = name.partition(VENDOR_RUN_TABLE)[2].strip("'")
        if run_id not in open_ids and _has_unfinished_rows(connection, schema, name):
            found.append(
                f"{build_source(schema, name)} still holds timeouts, but no run of the vendor's "
                "tool is open: look at them and put them back by hand"
            )
    return found


def _schemas(inspector: Inspector) -> list[str | None]:
    if not dialect_for(inspector.dialect.name).has_schemas:
        return [None]
    return [*inspector.get_schema_names()]


def _open_runs(connection: Connection, schema: str | None) -> list[tuple[str, str]]:
    return _rows_of_open_runs(connection, _table(schema, STATE_TABLE, *_RUN_COLUMNS))


def _rows_of_open_runs(connection: Connection, table: Table) -> list[tuple[str, str]]:
    run_id, endpoint, status = table.columns
    is_open = cast(status, _SHORT).in_(_OPEN_RUN)
    rows = connection.execute(select(cast(run_id, _SHORT), cast(endpoint, _SHORT)).where(is_open))
    return [(row[0], row[1]) for row in rows]


def _has_unfinished_rows(connection: Connection, schema: str | None, name: str) -> bool:
    return _has_rows_with_other(connection, _table(schema, name, "Status").c.Status)


def _has_rows_with_other(connection: Connection, status: ColumnElement[str]) -> bool:
    has_more = cast(status, _SHORT) != _DONE_ROW
    return connection.execute(select(status).where(has_more).limit(1)).first() is not None


def _table(schema: str | None, name: str, *columns: str) -> Table:
    found = [Column(column, Text) for column in columns]
    return Table(name, MetaData(), *found, schema=schema)


def _found_table(inspector: Inspector, schema: str | None, name: str, *columns: str) -> Table:
    """Return the table with its columns as they are really called, keyed by *columns*."""
    actual = {
        each["name"].casefold(): each["name"] for each in inspector.get_columns(name, schema=schema)
    }
    found = [Column(actual.get(key.casefold(), key), Text, key=key) for key in columns]
    return Table(name, MetaData(), *found, schema=schema)
