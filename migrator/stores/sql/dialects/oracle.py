"""Oracle: rows are picked by fetching from a cursor that skips locked ones.

Rules of this file: a limit and FOR UPDATE cannot be combined, and ROWNUM counts rows before locked
ones are skipped. So the cursor is opened without a limit, each row is locked when it is fetched,
and fetching stops. An empty text is NULL, and an empty body has the hash of no body.

The SQL is compiled and parsed, but not yet run on a server (``docs/how-to/oracle.md``).
Source: Oracle documentation, SELECT ("for_update_clause"), "Data types" ("Empty strings");
reference ``legacy-stores.md`` 1.1 (names), 1.2 (columns), 1.3 (values).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import oracle
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from migrator.database import oracle as server
from migrator.database.oracle import LOCK_WAIT_S, code_of
from migrator.database.sessions import LONG_STATEMENT, Timeouts
from migrator.database.types import GuidBytes
from migrator.stores.sql.dialects.base import LookingDialect
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import (
    MOST_ROWS,
    Copied,
    Move,
    Moved,
    ledger_values,
    move_rows,
    picking,
)

_SPELLING: Final[Any] = oracle.dialect()  # type: ignore[no-untyped-call] # SQLAlchemy's
_DUPLICATE: Final = "ORA-00001"
_COUNTED: Final = {"preserve_rowcount": True}
_ESTIMATE: Final = sa.text(
    "SELECT num_rows FROM all_tables WHERE table_name = :name "
    "AND owner = coalesce(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'))"
)

_DELETE_TRIGGERS: Final = sa.text(
    "SELECT trigger_name FROM all_triggers WHERE table_name = :name AND status = 'ENABLED' "
    "AND table_owner = coalesce(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) "
    "AND triggering_event LIKE '%DELETE%' ORDER BY trigger_name"
)


def _names(connection: sa.Connection, legacy: LegacyTable) -> Mapping[str, str | None]:
    denormalize: Any = connection.dialect.denormalize_name
    schema = legacy.table.schema
    return {
        "name": denormalize(legacy.table.name),
        "owner": None if schema is None else denormalize(schema),
    }


class OracleDialect(LookingDialect):
    name = "oracle"
    default_schema = None
    name_max_bytes = 128
    table_suffix = "TO"

    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        # those that are never fetched are never locked
        with connection.execute(self.picking(move)) as cursor:
            picked = cursor.fetchmany(min(move.request.max_rows, MOST_ROWS))
        copying = self.copying(move)

        def copy(rows: Sequence[Copied]) -> int:
            many = [
                {"wanted": row.id, "place": row.row_index, "hashed": row.content_hash}
                for row in rows
            ]
            return connection.execute(copying, many, execution_options=_COUNTED).rowcount

        return move_rows(connection, move, picked, copy)

    def picking(self, move: Move) -> sa.Select[Any]:
        most = min(move.request.max_rows, MOST_ROWS)
        query = picking(move).with_for_update(skip_locked=True)
        # walk the index on the due time, for only the first rows will be fetched
        return query.prefix_with(f"/*+ FIRST_ROWS({most}) */", dialect=self.name)

    def copying(self, move: Move) -> sa.Insert:
        row, ledger = move.legacy.table.c, move.ledger
        kept = ledger_values(move, row) | {
            "row_index": sa.bindparam("place", type_=ledger.timeout.c.row_index.type),
            "content_hash": sa.bindparam("hashed", type_=ledger.timeout.c.content_hash.type),
        }
        chosen = sa.select(*kept.values()).where(
            row.Id == sa.bindparam("wanted", type_=row.Id.type)
        )
        return sa.insert(ledger.timeout).from_select(list(kept), chosen)

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        return connection.scalars(_DELETE_TRIGGERS, _names(connection, legacy)).all()

    def check_deferred(self, connection: sa.Connection) -> None:
        connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))

    def as_stored(
        self, column: sa.ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> sa.ColumnElement[Any]:
        """Convert a moment to the column's type; it came from there, so nothing is rounded."""
        wanted = legacy.table.c[key].type
        if key == "Time":
            return sa.cast(column, getattr(wanted, "found", wanted))
        return super().as_stored(column, legacy, key)

    def step(self, table: sa.Table) -> timedelta:
        return timedelta(seconds=1)

    def is_known(self, connection: sa.Connection, table: sa.Table, exc: IntegrityError) -> bool:
        return code_of(exc) == _DUPLICATE

    def looking(
        self, connection: sa.Connection, table: sa.Table, ids: Sequence[str]
    ) -> sa.Select[Any]:
        return sa.select(table.c.Id).where(table.c.Id.in_(ids)).with_for_update()

    # ── timeouts, locks ─────────────────────────────────────────────────────────────────────

    def wait_at_most(self, connection: sa.Connection, timeout: timedelta) -> None:
        server.change_timeouts(connection, Timeouts(statement=timeout))

    def allow_long(self, connection: sa.Connection) -> None:
        self.wait_at_most(connection, LONG_STATEMENT)

    def read_only(self, engine: sa.Engine) -> sa.Engine:
        return engine.execution_options(isolation_level="SERIALIZABLE")

    def lock_table(self, connection: sa.Connection, quoted_name: str) -> None:
        connection.exec_driver_sql(f"LOCK TABLE {quoted_name} IN EXCLUSIVE MODE WAIT {LOCK_WAIT_S}")

    # ── facts ───────────────────────────────────────────────────────────────────────────────

    def estimated_rows(self, connection: sa.Connection, legacy: LegacyTable) -> int:
        return int(connection.execute(_ESTIMATE, _names(connection, legacy)).scalar() or 0)

    def spelled(self, name: str) -> str:
        """SQLAlchemy spells upper case as lower case, where it needs no quotes."""
        return str(_SPELLING.normalize_name(name.upper()))

    # ── making tables ───────────────────────────────────────────────────────────────────────

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        return {
            "Id": oracle.VARCHAR2(38),
            "Destination": oracle.NVARCHAR2(200),
            "SagaId": oracle.VARCHAR2(38),
            "State": oracle.BLOB(),
            "Time": oracle.DATE(),
            "Headers": sa.CLOB(),
            "PersistenceVersion": oracle.VARCHAR2(23),
        }

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Of NHibernate's Oracle dialects; SQLAlchemy gives times six digits."""
        return {
            "Id": GuidBytes(),
            "Destination": oracle.NVARCHAR2(1024),
            "SagaId": GuidBytes(),
            "State": oracle.BLOB(),
            "Endpoint": oracle.NVARCHAR2(440),
            "Time": oracle.TIMESTAMP(),
            "Headers": oracle.NCLOB(),
        }

    def column_names(self) -> Mapping[str, str]:
        """Lower case means upper case."""
        return {key: key.lower() for key in self.column_types()} | {"Time": "expiretime"}
