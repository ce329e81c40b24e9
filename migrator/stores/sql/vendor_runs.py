"""What an unfinished run of the vendor's migration tool leaves in a SQL database.

Any command of the tool creates its tables, so only their contents count. Its names may have any
letter case. Source: reference ``legacy-stores.md`` 5.2, 5.3 and 5.6.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mssql

from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import build_source

VENDOR_RUN_TABLE: Final = "timeoutdata_migration_"
"""The beginning of its copies of a table, in lower case; the run's id follows."""
_RUN_COLUMNS: Final = ("MigrationRunId", "EndpointName", "Status")
_RUNS: Final = ("timeoutsmigration_state", "migrationsentity")
_STAGED: Final = "stagedtimeoutentity"
_OPEN_RUN: Final = ("0", "1")
"""Preparing, and in progress; text or number, depending on the tool's version."""
_SHORT: Final = sa.String(500).with_variant(mssql.NVARCHAR(500), "mssql")
"""SQL Server's ``text`` cannot be compared, and its ``varchar`` may turn letters into ``?``."""
_DONE_ROW: Final = "2"
_REMEDY: Final = "resume or abort it with the vendor's tool first"


def unfinished_vendor_runs(connection: sa.Connection) -> list[str]:
    """Return one sentence per unfinished run and per damaged one, in any schema."""
    inspector, found, open_ids = sa.inspect(connection), list[str](), set[str]()
    has_schemas = dialect_for(connection.dialect.name).has_schemas
    copies: list[tuple[str | None, str]] = []
    for schema in inspector.get_schema_names() if has_schemas else [None]:
        for name in inspector.get_table_names(schema=schema):
            kind = name.casefold()
            if kind in _RUNS:
                columns = _columns(
                    inspector, schema, name, "MigrationRunId", "EndpointName", "Status"
                )
                for run_id, endpoint in _open_runs(connection, *columns):
                    open_ids.add(run_id)
                    found.append(f"run {run_id} of endpoint {endpoint} is unfinished: {_REMEDY}")
            elif kind == _STAGED:
                if _find_undone(connection, *_columns(inspector, schema, name, "BatchState")):
                    found.append(
                        f"{build_source(schema, name)} holds timeouts that the vendor's tool has "
                        f"not delivered: {_REMEDY}"
                    )
            elif VENDOR_RUN_TABLE in kind:
                copies.append((schema, name))
    for schema, name in copies:
        run_id = name[name.casefold().index(VENDOR_RUN_TABLE) + len(VENDOR_RUN_TABLE) :].strip("'")
        is_open = run_id in open_ids
        if not is_open and _find_undone(connection, *_columns(inspector, schema, name, "Status")):
            found.append(
                f"{build_source(schema, name)} still holds timeouts, but no run of the vendor's "
                "tool is open: check them and put them back by hand"
            )
    return found


def _open_runs(
    connection: sa.Connection,
    run_id: sa.ColumnElement[str],
    endpoint: sa.ColumnElement[str],
    status: sa.ColumnElement[str],
) -> list[tuple[str, str]]:
    is_open = sa.cast(status, _SHORT).in_(_OPEN_RUN)
    rows = connection.execute(
        sa.select(sa.cast(run_id, _SHORT), sa.cast(endpoint, _SHORT)).where(is_open)
    )
    return [(row[0], row[1]) for row in rows]


def _find_undone(connection: sa.Connection, status: sa.ColumnElement[str]) -> bool:
    has_more = sa.cast(status, _SHORT) != _DONE_ROW
    return connection.execute(sa.select(status).where(has_more).limit(1)).first() is not None


def _columns(
    inspector: sa.Inspector, schema: str | None, name: str, *wanted: str
) -> list[sa.Column[str]]:
    columns = inspector.get_columns(name, schema=schema)
    actual = {each["name"].casefold(): each["name"] for each in columns}
    found = [sa.Column(actual.get(key.casefold(), key), sa.Text) for key in wanted]
    return [*sa.Table(name, sa.MetaData(), *found, schema=schema).columns]
