"""SQLite: only one transaction writes at a time, so no other one interferes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

from migrator.database.engine import BODY_HASH, CONTENT_HASH
from migrator.database.types import GuidBytes
from migrator.ledger.batches import content_of
from migrator.stores.sql.dialects.base import Dialect
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import (
    Move,
    Moved,
    demand_removed,
    fits,
    ledger_values,
    moved,
    sized,
)

_TRIGGERS: Final = sa.text(
    "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :name ORDER BY 1"
)


class SqliteDialect(Dialect):
    name = "sqlite"
    has_schemas = False
    inserting = sqlite.Insert
    name_max_bytes = 63

    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        self._move(connection, move)
        kept = move.ledger.timeout
        return moved(connection.execute(_moved_into(move, *content_of(kept))))

    def move_unread(self, connection: sa.Connection, move: Move) -> Moved | None:
        self._move(connection, move)
        kept, unread = move.ledger.timeout.c, sa.null()
        columns = kept.row_index, kept.store_id, unread, kept.due, kept.body, unread
        found = moved(connection.execute(_moved_into(move, *columns)))
        return found and replace(found, rows=None)

    def _move(self, connection: sa.Connection, move: Move) -> None:
        legacy, kept = move.legacy, move.ledger.timeout
        table, chosen = legacy.table, sized(move)
        values = ledger_values(move, table.c) | {
            "row_index": chosen.c.row_index,
            # as what they are taken for from here on; see ``content_hash``
            "headers": sa.cast(table.c.Headers, sa.Text),
            "body": sa.cast(table.c.State, sa.LargeBinary),
            "content_hash": self.content_hash(table.c.Headers, table.c.State),
        }
        wanted = sa.select(*values.values()).where(
            table.c.Id == chosen.c.Id, fits(chosen, move.request)
        )
        connection.execute(sa.insert(kept).from_select(list(values), wanted))
        copied = connection.execute(_moved_into(move, sa.func.count())).scalar_one()
        ids = _moved_into(move, self.as_stored(kept.c.store_id, legacy, "Id"))
        removed = connection.execute(sa.delete(table).where(table.c.Id.in_(ids))).rowcount
        demand_removed(legacy, removed, of=copied)

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        """All triggers: what they react to is only in their text."""
        return connection.scalars(_TRIGGERS, {"name": legacy.table.name}).all()

    def content_hash(
        self, headers: sa.ColumnElement[Any], body: sa.ColumnElement[Any]
    ) -> sa.ColumnElement[str]:
        # a column of SQLite takes values of any type, and text need be none
        text = sa.cast(sa.cast(headers, sa.Text), sa.LargeBinary)
        content = text, sa.cast(body, sa.LargeBinary)
        found: sa.ColumnElement[str] = getattr(sa.func, CONTENT_HASH)(*content, type_=sa.Text)
        return found

    def body_hash(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        found: sa.ColumnElement[str] = getattr(sa.func, BODY_HASH)(
            sa.cast(body, sa.LargeBinary), type_=sa.Text
        )
        return found

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        return {
            "Id": sa.Text(),
            "Destination": sa.String(200),
            "SagaId": sa.Text(),
            "State": sa.LargeBinary(),
            "Time": sa.Text(),
            "Headers": sa.Text(),
            "PersistenceVersion": sa.String(23),
        }

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """GUIDs are bytes, as NHibernate's driver writes them."""
        return {**super().shared_column_types(), "Id": GuidBytes(), "SagaId": GuidBytes()}


def _moved_into(move: Move, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return sa.select(*columns).where(move.ledger.timeout.c.batch_id == move.batch_id)
