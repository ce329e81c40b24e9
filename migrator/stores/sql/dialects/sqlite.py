"""SQLite: a write transaction is the only one there is, so nobody interferes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    String,
    Table,
    Text,
    cast,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

from migrator.database.engine import BODY_HASH, CONTENT_HASH
from migrator.database.guids import GuidBytes
from migrator.stores.sql.dialects.base import Dialect
from migrator.stores.sql.moving import (
    Move,
    Moved,
    body_bytes,
    fits,
    ledger_values,
    moved,
    sized,
    sums,
)


class SqliteDialect(Dialect):
    """Moves with two statements."""

    name = "sqlite"
    has_schemas = False
    name_max_bytes = 63
    """There is no limit; one that suits other databases, too."""

    def move(self, connection: Connection, move: Move) -> Moved | None:
        """Copy rows into the ledger, then remove exactly those."""
        legacy, kept = move.legacy, move.ledger.timeout
        table, chosen = legacy.table, sized(move)
        values = ledger_values(move, table.c) | {
            "row_index": chosen.c.row_index,
            # as what they are taken for from here on; see ``content_hash``
            "headers": cast(table.c.Headers, Text),
            "body": cast(table.c.State, LargeBinary),
            "content_hash": self.content_hash(table.c.Headers, table.c.State),
        }
        wanted = select(*values.values()).where(
            table.c.Id == chosen.c.Id, fits(chosen, move.request)
        )
        connection.execute(insert(kept).from_select(list(values), wanted))
        mine = kept.c.batch_id == move.batch_id
        ids = select(self.as_stored(kept.c.store_id, legacy, "Id")).where(mine)
        connection.execute(delete(table).where(table.c.Id.in_(ids)))
        rows = select(kept.c.row_index, kept.c.due, kept.c.store_id, body_bytes(kept)).where(mine)
        return moved(connection.execute(sums(rows.subquery("kept"))).one())

    def insert_absent(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> Collection[str]:
        """Insert, and let the database say which."""
        key = [table.c.Id]
        statement = sqlite.insert(table).on_conflict_do_nothing(index_elements=key)
        return list(connection.scalars(statement.returning(*key), rows))

    def content_hash(
        self, headers: ColumnElement[Any], body: ColumnElement[Any]
    ) -> ColumnElement[str]:
        """Return the hash; see ``Dialect``."""
        # a column of SQLite takes values of any type, and somebody may have written one
        content = cast(headers, Text), cast(body, LargeBinary)
        found: ColumnElement[str] = getattr(func, CONTENT_HASH)(*content, type_=Text)
        return found

    def body_hash(self, body: ColumnElement[Any]) -> ColumnElement[str]:
        """Return the hash; see ``Dialect``."""
        found: ColumnElement[str] = getattr(func, BODY_HASH)(cast(body, LargeBinary), type_=Text)
        return found

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Return types that keep what other databases' do."""
        return {
            "Id": Text(),
            "Destination": String(200),
            "SagaId": Text(),
            "State": LargeBinary(),
            "Time": Text(),
            "Headers": Text(),
            "PersistenceVersion": String(23),
        }

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Return types as elsewhere, with GUIDs in bytes as NHibernate's driver writes them."""
        return {**super().shared_column_types(), "Id": GuidBytes(), "SagaId": GuidBytes()}
