"""MariaDB and MySQL: a claim picks and locks, copies, removes; all three must agree.

Rules of this file: only SQL that MariaDB 10.6 and MySQL 8.0 both know, so nothing is ever
returned by what changes rows. An index is named where the planner must not have a choice: whoever
walks another one locks rows that are not wanted, and claims beside it would find none. Rows that
were picked are named by their keys, as a list in JSON, and no column is converted. What has more
bytes than ``max_allowed_packet`` the server cannot hash: it is read here, one part after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    Row,
    Select,
    Table,
    TableValuedAlias,
    Text,
    TextClause,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import mysql as types
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from migrator.database import mysql
from migrator.database.engine import PATIENCE
from migrator.database.guids import GuidBytes, guid_bytes
from migrator.database.types import UtcDateTime, byte_length, rounded_up
from migrator.errors import RowRefused, StoreError, StoreUnavailable
from migrator.nservicebus.timeouts import content_hash
from migrator.stores.sql.dialects.base import Dialect, beginning_with, due_order
from migrator.stores.sql.legacy_table import LegacyTable
from migrator.stores.sql.moving import Move, Moved, fitting, in_ledger, ledger_values, wanted

_NAME: Final = "mysql"
_LONG: Final = timedelta(minutes=10)
_REST_OF_ROW_BYTES: Final = 4096
"""Of a statement that inserts one row, beside its body and headers."""
_ESTIMATE: Final = text(
    "SELECT table_rows FROM information_schema.tables "
    "WHERE table_schema = database() AND table_name = :name"
)
_ENGINE: Final = text(
    "SELECT engine FROM information_schema.tables "
    "WHERE table_schema = database() AND table_name = :name"
)
_DUPLICATE: Final = re.compile(r"1062.* for key '(.*)'")
_INDEXES: Final = text(
    "SELECT index_name, column_name FROM information_schema.statistics "
    "WHERE table_schema = database() AND table_name = :name ORDER BY index_name, seq_in_index"
)
FITS_ANYWHERE_BYTES: Final = 512 * 1024
"""So little is not asked about: servers come with 1 MiB or more."""
_AS_UTF8: Final = 3
"""A byte of text in another character set is at most so many in UTF-8."""
_KEY_CHARACTERS: Final = text(
    "SELECT character_set_name AS characters, collation_name AS collation "
    "FROM information_schema.columns "
    "WHERE table_schema = database() AND table_name = :table AND column_name = :column"
)


class Naming:
    """``:ids`` as a table ``picked``: ``row_index``, which counts from 1, and ``id``."""

    def __init__(self, characters: str = "ascii", collation: str = "") -> None:
        """Read ids as text of these *characters*, and compare them by *collation*.

        A key's own characters are at least ASCII, so it is not converted to be compared with it.
        Without *collation* the key's own counts: it gives way to none but another one of the same
        character set, and then the two do not mix.
        """
        kind = f"VARCHAR(500) CHARACTER SET {characters}"
        self.rows: Final = f"'$[*]' COLUMNS (row_index FOR ORDINALITY, id {kind} PATH '$')"
        """What ``json_table`` makes of ``:ids``."""
        self.picked: Final[TableValuedAlias] = func.json_table(
            bindparam("ids", type_=Text()), literal_column(self.rows)
        ).table_valued(column("row_index", BigInteger), column("id", Text), name="picked")
        self._collation = f" COLLATE {collation}" if collation else ""

    def key(self, legacy: LegacyTable) -> str:
        """Return an id of the list as the table's key has it."""
        is_bytes = isinstance(legacy.table.c.Id.type, GuidBytes)
        return "unhex(picked.id)" if is_bytes else f"picked.id{self._collation}"


GUIDS: Final = Naming()
"""For GUIDs, and for all other ids of ASCII letters."""


class MysqlDialect(Dialect):
    """Moves with three statements; speaks to MariaDB and to MySQL."""

    name = _NAME
    has_schemas = False
    may_fold_names = True
    hashes_all = False
    """Not what has more bytes than ``max_allowed_packet``, should that be lowered."""
    name_max_bytes = 63
    """There may be 64 characters; what suits PostgreSQL suits here."""

    def move(self, connection: Connection, move: Move) -> Moved | None:
        """Move rows; those locked by others are skipped."""
        legacy, request = move.legacy, move.request
        order = ["Id"] if request.only is not None else due_order(legacy)
        index = index_on(connection, legacy.table, order)
        picked = connection.execute(self.picking(move, index)).all()
        rows = fitting(picked, request.max_bytes)
        if not rows:
            return None
        named, ids = naming(connection, legacy, [row.Id for row in rows])
        values = self.copying(move, named)
        if large := hashed_here(connection, legacy, rows):
            place = named.picked.c.row_index
            values["content_hash"] = case(large, value=place, else_=values["content_hash"])
        copied = connection.execute(
            insert(move.ledger.timeout).from_select(
                list(values), self.copied(legacy, values, named)
            ),
            ids,
        )
        removed = connection.execute(self.removing(connection, legacy, named), ids)
        if not copied.rowcount == removed.rowcount == len(rows):
            raise StoreError(
                f"{legacy.source}: {len(rows)} rows were picked, {copied.rowcount} copied and "
                f"{removed.rowcount} removed; rolled back"
            )
        return Moved(
            size=len(rows),
            body_bytes=sum(row.body_bytes for row in rows),
            first_due=rows[0].Time,
            last_due=rows[-1].Time,
            last_id=rows[-1].Id,
        )

    def picking(self, move: Move, index: str | None) -> Select[Any]:
        """Return what locks the rows that are wanted, soonest first, with their sizes."""
        legacy, request = move.legacy, move.request
        row = legacy.table.c
        query = (
            select(
                row.Id,
                row.Time,
                byte_length(row.State).label("body_bytes"),
                byte_length(row.Headers).label("headers_bytes"),
            )
            .where(*wanted(legacy, request), in_ledger(legacy, move.ledger).is_(None))
            .order_by(row.Time, row.Id)
            .limit(request.max_rows)
            .with_for_update(skip_locked=True)
        )
        return walking(index, query, legacy.table)

    def copying(self, move: Move, named: Naming = GUIDS) -> dict[str, ColumnElement[Any]]:
        """Return the ledger's columns, and what is copied into them."""
        row = move.legacy.table.c
        return ledger_values(move, row) | {
            "row_index": named.picked.c.row_index - 1,
            "content_hash": self.content_hash(row.Headers, row.State),
        }

    def copied(
        self,
        legacy: LegacyTable,
        values: Mapping[str, ColumnElement[Any]],
        named: Naming = GUIDS,
    ) -> Select[Any]:
        """Return *values* of the rows called ``:ids``, each with its place among them."""
        key: ColumnElement[str] = literal_column(named.key(legacy))
        return (
            select(*values.values())
            .select_from(named.picked.join(legacy.table, legacy.table.c.Id == key))
            # the few ids first, then each row by its key, whatever statistics say
            .prefix_with("STRAIGHT_JOIN", dialect=_NAME)
        )

    def removing(
        self, connection: Connection, legacy: LegacyTable, named: Naming = GUIDS
    ) -> TextClause:
        """Return what removes the rows called ``:ids``, each by its key.

        A small table would otherwise be read as a whole, and wait for the rows of another claim,
        which may be waiting for ours; a DELETE takes no hints.
        """
        preparer, key = connection.dialect.identifier_preparer, legacy.table.c.Id.name
        table, column = preparer.format_table(legacy.table), preparer.quote(key)
        join = f"STRAIGHT_JOIN {table} ON {table}.{column} = {named.key(legacy)}"
        plain = f"DELETE {table} FROM json_table(__ids, {named.rows}) AS picked {join}"
        return text(plain.replace("%%", "%").replace(":", r"\:").replace("__ids", ":ids"))

    def insert_absent(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> Collection[str]:
        """Look, waiting for whoever is just removing one of them, and insert the others.

        What is inserted is called by a GUID in lower case, so letter case is all that may differ.
        """
        key, index = table.c.Id, index_on(connection, table, ["Id"])
        looking = select(key).where(key.in_([row["Id"] for row in rows])).with_for_update()
        found = connection.scalars(walking(index, looking, table))
        there = {each.casefold() for each in found}
        absent = {row["Id"]: row for row in rows if row["Id"].casefold() not in there}
        values = [{**row, "Time": _not_before(row["Time"], table)} for row in absent.values()]
        try:
            if values:
                _demand_room(connection, values)
                connection.execute(insert(table), values)
        except IntegrityError as exc:
            if names_index(exc, index):
                raise StoreUnavailable(f"somebody else wrote a row of {table.name} too") from exc
            raise
        return list(absent)

    # ── content ─────────────────────────────────────────────────────────────────────────────

    def content_hash(
        self, headers: ColumnElement[Any], body: ColumnElement[Any]
    ) -> ColumnElement[str]:
        """Return the hash; see ``Dialect``. Sessions speak utf8mb4, and so does the text."""
        utf8 = cast(func.coalesce(cast(headers, Text), ""), LargeBinary)
        zero: ColumnElement[bytes] = literal_column("0x00")
        return func.sha2(func.concat(utf8, zero, func.coalesce(body, "")), 256)

    def body_hash(self, body: ColumnElement[Any]) -> ColumnElement[str]:
        """Return the hash; see ``Dialect``."""
        return func.sha2(func.coalesce(body, ""), 256)

    # ── patience, locks ─────────────────────────────────────────────────────────────────────

    def wait_at_most(self, connection: Connection, patience: timedelta) -> None:
        """Bound locks, by a second at least, and what the server can bound of statements."""
        mysql.for_now(
            connection, mysql.Patience(lock=patience, statement=patience, idle=PATIENCE.idle)
        )

    def allow_long(self, connection: Connection) -> None:
        """Allow ten minutes."""
        mysql.for_now(
            connection, mysql.Patience(lock=PATIENCE.lock, statement=_LONG, idle=PATIENCE.idle)
        )

    def read_only(self, engine: Engine) -> Engine:
        """Have transactions read one snapshot; the server refuses what would write."""
        return mysql.read_only(engine)

    def lock_table(self, connection: Connection, quoted_name: str) -> None:
        """Lock it, also against the end of the transaction; given back with the connection."""
        mysql.lock_table(connection, quoted_name)

    # ── facts ───────────────────────────────────────────────────────────────────────────────

    def estimated_rows(self, connection: Connection, legacy: LegacyTable) -> int:
        """Return what the server's statistics say, which may be wrong by a third."""
        return int(connection.execute(_ESTIMATE, {"name": legacy.table.name}).scalar() or 0)

    def obstacle(self, connection: Connection, legacy: LegacyTable) -> str | None:
        """Return that the table knows no transactions, should that be so."""
        engine = connection.execute(_ENGINE, {"name": legacy.table.name}).scalar()
        if engine == "InnoDB":
            return None
        return (
            f"its engine is {engine}, which has no transactions: a claim could lose or double "
            "rows; ALTER TABLE … ENGINE=InnoDB first"
        )

    def folds_names(self, connection: Connection) -> bool:
        """Return whether the server keeps names of tables in lower case, as it does on Windows."""
        return bool(connection.scalar(text("SELECT @@lower_case_table_names")))

    # ── making tables ───────────────────────────────────────────────────────────────────────

    def column_types(self) -> Mapping[str, TypeEngine[Any]]:
        """Return the types of the vendor's script (reference 1.2)."""
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
        """Return the types of NHibernate's MySQL dialects, with an Endpoint that can be indexed."""
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
        """Return what stands at the end of the vendor's script."""
        return {"mysql_default_charset": "ascii", "mysql_engine": "InnoDB"}


def _not_before(due_at: datetime, table: Table) -> datetime:
    """Return when a row is due as its column can say it: not sooner; MariaDB would cut it off."""
    kind = table.c.Time.type
    digits = kind.fraction_digits if isinstance(kind, UtcDateTime) else 0
    return rounded_up(due_at, timedelta(microseconds=10 ** (6 - digits)))


def _demand_room(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Return when each row fits into a statement; the server hangs up on one that does not.

    Raises:
        RowRefused: One does not, and never will.
    """
    needed = max(map(_written_bytes, rows))
    if needed <= FITS_ANYWHERE_BYTES:
        return
    room = room_of(connection)
    if needed > room:
        raise RowRefused(
            f"a row of {needed} bytes in a statement does not fit into the server's "
            f"max_allowed_packet of {room}"
        )


def _written_bytes(row: Mapping[str, Any]) -> int:
    """Return the most that a statement takes which inserts *row*: bytes are written as hex."""
    headers = row["Headers"]
    return 2 * len(row["State"] or b"") + 2 * len(headers.encode()) + _REST_OF_ROW_BYTES


def index_on(connection: Connection, table: Table, keys: Sequence[str]) -> str | None:
    """Return an index that begins with the columns *keys*; None: the table has none (any more)."""
    names = [table.c[key].name for key in keys]
    found = connection.execute(_INDEXES, {"name": table.name})
    return beginning_with([(index, column) for index, column in found], names)


def walking(index: str | None, query: Select[Any], table: Table) -> Select[Any]:
    """Return *query* with no choice but to look rows up by *index*; None: as the planner likes."""
    if index is None:
        return query
    quoted = "`" + index.replace("`", "``").replace("%", "%%%%") + "`"
    return query.with_hint(table, f"FORCE INDEX ({quoted})", "mysql")


def names_index(exc: IntegrityError, index: str | None) -> bool:
    """Return whether a row was there already, by *index*; MySQL puts the table before its name."""
    found = _DUPLICATE.search(str(exc.orig))
    return found is not None and found[1].endswith(index or "PRIMARY")


def room_of(connection: Connection) -> int:
    """Return how many bytes a statement, or a value, may have."""
    return int(connection.scalar(text("SELECT @@max_allowed_packet")) or 0)


def hashed_here(
    connection: Connection, legacy: LegacyTable, rows: Sequence[Row[Any]]
) -> Mapping[int, str]:
    """Return the content's hash of each row that is too large for the server, by place, from 1.

    *rows* are locked, and say ``Id``, ``body_bytes`` and ``headers_bytes``. Mostly empty.
    """
    needed = {
        place: row.body_bytes + _AS_UTF8 * row.headers_bytes + 1
        for place, row in enumerate(rows, start=1)
    }
    if max(needed.values(), default=0) <= FITS_ANYWHERE_BYTES:
        return {}
    room = room_of(connection)
    return {
        place: _hash_of(connection, legacy, rows[place - 1].Id)
        for place, size in needed.items()
        if size > room
    }


def _hash_of(connection: Connection, legacy: LegacyTable, id_: str) -> str:
    row = legacy.table.c
    headers, body = (
        connection.scalar(select(part).where(row.Id == id_)) for part in (row.Headers, row.State)
    )
    return content_hash(headers, body)


def naming(
    connection: Connection, legacy: LegacyTable, ids: Sequence[str]
) -> tuple[Naming, dict[str, Any]]:
    """Return how rows called *ids* are named, and the parameters for it."""
    if isinstance(legacy.table.c.Id.type, GuidBytes):
        return GUIDS, {"ids": json.dumps([(guid_bytes(each) or b"").hex() for each in ids])}
    listed = {"ids": json.dumps(ids)}
    if all(each.isascii() for each in ids):
        return GUIDS, listed
    names = {"table": legacy.table.name, "column": legacy.table.c.Id.name}
    found = connection.execute(_KEY_CHARACTERS, names).one()
    return Naming(found.characters, found.collation), listed
