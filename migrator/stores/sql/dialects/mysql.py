"""MariaDB and MySQL: a claim picks and locks, copies, removes; all three must agree.

Rules of this file: only SQL that MariaDB 10.6 and MySQL 8.0 both know, so no row change returns
rows. An index is named where the planner must not have a choice: reading another index locks
unwanted rows, and concurrent claims would find none. Picked rows are named by their keys, as a list
in JSON, and no column is converted. The server cannot hash content larger than
``max_allowed_packet``: it is read here, part by part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql as types
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from migrator.database import mysql
from migrator.database.sessions import LONG_STATEMENT, Timeouts
from migrator.database.types import GuidBytes, UtcDateTime, guid_bytes
from migrator.errors import RowRefused
from migrator.nservicebus.timeouts import content_hash
from migrator.stores.sql.dialects.base import (
    CLAIM_LOCKS,
    LookingDialect,
    beginning_with,
    due_order,
)
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import (
    Move,
    Moved,
    demand,
    demand_removed,
    fitting,
    ledger_values,
    picking,
    summed,
)

_NAME: Final = "mysql"
_REST_OF_ROW_BYTES: Final = 4096
_ESTIMATE: Final = sa.text(
    "SELECT table_rows FROM information_schema.tables "
    "WHERE table_schema = database() AND table_name = :name"
)
_DELETE_TRIGGERS: Final = sa.text(
    "SELECT trigger_name FROM information_schema.triggers WHERE event_manipulation = 'DELETE' "
    "AND event_object_schema = COALESCE(:schema, DATABASE()) AND event_object_table = :name "
    "ORDER BY 1"
)
_ENGINE: Final = sa.text(
    "SELECT engine FROM information_schema.tables "
    "WHERE table_schema = database() AND table_name = :name"
)
_DUPLICATE: Final = re.compile(r"1062.* for key '(.*)'")
_INDEXES: Final = sa.text(
    "SELECT index_name, column_name FROM information_schema.statistics "
    "WHERE table_schema = database() AND table_name = :name ORDER BY index_name, seq_in_index"
)
FITS_ANYWHERE_BYTES: Final = 512 * 1024
_AS_UTF8: Final = 3
"""The most bytes in UTF-8 for one byte of text in another character set."""
_KEY_CHARACTERS: Final = sa.text(
    "SELECT character_set_name AS characters, collation_name AS collation "
    "FROM information_schema.columns "
    "WHERE table_schema = database() AND table_name = :table AND column_name = :column"
)


class Naming:
    """``:ids`` as a table ``picked``: ``row_index``, which counts from 1, and ``id``.

    Read ids as text of these *characters*, and compare them by *collation*.

    A key's own characters are at least ASCII, so it is not converted for the comparison. Without
    *collation* the key's own applies. It yields to no other one except of the same character set,
    and then the two cannot be mixed.
    """

    def __init__(self, characters: str = "ascii", collation: str = "") -> None:
        kind = f"VARCHAR(500) CHARACTER SET {characters}"
        self.rows: Final = f"'$[*]' COLUMNS (row_index FOR ORDINALITY, id {kind} PATH '$')"
        self.picked: Final[sa.TableValuedAlias] = sa.func.json_table(
            sa.bindparam("ids", type_=sa.Text()), sa.literal_column(self.rows)
        ).table_valued(
            sa.column("row_index", sa.BigInteger), sa.column("id", sa.Text), name="picked"
        )
        self._collation = f" COLLATE {collation}" if collation else ""

    def key(self, legacy: LegacyTable) -> str:
        is_bytes = isinstance(legacy.table.c.Id.type, GuidBytes)
        return "unhex(picked.id)" if is_bytes else f"picked.id{self._collation}"


GUIDS: Final = Naming()


class MysqlDialect(LookingDialect):
    name = _NAME
    has_schemas = False
    may_fold_names = True
    hashes_all = False
    """Not content larger than ``max_allowed_packet``, should that be lowered."""
    name_max_bytes = 63
    """64 characters are allowed; PostgreSQL's limit is sufficient."""

    def move(self, connection: sa.Connection, move: Move) -> Moved | None:
        legacy, request = move.legacy, move.request
        self.bound_locks(connection, CLAIM_LOCKS)
        order = ["Id"] if request.only is not None else due_order(legacy)
        index = index_on(connection, legacy.table, order)
        picked = connection.execute(self.picking(move, index)).all()
        rows = fitting(picked, request.max_bytes)
        if not rows:
            return None
        named, ids = naming(connection, legacy, [row.id for row in rows])
        large = hashed_here(connection, legacy, rows)
        copied = connection.execute(self.copying(move, named, large), ids)
        demand(legacy, "copied", copied.rowcount, of=len(rows))
        removed = connection.execute(self.removing(connection, legacy, named), ids)
        demand_removed(legacy, removed.rowcount, of=len(rows))
        return summed(rows)

    def picking(self, move: Move, index: str | None) -> sa.Select[Any]:
        table = move.legacy.table
        query = picking(move).order_by(table.c.Id).limit(move.request.max_rows)
        return walking(index, query.with_for_update(skip_locked=True), table)

    def copying(self, move: Move, named: Naming, large: Mapping[int, str]) -> sa.Insert:
        """The hashes of *large* ones are given, by place; the server computes the others."""
        table, row, place = move.legacy.table, move.legacy.table.c, named.picked.c.row_index
        hashed: sa.ColumnElement[str] = self.content_hash(row.Headers, row.State)
        values = ledger_values(move, row) | {
            "row_index": place - 1,
            "content_hash": sa.case(large, value=place, else_=hashed) if large else hashed,
        }
        key: sa.ColumnElement[str] = sa.literal_column(named.key(move.legacy))
        chosen = (
            sa.select(*values.values())
            .select_from(named.picked.join(table, row.Id == key))
            # the few ids first, then each row by its key, whatever statistics say
            .prefix_with("STRAIGHT_JOIN", dialect=_NAME)
        )
        return sa.insert(move.ledger.timeout).from_select(list(values), chosen)

    def removing(
        self, connection: sa.Connection, legacy: LegacyTable, named: Naming = GUIDS
    ) -> sa.TextClause:
        """By key, as a DELETE takes no hints.

        A small table would otherwise be read as a whole and wait for rows of another claim, which
        may be waiting for this one.
        """
        preparer, key = connection.dialect.identifier_preparer, legacy.table.c.Id.name
        table, column = preparer.format_table(legacy.table), preparer.quote(key)
        join = f"STRAIGHT_JOIN {table} ON {table}.{column} = {named.key(legacy)}"
        plain = f"DELETE {table} FROM json_table(__ids, {named.rows}) AS picked {join}"
        return sa.text(plain.replace("%%", "%").replace(":", r"\:").replace("__ids", ":ids"))

    def looking(
        self, connection: sa.Connection, table: sa.Table, ids: Sequence[str]
    ) -> sa.Select[Any]:
        query = sa.select(table.c.Id).where(table.c.Id.in_(ids)).with_for_update()
        return walking(index_on(connection, table, ["Id"]), query, table)

    def step(self, table: sa.Table) -> timedelta:
        kind = table.c.Time.type
        digits = kind.fraction_digits if isinstance(kind, UtcDateTime) else 0
        return timedelta(microseconds=10 ** (6 - digits))

    def is_known(self, connection: sa.Connection, table: sa.Table, exc: IntegrityError) -> bool:
        return names_index(exc, index_on(connection, table, ["Id"]))

    def demand_room(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """The server closes the connection on a larger statement."""
        needed = max(map(_written_bytes, rows))
        room = needed if needed <= FITS_ANYWHERE_BYTES else room_of(connection)
        if needed > room:
            raise RowRefused(
                f"a row of {needed} bytes in a statement does not fit into the server's "
                f"max_allowed_packet of {room}"
            )

    # ── content ─────────────────────────────────────────────────────────────────────────────

    def content_hash(
        self, headers: sa.ColumnElement[Any], body: sa.ColumnElement[Any]
    ) -> sa.ColumnElement[str]:
        utf8 = sa.cast(sa.func.coalesce(sa.cast(headers, sa.Text), ""), sa.LargeBinary)
        zero: sa.ColumnElement[bytes] = sa.literal_column("0x00")
        return sa.func.sha2(sa.func.concat(utf8, zero, sa.func.coalesce(body, "")), 256)

    def body_hash(self, body: sa.ColumnElement[Any]) -> sa.ColumnElement[str]:
        return sa.func.sha2(sa.func.coalesce(body, ""), 256)

    # ── timeouts, locks ─────────────────────────────────────────────────────────────────────

    def wait_at_most(self, connection: sa.Connection, timeout: timedelta) -> None:
        mysql.change_timeouts(connection, Timeouts(lock=timeout, statement=timeout))

    def bound_locks(self, connection: sa.Connection, at_most: timedelta) -> None:
        """Of rows and tables; see ``Timeouts.lock``."""
        mysql.change_timeouts(connection, Timeouts(lock=at_most))

    def allow_long(self, connection: sa.Connection) -> None:
        mysql.change_timeouts(connection, Timeouts(statement=LONG_STATEMENT))

    def read_only(self, engine: sa.Engine) -> sa.Engine:
        return mysql.read_only(engine)

    def lock_table(self, connection: sa.Connection, quoted_name: str) -> None:
        """Also after the end of the transaction, until the connection returns to the pool."""
        mysql.lock_table(connection, quoted_name)

    # ── facts ───────────────────────────────────────────────────────────────────────────────

    def estimated_rows(self, connection: sa.Connection, legacy: LegacyTable) -> int:
        """The server's statistics may be wrong by a third."""
        return int(connection.execute(_ESTIMATE, {"name": legacy.table.name}).scalar() or 0)

    def obstacle(self, connection: sa.Connection, legacy: LegacyTable) -> str | None:
        engine = connection.execute(_ENGINE, {"name": legacy.table.name}).scalar()
        if engine == "InnoDB":
            return None
        return (
            f"its engine is {engine}, which has no transactions: a claim could lose or duplicate "
            "rows; ALTER TABLE … ENGINE=InnoDB first"
        )

    def delete_triggers(self, connection: sa.Connection, legacy: LegacyTable) -> Sequence[str]:
        names = {"schema": legacy.table.schema, "name": legacy.table.name}
        return connection.scalars(_DELETE_TRIGGERS, names).all()

    def folds_names(self, connection: sa.Connection) -> bool:
        return bool(connection.scalar(sa.text("SELECT @@lower_case_table_names")))

    # ── making tables ───────────────────────────────────────────────────────────────────────

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        return {
            "Id": types.VARCHAR(38),
            "Destination": types.NVARCHAR(200),
            "SagaId": types.VARCHAR(38),
            "State": types.LONGBLOB(),
            "Time": types.DATETIME(),
            "Headers": types.JSON(),
            "PersistenceVersion": types.VARCHAR(23),
        }

    def shared_column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Of NHibernate's MySQL dialects, with an Endpoint that can be indexed."""
        return {
            "Id": GuidBytes(),
            "Destination": types.TEXT(),
            "SagaId": GuidBytes(),
            "State": types.LONGBLOB(),
            "Endpoint": types.VARCHAR(440),
            "Time": types.DATETIME(fsp=6),
            "Headers": types.LONGTEXT(),
        }

    def table_options(self) -> Mapping[str, str]:
        return {"mysql_default_charset": "ascii", "mysql_engine": "InnoDB"}


def _written_bytes(row: Mapping[str, Any]) -> int:
    headers = row["Headers"]
    return 2 * len(row["State"] or b"") + 2 * len(headers.encode()) + _REST_OF_ROW_BYTES


def index_on(connection: sa.Connection, table: sa.Table, keys: Sequence[str]) -> str | None:
    names = [table.c[key].name for key in keys]
    found = connection.execute(_INDEXES, {"name": table.name})
    return beginning_with([(index, column) for index, column in found], names)


def walking(index: str | None, query: sa.Select[Any], table: sa.Table) -> sa.Select[Any]:
    """Return *query* with no choice but to search *index*; None: as the planner likes."""
    if index is None:
        return query
    quoted = "`" + index.replace("`", "``").replace("%", "%%%%") + "`"
    return query.with_hint(table, f"FORCE INDEX ({quoted})", "mysql")


def names_index(exc: IntegrityError, index: str | None) -> bool:
    """Return whether the error names *index*, so the row exists; MySQL puts the table before it."""
    found = _DUPLICATE.search(str(exc.orig))
    return found is not None and found[1].endswith(index or "PRIMARY")


def room_of(connection: sa.Connection) -> int:
    return int(connection.scalar(sa.text("SELECT @@max_allowed_packet")) or 0)


def hashed_here(
    connection: sa.Connection, legacy: LegacyTable, rows: Sequence[sa.Row[Any]]
) -> Mapping[int, str]:
    """Return the content's hash of each row that is too large for the server, by place, from 1.

    *rows* are locked, and those of ``picking``. Mostly empty.
    """
    needed = {
        place: row.body_bytes + _AS_UTF8 * row.headers_bytes + 1
        for place, row in enumerate(rows, start=1)
    }
    if max(needed.values(), default=0) <= FITS_ANYWHERE_BYTES:
        return {}
    room = room_of(connection)
    return {
        place: _hash_of(connection, legacy, rows[place - 1].id)
        for place, size in needed.items()
        if size > room
    }


def _hash_of(connection: sa.Connection, legacy: LegacyTable, id_: str) -> str:
    row = legacy.table.c
    headers, body = (
        connection.scalar(sa.select(part).where(row.Id == id_)) for part in (row.Headers, row.State)
    )
    return content_hash(headers, body)


def naming(
    connection: sa.Connection, legacy: LegacyTable, ids: Sequence[str]
) -> tuple[Naming, dict[str, Any]]:
    if isinstance(legacy.table.c.Id.type, GuidBytes):
        return GUIDS, {"ids": json.dumps([(guid_bytes(each) or b"").hex() for each in ids])}
    listed = {"ids": json.dumps(ids)}
    if all(each.isascii() for each in ids):
        return GUIDS, listed
    names = {"table": legacy.table.name, "column": legacy.table.c.Id.name}
    found = connection.execute(_KEY_CHARACTERS, names).one()
    return Naming(found.characters, found.collation), listed
