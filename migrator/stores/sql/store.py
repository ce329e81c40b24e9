"""A store whose timeouts are rows of tables: what all layouts have in common.

``sql_persistence`` has a table for each endpoint, ``nhibernate`` one that they share. Rules of this
file: nothing is changed, no body is read, and no lock outlives a call. A whole table is read in
chunks, and the number of counted rows is limited.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

import sqlalchemy as sa

from migrator.database.engine import reading, retrying_read, writing
from migrator.database.failures import in_halves, is_of_row
from migrator.database.types import UtcDateTime
from migrator.errors import StoreError, StoreUnavailable
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.conversion import error_text, expires_at
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.ports import DUE_SPANS, NEVER, DueTime, StoreRemark, TableCount, by_span, until
from migrator.stores.requests import ScannedRow, SummaryRequest
from migrator.stores.sql.claims import trial_claim
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.legacy_table import EARLIEST, LATEST, LegacyTable
from migrator.stores.sql.local_time import due_from, due_of
from migrator.stores.sql.moving import id_text
from migrator.stores.sql.summary import TableSummary, scanned, scanned_rows
from migrator.stores.sql.vendor_runs import unfinished_vendor_runs

T = TypeVar("T")

CHUNK_ROWS: Final = 2000
MOST_ROWS: Final = 200_000
_SAMPLED: Final = 40
_LOCKS: Final = timedelta(seconds=0.5)
"""How long a query waits for a table that another transaction has locked."""
_NEVER: Final = sa.literal_column("1") == sa.literal_column("0")
"""A condition in every database; Oracle has no ``false``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    table: sa.Table
    constants: Mapping[str, str] = field(default_factory=dict)
    """Values of further columns in every row of the endpoint."""
    has_compact_headers: bool = False
    time_zone: str | None = None
    """Of written due times; None: UTC."""


class TableStore(ABC):
    """Implements ``Store``; a layout knows the tables, and whose rows are in them."""

    kind: ClassVar[str]
    shares_table: ClassVar[bool]

    def __init__(self, engine: sa.Engine, ledger: LedgerTables) -> None:
        self._engine = engine
        self._ledger = ledger
        self._dialect = dialect_for(engine.dialect.name)
        self._kept_names: dict[tuple[str | None, str], tuple[str | None, str]] = {}

    # ── the layout ──────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def endpoints(self) -> Sequence[StoreEndpoint]: ...

    @abstractmethod
    def find(self, name: str) -> StoreEndpoint: ...

    @abstractmethod
    def source_of(self, name: str) -> str: ...

    @abstractmethod
    def legacy_table(self, source: str) -> LegacyTable:
        """Raise ``StoreError`` if the table is gone or unfit, or *source* is another store's."""

    @abstractmethod
    def location(self, source: str) -> tuple[str | None, str]:
        """Return schema (None: there is none) and table name of *source*."""

    @abstractmethod
    def blank(self, source: str) -> Blank: ...

    @abstractmethod
    def read_anew(self, endpoint: StoreEndpoint) -> None: ...

    @abstractmethod
    def remarks(self) -> Sequence[StoreRemark]: ...

    def expected(self, name: str) -> StoreEndpoint:
        return StoreEndpoint(name=EndpointName(name), source=self.source_of(name))

    # ── rows ────────────────────────────────────────────────────────────────────────────────

    def scan(self, endpoint: StoreEndpoint) -> Iterator[Sequence[ScannedRow]]:
        """In the order of the primary key. Without a ledger, no row counts as claimed."""
        legacy = self.legacy_table(endpoint.source)
        ledger = self._ledger if self._has_ledger() else None
        last_id: str | None = None
        while True:
            chunk = _chunk(legacy, ledger, last_id)
            rows, odd, asked = self._readable(legacy, chunk)
            ids = asked or [row.id for row in rows]
            if ids:
                yield [*scanned_rows(rows), *self._unread(legacy, ledger, odd)]
            if len(ids) < CHUNK_ROWS:
                return
            last_id = ids[-1]

    @contextmanager
    def summary(self, endpoint: StoreEndpoint, request: SummaryRequest) -> Iterator[TableSummary]:
        """It reads a snapshot, except on SQL Server, where the database may forbid that."""
        legacy = self.legacy_table(endpoint.source)
        ledger = self._ledger if self._has_ledger() else None
        is_one_moment = self._dialect.name != "mssql"
        engine = self._dialect.read_only(self._engine) if is_one_moment else self._engine
        with reading(engine, StoreError, doing=f"counting the rows of {legacy.source}") as found:
            self._dialect.allow_long(found)
            self._dialect.bound_locks(found, _LOCKS)
            self._dialect.prefer_hashing(found)
            yield TableSummary(found, legacy, ledger, request)

    def due_times(self, endpoint: StoreEndpoint, now: datetime) -> Sequence[DueTime]:
        legacy = self.legacy_table(endpoint.source)
        row, due = legacy.table.c, legacy.table.c.Time
        if self._dialect.name != "postgresql" or getattr(due.type, "with_zone", False):
            return ()
        all_rows = sa.select(
            sa.type_coerce(due, UtcDateTime(with_zone=False)).label("stored"),
            due_of(row).label("due_at"),
            row.Headers.label("headers_text"),
        ).where(*legacy.is_owned, due.between(EARLIEST, LATEST))
        parts = (
            all_rows.order_by(due.asc()),
            all_rows.where(due_from(row, now)).order_by(due.asc()),
            all_rows.order_by(due.desc()),
        )
        found: list[DueTime] = []
        for part in parts:
            rows, *_ = self._readable(legacy, part.limit(_SAMPLED))
            if not rows and not found:
                break
            found += [
                DueTime(
                    stored=row.stored, due_at=row.due_at, expires_at=expires_at(row.headers_text)
                )
                for row in rows
            ]
        return found

    def trial_claim(self, endpoint: StoreEndpoint) -> None:
        trial_claim(self._engine, self._ledger, self.legacy_table(endpoint.source), endpoint)

    def unfinished_vendor_runs(self) -> Sequence[str]:
        return self._asked("looking for runs of the vendor's tool", unfinished_vendor_runs)

    # ── measuring ───────────────────────────────────────────────────────────────────────────

    def count(
        self,
        source: str,
        now: datetime,
        *,
        limits: Sequence[datetime] = (),
        most: int = MOST_ROWS,
    ) -> TableCount:
        legacy = self.legacy_table(source)
        doing = f"counting the rows of {source}"
        ends = sorted({*(now + span for _, span in DUE_SPANS), *limits})
        with reading(self._engine, StoreError, doing=doing) as connection:
            self._dialect.bound_locks(connection, _LOCKS)
            found = _by_end(connection, legacy, ends, most)
            rows = sum(found.values())
            is_all = rows <= most
            if not is_all:
                rows = max(rows, self._dialect.estimated_rows(connection, legacy))
        return TableCount(
            rows=rows, is_all=is_all, due=by_span(found, now), until=until(found, limits)
        )

    def access_latency_s(self, source: str, *, timeout: timedelta) -> float:
        """Return the seconds until rows of *source* may be deleted, without deleting any.

        A wait longer than about *timeout* is cut, and then is the answer.
        """
        legacy = self.legacy_table(source)
        asked_s = time.monotonic()
        is_let_in = False
        try:
            with writing(self._engine, StoreError, doing=f"asking for {source}") as connection:
                self._dialect.wait_at_most(connection, timeout)
                is_let_in = True
                connection.execute(sa.delete(legacy.table).where(_NEVER))
        except StoreUnavailable:
            if not is_let_in:
                raise
            return max(time.monotonic() - asked_s, timeout.total_seconds())
        return time.monotonic() - asked_s

    def demand_readable(self, source: str) -> None:
        """Raise ``StoreError`` unless rows of *source* are readable, after a short lock wait."""
        legacy = self.legacy_table(source)
        self._read(legacy, sa.select(legacy.table.c.Id).where(_NEVER))

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _asked(self, doing: str, work: Callable[[sa.Connection], T]) -> T:
        return retrying_read(self._engine, work, failed=StoreError, doing=doing)

    def _as_kept(self, schema: str | None, table: str) -> tuple[str | None, str]:
        """Return the names of a table in the database's spelling.

        One table must never have two sources, or a row could be claimed under each.
        """
        if not self._dialect.looks_names_up:
            return schema, table
        if (schema, table) not in self._kept_names:
            doing = "asking how names of tables are spelled"
            of, name = self._asked(doing, lambda c: self._dialect.as_kept(c, schema, table))
            if name is None:
                return of or schema, table  # it may be created yet, and is asked for again
            self._kept_names[schema, table] = of, name
        return self._kept_names[schema, table]

    def _read(self, legacy: LegacyTable, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        def read(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
            self._dialect.bound_locks(connection, _LOCKS)
            return connection.execute(statement).all()

        return self._asked(f"reading {legacy.source}", read)

    def _readable(
        self, legacy: LegacyTable, query: sa.Select[Any]
    ) -> tuple[Sequence[sa.Row[Any]], Mapping[str, Exception], Sequence[str]]:
        """Return rows of the table that *query* finds, and by id the errors of unreadable ones.

        Where there are such, the ids of all come last, in the order of *query*.
        """
        try:
            return self._read(legacy, query), {}, ()
        except Exception as exc:
            if not is_of_row(exc):
                raise
        key, called = legacy.table.c.Id, id_text(legacy).label("id")
        query_ids = query.with_only_columns(called)
        ids = [row.id for row in self._read(legacy, query_ids)]

        def read(some: Sequence[str]) -> Sequence[sa.Row[Any]]:
            return self._read(legacy, query.where(key.in_(some)))

        rows, odd = in_halves(ids, read)
        return rows, odd, ids

    def _unread(
        self, legacy: LegacyTable, ledger: LedgerTables | None, odd: Mapping[str, Exception]
    ) -> Sequence[ScannedRow]:
        if not odd:
            return ()
        unread = scanned(legacy, ledger, reads_text=False).where(legacy.table.c.Id.in_(list(odd)))
        told = [
            replace(row, why_unreadable=error_text(odd[row.id]))
            for row in scanned_rows(self._readable(legacy, unread)[0])
        ]
        lost = odd.keys() - {row.id for row in told}  # not even when it is due can be read
        untold = [ScannedRow(id=each, why_unclaimable=error_text(odd[each])) for each in lost]
        return [*told, *untold]

    def _has_ledger(self) -> bool:
        table = self._ledger.timeout
        with reading(self._engine, StoreError, doing="looking for the ledger") as connection:
            return sa.inspect(connection).has_table(table.name, schema=table.schema)


def _chunk(legacy: LegacyTable, ledger: LedgerTables | None, last_id: str | None) -> sa.Select[Any]:
    key = legacy.table.c.Id
    found = scanned(legacy, ledger)
    if last_id is not None:
        found = found.where(key > sa.literal(last_id, key.type))
    return found.order_by(key).limit(CHUNK_ROWS)


def _by_end(
    connection: sa.Connection, legacy: LegacyTable, ends: Sequence[datetime], most: int
) -> Mapping[datetime, int]:
    due = due_of(legacy.table.c).label("due")
    some = sa.select(due).where(*legacy.is_owned).limit(most + 1).subquery()
    cases: list[tuple[Any, Any]] = [(some.c.due <= end, at) for at, end in enumerate(ends)]
    # by a column, not by an expression: a driver that numbers its parameters makes another
    # expression of it each time it is written
    spans = sa.select(sa.case(*cases, else_=len(ends)).label("span")).subquery()
    counting = sa.select(spans.c.span, sa.func.count()).group_by(spans.c.span)
    known = [*ends, NEVER]
    return {known[int(at)]: int(rows) for at, rows in connection.execute(counting)}
