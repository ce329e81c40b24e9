"""The ledger's tables as SQLAlchemy Core sees them; names and columns are public.

They are in their own schema, or have a prefix (``LedgerNames``).

Rules of this file: ``alembic/versions`` must lead to exactly these tables (a test compares them). A
batch carries the state of all its rows; a row has its own state only where it differs. Source:
design section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import sqlalchemy as sa

from migrator.database.engine import reading, retrying_read, writing
from migrator.database.portable import prefer_indexes
from migrator.database.types import (
    BYTES,
    LINE,
    LONG_TEXT,
    AsciiText,
    KeyText,
    UtcDateTime,
    shown_text,
)
from migrator.errors import LedgerError
from migrator.ledger.states import OPEN, BatchState, RowState
from migrator.nservicebus.conversion import Reason
from migrator.nservicebus.timeouts import Lane

DEFAULT_SCHEMA: Final = "migrator"
PREFIX: Final = "migrator_"
_KEEPS_ANY_BYTES: Final = frozenset({"postgresql", "sqlite"})
"""A text column may contain bytes that are not text."""
_WITH_SCHEMAS: Final = frozenset({"postgresql", "mssql"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerNames:
    """Schema and prefix of all ledger tables; exactly one of the two is used."""

    dialect: str
    schema: str | None
    prefix: str

    def table(self, noun: str) -> str:
        return self.prefix + noun

    def path(self, noun: str) -> str:
        return f"{self.schema}.{self.table(noun)}" if self.schema else self.table(noun)


def ledger_names(dialect: str, schema: str = DEFAULT_SCHEMA) -> LedgerNames:
    """*schema* counts only where the dialect uses one."""
    if dialect in _WITH_SCHEMAS:
        return LedgerNames(dialect=dialect, schema=schema, prefix="")
    return LedgerNames(dialect=dialect, schema=None, prefix=PREFIX)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def names_for(engine: sa.Engine, schema: str = DEFAULT_SCHEMA) -> LedgerNames:
    return ledger_names(engine.dialect.name, schema)


BATCH_TIMES: Final = tuple(f"{state}_at" for state in BatchState)
"""One column per state: when the batch entered it last."""

INCOMPLETE: Final = frozenset({*OPEN, BatchState.DOUBTFUL, BatchState.PARKED})
"""States in which a row is neither at its destination nor back in its store."""

NO_TOKEN: Final = 0
"""A token no lease ever has: the owner of the lane takes the batch over."""

_LANE: Final = "lane."
STORE_ID_CHARS: Final = 500
"""MySQL only: its indexes end at 3072 bytes, four of them per character."""
OPEN_STORE_ID: Final = "open_store_id"
"""The column of the unique index where the dialect has no partial index.

MariaDB and MySQL leave NULL out of an index, Oracle a key that is all NULL. SQL Server does not:
there, a row that is not open has its own id in it, which is never another row's store id.
"""
OPEN_SOURCE: Final = "open_source"
"""Oracle only."""
_IF_OPEN: Final = (
    f"case when state is null or state in ('{RowState.QUARANTINED}', '{RowState.DISPATCHED}') then "
)
_OPEN_STORE_IDS: Final = {
    "mysql": f"{_IF_OPEN}store_id end",
    "mssql": f"{_IF_OPEN}store_id else N'#' + cast(id as nvarchar(20)) end",
    "oracle": f"{_IF_OPEN}store_id end",
}
_Items = list[sa.schema.SchemaItem]
_ID: Final = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # only INTEGER counts up there


def _id_column(names: LedgerNames) -> sa.Column[Any]:
    counting = [sa.Identity()] if names.dialect == "oracle" else []
    return sa.Column("id", _ID, *counting, primary_key=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTables:
    names: LedgerNames
    metadata: sa.MetaData
    ledger: sa.Table
    """One row: the id that names the queues, and the database it was created in."""
    run: sa.Table
    batch: sa.Table
    timeout: sa.Table
    """Every row ever claimed, with body and headers, until it is purged."""
    lease: sa.Table
    """One row per lane, of hand-over or of a dispatcher."""
    held_destination: sa.Table
    event: sa.Table

    def is_open(self, timeout: sa.FromClause, store_id: Any) -> sa.ColumnElement[bool]:
        """Return the condition under which timeout *store_id* may not be claimed again.

        It equals the unique index's condition, with literals, so that planners see that it is the
        same. Other conditions on the state deliberately do not match: the index has nearly all
        rows, and a planner without statistics would read all of it to find those of one batch.
        """
        if OPEN_STORE_ID in timeout.c:
            return sa.and_(timeout.c[OPEN_STORE_ID] == store_id)
        return sa.and_(timeout.c.store_id == store_id, _is_open(timeout))

    def are_open(
        self, timeout: sa.FromClause, store_ids: Collection[str]
    ) -> sa.ColumnElement[bool]:
        if OPEN_STORE_ID in timeout.c:
            return sa.and_(timeout.c[OPEN_STORE_ID].in_(store_ids))
        return sa.and_(timeout.c.store_id.in_(store_ids), _is_open(timeout))

    def shown(self, name: str) -> sa.ColumnElement[Any]:
        row = self.timeout.c
        if self.names.dialect not in _KEEPS_ANY_BYTES:
            return row[name]
        is_odd = row.reason == sa.literal_column(f"'{Reason.UNPROCESSABLE}'")
        return sa.case((is_odd, shown_text(row[name])), else_=row[name]).label(name)

    def lease_name(self, lane: int) -> str:
        return f"{_LANE}{lane}"

    def lane_of(self, lease_name: str) -> Lane:
        return Lane(int(lease_name.removeprefix(_LANE)))


@cache  # they never change
def build_tables(names: LedgerNames) -> LedgerTables:
    metadata = sa.MetaData(schema=names.schema)
    columns = {
        "ledger": _ledger(),
        "run": _run(names),
        "batch": _batch(names),
        "timeout": _timeout(names),
        "lease": _lease(),
        "held_destination": _held_destination(names),
        "event": _event(names),
    }
    tables = {
        noun: sa.Table(names.table(noun), metadata, *items) for noun, items in columns.items()
    }
    found = LedgerTables(names=names, metadata=metadata, **tables)
    _add_indexes(found)
    return found


def _is_open(timeout: sa.FromClause) -> sa.ColumnElement[bool]:
    """Return the condition of an open row, which no other condition on its state implies."""
    open_states: list[sa.ColumnElement[str]] = [
        sa.literal_column(f"'{state}'") for state in ("", RowState.QUARANTINED, RowState.DISPATCHED)
    ]
    return sa.func.coalesce(timeout.c.state, open_states[0]).in_(open_states)


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, LONG_TEXT, nullable=nullable)


def _line(name: str) -> sa.Column[Any]:
    return sa.Column(name, LINE, nullable=True)


def _key(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, KeyText(), nullable=nullable)


def _time(name: str, *, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(name, UtcDateTime(), nullable=nullable)


def _ledger() -> _Items:
    return [
        sa.Column("id", AsciiText(40), primary_key=True),
        _key("identity"),
        _time("created_at", nullable=False),
    ]


def _run(names: LedgerNames) -> _Items:
    return [
        _id_column(names),
        _key("endpoint"),
        _key("source"),
        _text("options"),
        _key("tool_version"),
        _key("status"),
        _time("begun_at", nullable=False),
        _time("ended_at"),
    ]


def _batch(names: LedgerNames) -> _Items:
    return [
        _id_column(names),
        sa.Column("run_id", _ID, sa.ForeignKey(f"{names.path('run')}.id"), nullable=False),
        _key("endpoint"),
        _key("source"),
        sa.Column("lane", sa.Integer, nullable=False),
        _key("mode"),
        _key("state"),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("purged", sa.Integer, nullable=False, server_default="0"),
        sa.Column("body_bytes", sa.BigInteger, nullable=False),
        _time("first_due"),
        _time("last_due"),
        _key("owner", nullable=True),
        sa.Column("lease_token", sa.BigInteger, nullable=False),
        *(_time(name) for name in BATCH_TIMES),
        # of a document store only, once `db adopt` gave the ledger another id: the one by which
        # evidence of what was begun before is found
        _key("ledger_id", nullable=True),
        # of a parked batch only: the queue that its rows wait for
        sa.Column("destination", KeyText(STORE_ID_CHARS), nullable=True),
    ]


def _timeout(names: LedgerNames) -> _Items:
    return [
        _id_column(names),
        _key("source"),
        _key("endpoint"),
        sa.Column("store_id", KeyText(STORE_ID_CHARS), nullable=False),
        # no foreign key: checking it row by row takes a quarter of a claim, and only claims,
        # which have just written the batch, fill this column
        sa.Column("batch_id", _ID, nullable=False),
        sa.Column("row_index", sa.Integer, nullable=False),
        _line("destination"),
        _line("saga_id"),
        _time("due", nullable=False),
        sa.Column("body", BYTES, nullable=True),
        _text("headers", nullable=True),
        _line("persistence_version"),
        _key("content_hash"),
        _key("state", nullable=True),
        _key("reason", nullable=True),
        _text("reason_detail", nullable=True),
        # of a document store: what it takes to restore the document, and what becomes of a row
        # whose document is being put back; of a shared table, how the row spelled its owner;
        # of a due column in local time, what that had
        _text("store_version", nullable=True),
        _text("store_extra", nullable=True),
        _line("going_back"),
        *_open_columns(names.dialect),
    ]


def _open_columns(dialect: str) -> list[sa.Column[Any]]:
    if dialect not in _OPEN_STORE_IDS:
        return []
    is_kept = dialect != "oracle"  # which keeps none of these
    computed = sa.Computed(_OPEN_STORE_IDS[dialect], persisted=is_kept)
    found: list[sa.Column[Any]] = [sa.Column(OPEN_STORE_ID, KeyText(STORE_ID_CHARS), computed)]
    if dialect == "oracle":
        source = sa.Computed(f"{_IF_OPEN}source end", persisted=False)
        found.append(sa.Column(OPEN_SOURCE, KeyText(), source))
    return found


def _open_key(table: sa.Table) -> list[sa.Column[Any]]:
    """With the source first, a planner may read all rows of it to find a hundred ids."""
    return [
        table.c[OPEN_STORE_ID if OPEN_STORE_ID in table.c else "store_id"],
        table.c[OPEN_SOURCE if OPEN_SOURCE in table.c else "source"],
    ]


def _add_indexes(tables: LedgerTables) -> None:
    names, batch, timeout, lease = tables.names, tables.batch.c, tables.timeout, tables.lease.c
    is_open, has_state = _is_open(timeout), timeout.c.state.is_not(None)
    sa.Index(names.table("batch_lane_state"), batch.lane, batch.state)
    sa.Index(names.table("batch_run"), batch.run_id)
    sa.Index(
        names.table("batch_destination"),
        batch.destination,
        **_only(names, batch.destination.is_not(None), "mssql", "postgresql", "sqlite"),
    )
    sa.Index(
        names.table("timeout_open"),
        *_open_key(timeout),
        unique=True,
        **_only(names, is_open, "postgresql", "sqlite"),
    )
    sa.Index(names.table("timeout_batch"), timeout.c.batch_id, timeout.c.row_index)
    sa.Index(
        names.table("timeout_state"),
        timeout.c.state,
        timeout.c.id,
        **_only(names, has_state, "mssql", "postgresql", "sqlite"),
    )
    # SQL Server counts NULL as a value, and most lanes serve no source
    is_serving = lease.serves.is_not(None)
    of_serving = _only(names, is_serving, "mssql")
    sa.Index(names.table("lease_serves"), lease.serves, unique=True, **of_serving)
    sa.Index(names.table("event_batch"), tables.event.c.batch_id)


def _only(names: LedgerNames, rows: sa.ColumnElement[bool], *dialects: str) -> dict[str, Any]:
    """Limit an index to *rows* on *dialects*; SQLAlchemy loads every dialect that is named."""
    return {f"{names.dialect}_where": rows} if names.dialect in dialects else {}


def _lease() -> _Items:
    return [
        sa.Column("name", AsciiText(100), primary_key=True),
        _key("owner", nullable=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        _time("until", nullable=False),
        _text("doing", nullable=True),
        _time("renewed_at", nullable=False),
        _key("serves", nullable=True),
        _key("position", nullable=True),
    ]


def _held_destination(names: LedgerNames) -> _Items:
    # SQL Server sorts a table by a key of 900 bytes at most; another index may have 1700
    unsorted: dict[str, Any] = {"mssql_clustered": False} if names.dialect == "mssql" else {}
    return [
        sa.Column("source", KeyText(), nullable=False),
        sa.Column("destination", KeyText(STORE_ID_CHARS), nullable=False),
        _key("endpoint"),
        _key("reason"),
        _text("detail"),
        sa.Column("tries", sa.Integer, nullable=False),
        _time("since", nullable=False),
        _time("next_try_at", nullable=False),
        sa.PrimaryKeyConstraint("source", "destination", **unsorted),
    ]


def _event(names: LedgerNames) -> _Items:
    return [
        _id_column(names),
        _time("at", nullable=False),
        _key("kind"),
        sa.Column("batch_id", _ID, nullable=True),
        _key("endpoint", nullable=True),
        _key("actor"),
        _text("detail"),
    ]


def progress_view(names: LedgerNames) -> sa.Table:
    """One row per endpoint and effective state: batch sizes, corrected by rows that differ."""
    return sa.Table(
        names.table("progress"),
        sa.MetaData(schema=names.schema),
        sa.Column("endpoint", sa.Text),
        sa.Column("state", sa.Text),
        sa.Column("rows", sa.Integer),
    )


class LedgerPart:
    def __init__(self, engine: sa.Engine, tables: LedgerTables) -> None:
        self._engine = engine
        self._tables = tables

    def _reading(self, doing: str) -> AbstractContextManager[sa.Connection]:
        return reading(self._engine, LedgerError, doing=doing)

    def _writing(self, doing: str) -> AbstractContextManager[sa.Connection]:
        return writing(self._engine, LedgerError, doing=doing)

    def _read(
        self, query: sa.Select[Any], *, doing: str, by_index: bool = False
    ) -> Sequence[sa.Row[*tuple[Any, ...]]]:
        """Repeat the query a little later while the database is unreachable.

        *by_index*: it finds few of many rows; see ``prefer_indexes``.
        """

        def read(connection: sa.Connection) -> Sequence[sa.Row[*tuple[Any, ...]]]:
            if by_index:
                prefer_indexes(connection)
            return connection.execute(query).all()

        return retrying_read(self._engine, read, failed=LedgerError, doing=doing)
