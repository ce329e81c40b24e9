"""SQL Server: rows are picked under update locks, hashed here, copied and removed by the server.

Rules of this file: every lock is a hint, and a claim skips locked rows (READPAST), whether
READ_COMMITTED_SNAPSHOT is on or off. A GUID is compared as a GUID, so that an index is used, and
written in lower case, as .NET does.

The SQL is compiled, parsed, and run on a T-SQL server of another vendor with FreeTDS, not yet on
SQL Server (``docs/how-to/sql-server.md``).
Source: SQL Server documentation, "Table hints", "DELETE", "Table value constructor",
"uniqueidentifier", "sys.databases"; reference ``legacy-stores.md`` 1.2, 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mssql
from sqlalchemy.types import TypeEngine

from migrator.database import mssql as server
from migrator.database.sessions import LONG_STATEMENT, Timeouts
from migrator.database.types import BYTES, uuid_as_text
from migrator.errors import RowRefused
from migrator.nservicebus.satellites import MAX_DESTINATION_CHARS
from migrator.stores.ports import StoreRemark
from migrator.stores.sql.dialects.base import (
    CLAIM_LOCKS,
    LookingDialect,
    beginning_with,
    due_order,
)
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

_NAME: Final = "mssql"
_PICK: Final = "UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK"
"""With row versions, READPAST requires READCOMMITTEDLOCK."""
_SKIM: Final = "READPAST, ROWLOCK, READCOMMITTEDLOCK"
"""READPAST skips locked rows, but would wait for a page lock."""
_LOOK: Final = "UPDLOCK, HOLDLOCK, ROWLOCK"
"""Also keeps missing rows from being inserted, until the end of the transaction."""
_WITH_SNAPSHOTS: Final = frozenset({1, 3})
_COUNTED: Final = {"preserve_rowcount": True}
_ESTIMATE: Final = sa.text(
    "SELECT sum(rows) FROM sys.partitions WHERE object_id = OBJECT_ID(:name) AND index_id IN (0, 1)"
)
_INDEXES: Final = sa.text(
    "SELECT i.name, c.name FROM sys.indexes AS i "
    "JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id "
    "JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id "
    "WHERE i.object_id = OBJECT_ID(:name) AND k.key_ordinal > 0 "
    "AND i.is_disabled = 0 AND i.has_filter = 0 AND i.is_hypothetical = 0 "
    "ORDER BY i.index_id, k.key_ordinal"
)
_SNAPSHOTS: Final = sa.text(
    "SELECT name, snapshot_isolation_state AS state FROM sys.databases WHERE name = DB_NAME()"
)
_AS_KEPT: Final = sa.text(
    # compared as the database compares names: where letter case does not count, it does not here
    "SELECT s.name AS kept_schema, t.name AS kept_table FROM sys.schemas AS s "
    "LEFT JOIN sys.tables AS t ON t.schema_id = s.schema_id AND t.name = :called "
    "WHERE s.name = :of_schema"
)
_TRIGGERS: Final = sa.text(
    "SELECT t.name, t.is_instead_of_trigger AS is_instead FROM sys.triggers AS t "
    "JOIN sys.trigger_events AS e ON e.object_id = t.object_id "
    "WHERE t.parent_id = OBJECT_ID(:name) AND t.is_disabled = 0 AND e.type_desc = 'DELETE' "
    "ORDER BY t.name"
)
_RIGHTS: Final = sa.text(
    "SELECT HAS_PERMS_BY_NAME(:name, 'OBJECT', 'SELECT') AS \"SELECT\", "
    "HAS_PERMS_BY_NAME(:name, 'OBJECT', 'INSERT') AS \"INSERT\", "
    "HAS_PERMS_BY_NAME(:name, 'OBJECT', 'DELETE') AS \"DELETE\""
)


class MssqlDialect(LookingDialect):
    name = _NAME
    default_schema = "dbo"
    looks_names_up = True
    name_max_bytes = 128
    """In characters; names are mostly ASCII."""

    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        legacy = move.legacy
        self.bound_locks(connection, CLAIM_LOCKS)
        indexes = _indexes(connection, legacy.table)
        due = [legacy.table.c[key].name for key in due_order(legacy)]
        in_order, by_id = walking(beginning_with(indexes, due)), _by_id(indexes, legacy.table)
        how = in_order if move.request.only is None else by_id
        picked = connection.execute(self.picking(move, how)).all()

        def copy(rows: Sequence[Copied]) -> int:
            copying = self.copying(move, rows, by_id)
            return connection.execute(copying, execution_options=_COUNTED).rowcount

        return move_rows(connection, move, picked, copy, hint=keeping(by_id))

    def picking(self, move: Move, how: str = "") -> sa.Select[Any]:
        """Return the query that locks the wanted rows, soonest first, with their sizes.

        *how* names the index, where there is one. A plan that sorts would lock every row of the
        range until the end of the claim, and concurrent claims, which skip locked rows, would find
        none.
        """
        return self._first(move).with_hint(move.legacy.table, f"WITH ({how}{_PICK})", _NAME)

    def _first(self, move: Move) -> sa.Select[Any]:
        """With one thread, because several lock out of order."""
        query = picking(move).limit(min(move.request.max_rows, MOST_ROWS))
        return query.with_statement_hint("OPTION (MAXDOP 1)", _NAME)

    def copying(self, move: Move, rows: Sequence[Copied], how: str = "") -> sa.Insert:
        """Return the statement that copies *rows*, each found by its id in the index of *how*."""
        table, row = move.legacy.table, move.legacy.table.c
        picked = sa.values(
            sa.column("id", sa.String(36)),
            sa.column("row_index", sa.Integer),
            sa.column("content_hash", sa.String(64)),
            name="picked",
        ).data([(each.id, each.row_index, each.content_hash) for each in rows])
        kept = ledger_values(move, row) | {
            "row_index": picked.c.row_index,
            "content_hash": picked.c.content_hash,
        }
        is_picked = row.Id == sa.cast(picked.c.id, row.Id.type)
        chosen = sa.select(*kept.values()).select_from(picked.join(table, is_picked))
        hinted = chosen.with_hint(table, f"WITH ({how}ROWLOCK)", _NAME)
        return sa.insert(move.ledger.timeout).from_select(list(kept), hinted)

    def as_stored(
        self, column: sa.ColumnElement[Any], legacy: LegacyTable, key: str
    ) -> sa.ColumnElement[Any]:
        """Convert text to a GUID, and a moment to the column's type and rounding."""
        wanted = legacy.table.c[key].type
        if key in {"Id", "SagaId"}:
            return sa.cast(column, wanted)
        return sa.cast(column, getattr(wanted, "found", wanted)) if key == "Time" else column

    def step(self, table: sa.Table) -> timedelta:
        """``datetime`` counts in 1/300 s, of which each third is a multiple of 10 ms."""
        return timedelta(milliseconds=10)

    def looking(
        self, connection: sa.Connection, table: sa.Table, ids: Sequence[str]
    ) -> sa.Select[Any]:
        """Keep missing *ids* from being inserted, by the index on the id.

        A plan that reads the whole table would lock all of it.
        """
        return self.keeping_out(table, ids, _by_id(_indexes(connection, table), table))

    def keeping_out(self, table: sa.Table, ids: Sequence[str], how: str = "") -> sa.Select[Any]:
        query = sa.select(uuid_as_text(table.c.Id)).where(table.c.Id.in_(ids))
        return query.with_hint(table, f"WITH ({how}{_LOOK})", _NAME)

    # ── timeouts, locks ─────────────────────────────────────────────────────────────────────

    def wait_at_most(self, connection: sa.Connection, timeout: timedelta) -> None:
        server.change_timeouts(connection, Timeouts(lock=timeout, statement=timeout))

    def bound_locks(self, connection: sa.Connection, at_most: timedelta) -> None:
        server.change_timeouts(connection, Timeouts(lock=at_most))

    def allow_long(self, connection: sa.Connection) -> None:
        server.change_timeouts(connection, Timeouts(statement=LONG_STATEMENT))

    def read_only(self, engine: sa.Engine) -> sa.Engine:
        """Snapshot isolation; the database must allow it (error 3952).

        Without ALLOW_SNAPSHOT_ISOLATION, only locks on everything that was read would have the same
        effect, and they would stop the timeout manager.
        """
        return engine.execution_options(isolation_level="SNAPSHOT")

    def lock_table(self, connection: sa.Connection, quoted_name: str) -> None:
        connection.exec_driver_sql(
            f"SELECT TOP 1 1 FROM {quoted_name} WITH (TABLOCKX, HOLDLOCK)"  # noqa: S608 - quoted
        ).close()

    # ── facts ───────────────────────────────────────────────────────────────────────────────

    def estimated_rows(self, connection: sa.Connection, legacy: LegacyTable) -> int:
        found = connection.execute(_ESTIMATE, {"name": _quoted(connection, legacy.table)}).scalar()
        return int(found or 0)

    def missing_rights(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        names = {"name": _quoted(connection, legacy.table)}
        rights = connection.execute(_RIGHTS, names).mappings().one()
        return [right for right, is_granted in rights.items() if not is_granted]

    def obstacle(self, connection: sa.Connection, legacy: LegacyTable) -> str | None:
        """The driver is not Microsoft's, or a trigger replaces the removal.

        Such a trigger removes nothing, and the server still counts the rows as removed.
        """
        name = server.foreign_driver(connection)
        if name is None:
            return self._instead(connection, legacy)
        return (
            f"the ODBC driver is {name}, but only Microsoft's is supported: others do not report "
            "why the server ended a transaction; install it, and name it in store.url "
            "(driver=ODBC+Driver+18+for+SQL+Server)"
        )

    def _instead(self, connection: sa.Connection, legacy: LegacyTable) -> str | None:
        found = connection.execute(_TRIGGERS, {"name": _quoted(connection, legacy.table)})
        names = [each.name for each in found if each.is_instead]
        if not names:
            return None
        return (
            f"trigger {', '.join(names)} acts INSTEAD OF the server: rows would be claimed and "
            "stay in the table; drop or disable it"
        )

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        found = connection.execute(_TRIGGERS, {"name": _quoted(connection, legacy.table)})
        return [each.name for each in found]

    def demand_room(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """The column of destinations counts pairs of UTF-16 twice."""
        for row in rows:
            if server.length(row["Destination"]) > MAX_DESTINATION_CHARS:
                raise RowRefused(
                    f"a destination of {server.length(row['Destination'])} UTF-16 units does not "
                    f"fit into a column of {MAX_DESTINATION_CHARS}"
                )

    def remarks(self, connection: sa.Connection) -> Sequence[StoreRemark]:
        found = connection.execute(_SNAPSHOTS).first()
        if found is None:
            return [snapshots_unknown(str(connection.engine.url.database))]
        return [] if found.state in _WITH_SNAPSHOTS else [without_snapshots(found.name)]

    def as_kept(
        self, connection: sa.Connection, schema: str | None, table: str
    ) -> tuple[str | None, str | None]:
        found = connection.execute(_AS_KEPT, {"of_schema": schema, "called": table}).first()
        return (None, None) if found is None else (found.kept_schema, found.kept_table)

    def renaming(self, quoted_table: str, new_name: str, quoted_new_name: str) -> str:
        old, new = (name.replace("'", "''") for name in (quoted_table, new_name))
        return f"EXEC sp_rename N'{old}', N'{new}'"

    # ── making tables ───────────────────────────────────────────────────────────────────────

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        return {
            "Id": mssql.UNIQUEIDENTIFIER(as_uuid=False),
            "Destination": mssql.NVARCHAR(200),
            "SagaId": mssql.UNIQUEIDENTIFIER(as_uuid=False),
            "State": BYTES,
            "Time": mssql.DATETIME(),
            "Headers": mssql.NVARCHAR(),
            "PersistenceVersion": mssql.VARCHAR(23),
        }

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        wide = {"Destination": mssql.NVARCHAR(1024), "Endpoint": mssql.NVARCHAR(440)}
        return {**super().shared_column_types(), **wide}


def without_snapshots(database: str) -> StoreRemark:
    quoted = "[" + database.replace("]", "]]") + "]"
    return StoreRemark(
        subject=database,
        text="ALLOW_SNAPSHOT_ISOLATION is off: claims work, but migrator verify is refused (3952)",
        remedy=f"have your DBA run: ALTER DATABASE {quoted} SET ALLOW_SNAPSHOT_ISOLATION ON",
    )


def snapshots_unknown(database: str) -> StoreRemark:
    return StoreRemark(
        subject=database,
        text="sys.databases does not show this database, so it is not known whether it allows "
        "snapshot isolation: claims work, but migrator verify may be refused (3952)",
        remedy="ask your DBA for snapshot_isolation_state, or for the right to see it",
    )


def _indexes(connection: sa.Connection, table: sa.Table) -> Sequence[tuple[str, str]]:
    found = connection.execute(_INDEXES, {"name": _quoted(connection, table)})
    return [(index, column) for index, column in found]


def walking(index: str | None) -> str:
    return "" if index is None else f"INDEX({_escaped(index)}), "


def seeking(index: str | None) -> str:
    """Return the beginning of a hint that searches *index*, never reading it from end to end.

    With old statistics all of the table may be read for a few ids, which waits for all its locks.
    Without an index there is no other way, and the hint would be an error (8622).
    """
    return "" if index is None else f"{walking(index)}FORCESEEK, "


def keeping(by_id: str) -> str:
    """Return the hint for reading rows that are removed afterwards, which skips locked rows.

    The removal finds them in the same index. Where that is not the clustered one, as in
    NHibernate's table, picking has locked nothing in it, but another transaction may have.
    """
    return f"WITH ({by_id}UPDLOCK, ROWLOCK)" if by_id else "WITH (ROWLOCK)"


def _by_id(indexes: Sequence[tuple[str, str]], table: sa.Table) -> str:
    return seeking(beginning_with(indexes, [table.c.Id.name]))


def _escaped(name: str) -> str:
    return "[" + name.replace("]", "]]").replace("%", "%%") + "]"


def _quoted(connection: sa.Connection, table: sa.Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table).replace("%%", "%")
