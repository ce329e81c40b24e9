"""PostgreSQL: a claim is one statement, and the planner is told which index to use.

Rules of this file: times are converted explicitly between the ledger, which has moments, and a
column without a zone, which has UTC or local time. A pooler between the server and this program may
lose the session's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from migrator.database.engine import RETURNS_BODIES
from migrator.database.portable import prefer_indexes
from migrator.database.sessions import milliseconds
from migrator.database.types import GuidBytes, UtcDateTime
from migrator.ledger.batches import content_of
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.stores.requests import ClaimRequest
from migrator.stores.sql.dialects.base import CLAIM_LOCKS, Dialect
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.local_time import due_of, kept_extra, kept_owner, kept_time, zone_of
from migrator.stores.sql.moving import (
    Move,
    Moved,
    demand_removed,
    fits,
    ledger_values,
    moved,
    parameters,
    parametric,
    sized,
)

_BY_TIME: Final = sa.text(
    # The range is known to be in the Time index, and ids in the primary key's; without statistics
    # the planner may believe that reading the whole table is cheaper, once per batch.
    "SELECT set_config('enable_seqscan', 'off', true), "
    "set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), "
    f"set_config('lock_timeout', '{milliseconds(CLAIM_LOCKS)}ms', true)"
)
_WITHOUT_SORT: Final = sa.text("SELECT set_config('enable_sort', 'off', true)")
_LONG: Final = sa.text("SET LOCAL statement_timeout = '10min'")
_ESTIMATE: Final = sa.text("SELECT reltuples FROM pg_class WHERE oid = to_regclass(:name)")
# Locking rows wants UPDATE on at least one column, whichever.
_RIGHTS: Final = sa.text(
    """
    SELECT has_schema_privilege(n.oid, 'USAGE') AS usage,
           has_table_privilege(c.oid, 'SELECT') AS "SELECT",
           has_table_privilege(c.oid, 'INSERT') AS "INSERT",
           has_table_privilege(c.oid, 'DELETE') AS "DELETE",
           has_any_column_privilege(c.oid, 'UPDATE') AS "UPDATE"
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = :name
    """
)


_IS_FILTERED: Final = sa.text("SELECT row_security_active(CAST(:name AS regclass))")
_DELETE_TRIGGERS: Final = sa.text(
    "SELECT tgname FROM pg_trigger WHERE tgrelid = CAST(:name AS regclass) AND NOT tgisinternal "
    "AND tgenabled <> 'D' AND tgtype & 8 <> 0 AND tgtype & 66 <> 0 "  # DELETE; BEFORE, INSTEAD
    "UNION SELECT rulename FROM pg_rewrite WHERE ev_class = CAST(:name AS regclass) "
    "AND ev_type = '4' ORDER BY 1"
)


class _other_side(FunctionElement[datetime]):
    """A moment as UTC without a zone, or the other way round, whatever the session's zone."""

    type = UtcDateTime(with_zone=False)
    inherit_cache = True


@compiles(_other_side)
def _cast(element: _other_side, compiler: SQLCompiler, **kw: Any) -> str:
    return compiler.process(sa.cast(next(iter(element.clauses)), element.type), **kw)


@compiles(_other_side, "postgresql")
def _timezone(element: _other_side, compiler: SQLCompiler, **kw: Any) -> str:
    return f"timezone('UTC', {compiler.process(element.clauses, **kw)})"


def _moved(result: sa.CursorResult[Any], legacy: LegacyTable) -> Moved | None:
    """Raise ``RowsKept`` if the table has kept rows, as a trigger does that returns NULL."""
    rows: Sequence[Any] = result.all()
    found = moved([row[1:] for row in rows if row.store_id is not None])
    demand_removed(legacy, 0 if found is None else found.size, of=rows[0].rows)
    return found


class PostgresqlDialect(Dialect):
    name = "postgresql"
    inserting = postgresql.Insert
    name_max_bytes = 63
    """Longer names are truncated, which the server reports only in a notice."""

    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        self.plan(connection, move.request)
        if move.request.only is not None or move.request.but_for:
            return _moved(connection.execute(self.statement(move)), move.legacy)
        values = parameters(move)
        statement = self._statement_with(
            move.legacy, move.ledger, move.request.endpoint, frozenset(values)
        )
        return _moved(connection.execute(statement, values), move.legacy)

    @lru_cache(maxsize=256)  # noqa: B019 - there is one of this class, without state
    def _statement_with(
        self,
        legacy: LegacyTable,
        ledger: LedgerTables,
        endpoint: StoreEndpoint,
        names: frozenset[str],
    ) -> sa.Select[Any]:
        """Building a statement, and finding its compiled form, takes longer than sending it."""
        return self.statement(parametric(legacy, ledger, endpoint, names))

    def move_unread(self, connection: sa.Connection, move: Move) -> Moved | None:
        self.plan(connection, move.request)
        found = _moved(connection.execute(self.statement(move, reads_text=False)), move.legacy)
        return found and replace(found, rows=None)

    def plan(self, connection: sa.Connection, request: ClaimRequest) -> None:
        if request.only is None:
            connection.execute(_BY_TIME)
        else:
            prefer_indexes(connection)
            self.bound_locks(connection, CLAIM_LOCKS)

    def statement(self, move: Move, *, reads_text: bool = True) -> sa.Select[Any]:
        """Return the whole move as one statement that returns the moved rows.

        Each has the number of rows meant before it; where the table has kept all of them, that
        alone. Without *reads_text*, destination and headers are NULL.
        """
        table, chosen = move.legacy.table, sized(move)
        taken = (
            sa.delete(table)
            .where(table.c.Id == chosen.c.Id, fits(chosen, move.request))
            .returning(*table.c, chosen.c.row_index)
            .cte("taken")
        )
        values = ledger_values(move, taken.c) | {
            "row_index": taken.c.row_index,
            "content_hash": self.content_hash(taken.c.Headers, taken.c.State),
        }
        if zone_of(table.c.Time) is not None:
            values |= {"due": due_of(taken.c), "store_extra": kept_extra(taken.c)}
        elif not getattr(table.c.Time.type, "with_zone", False):
            values["due"] = _other_side(taken.c.Time)
        kept = move.ledger.timeout
        inserted = (
            sa.insert(kept)
            .from_select(list(values), sa.select(*values.values()))
            .returning(*content_of(kept))
            .cte("kept")
        )
        meant = (
            sa.select(sa.func.count().label("rows")).where(fits(chosen, move.request)).cte("meant")
        )
        row, unread = inserted.c, sa.null()
        content = (
            content_of(inserted)
            if reads_text
            else (row.row_index, row.store_id, unread, row.due, row.body, unread)
        )
        both = meant.outerjoin(inserted, sa.true())
        moving = sa.select(meant.c.rows, *content).select_from(both)
        return moving.execution_options(**RETURNS_BODIES)

    def check_deferred(self, connection: sa.Connection) -> None:
        connection.execute(sa.text("SET CONSTRAINTS ALL IMMEDIATE"))

    def as_stored(
        self, column: sa.ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> sa.ColumnElement[Any]:
        """Cast text to uuid, and a moment to UTC, where the column has no zone.

        What was claimed as local time goes back as it was, whatever the present settings.
        """
        wanted = legacy.table.c[key].type
        if key == "Time" and not getattr(wanted, "with_zone", False):
            extra = column.table.c.store_extra
            return sa.func.coalesce(kept_time(extra), _other_side(column))
        if key in {"Id", "SagaId", "Time"} and not isinstance(wanted, GuidBytes):
            return sa.cast(column, wanted)
        return super().as_stored(column, legacy, key)

    def kept_owner(self, extra: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        return kept_owner(extra)

    def content_hash(
        self, headers: sa.ColumnElement[Any], body: sa.ColumnElement[Any]
    ) -> sa.ColumnElement[str]:
        # text of SQL_ASCII is whatever bytes were written, and need be no text of UTF-8
        characters = sa.case(
            (sa.func.getdatabaseencoding() == "SQL_ASCII", "SQL_ASCII"), else_="UTF8"
        )
        content = (
            sa.func.convert_to(sa.func.coalesce(headers, ""), characters)
            .op("||")(sa.func.decode("00", "hex"))
            .op("||")(sa.func.coalesce(body, sa.func.decode("", "hex")))
        )
        return sa.func.encode(sa.func.sha256(content), "hex")

    def body_hash(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        return sa.func.encode(
            sa.func.sha256(sa.func.coalesce(body, sa.func.decode("", "hex"))), "hex"
        )

    def prefer_hashing(self, connection: sa.Connection) -> None:
        """Forbid sorts: for an expression, the planner expects as many groups as rows."""
        connection.execute(_WITHOUT_SORT)

    def wait_at_most(self, connection: sa.Connection, timeout: timedelta) -> None:
        limit = f"{milliseconds(timeout)}ms"
        connection.execute(
            sa.select(
                sa.func.set_config("lock_timeout", limit, True),
                sa.func.set_config("statement_timeout", limit, True),
            )
        )

    def bound_locks(self, connection: sa.Connection, at_most: timedelta) -> None:
        limit = f"{milliseconds(at_most)}ms"
        connection.execute(sa.select(sa.func.set_config("lock_timeout", limit, True)))

    def allow_long(self, connection: sa.Connection) -> None:
        connection.execute(_LONG)

    def read_only(self, engine: sa.Engine) -> sa.Engine:
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def lock_table(self, connection: sa.Connection, quoted_name: str) -> None:
        statement = f"LOCK TABLE {quoted_name} IN ACCESS EXCLUSIVE MODE"
        connection.execute(sa.text(statement.replace(":", r"\:")))

    def estimated_rows(self, connection: sa.Connection, legacy: LegacyTable) -> int:
        name = connection.dialect.identifier_preparer.format_table(legacy.table)
        return int(connection.execute(_ESTIMATE, {"name": name}).scalar() or 0)

    def missing_rights(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        names = {"schema": legacy.table.schema, "name": legacy.table.name}
        rights = connection.execute(_RIGHTS, names).mappings().one()
        return [right.upper() for right, is_granted in rights.items() if not is_granted]

    def obstacle(self, connection: sa.Connection, legacy: LegacyTable) -> str | None:
        name = connection.dialect.identifier_preparer.format_table(legacy.table)
        if not connection.scalar(_IS_FILTERED, {"name": name}):
            return None
        return (
            "row level security is active for the database user: rows that a policy hides would "
            "stay without a word; give the user BYPASSRLS, or disable it for this table"
        )

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        """Those that run before a removal, or replace it, and rules."""
        name = connection.dialect.identifier_preparer.format_table(legacy.table)
        return connection.scalars(_DELETE_TRIGGERS, {"name": name}).all()

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        return {
            "Id": UUID(as_uuid=False),
            "Destination": sa.String(200),
            "SagaId": UUID(as_uuid=False),
            "State": sa.LargeBinary(),
            "Time": sa.DateTime(),
            "Headers": sa.Text(),
            "PersistenceVersion": sa.String(23),
        }

    def write_rows(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Sequence[Any]]
    ) -> bool:
        quoted = connection.dialect.identifier_preparer.format_table(table)
        columns = ", ".join(f'"{column.name}"' for column in table.columns)
        driver: Any = connection.connection.driver_connection
        statement = f"COPY {quoted} ({columns}) FROM STDIN".replace("%%", "%")
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
        return True
