"""NServiceBus.Persistence.Sql: one table per endpoint, its name derived from the endpoint's.

The derivation loses dots. An endpoint has the operator's name for it; otherwise the ledger's, so
that it does not change; otherwise that in its rows, if nothing contradicts; otherwise its table's.

Source: reference ``legacy-stores.md`` 1.1 (names), 1.2 (columns).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError

from migrator.errors import StoreError, UnknownEndpoint
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.headers import (
    ORIGINATING_ENDPOINT,
    UnreadableHeaders,
    parse_headers,
    queue_part,
)
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.ports import StoreRemark
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.indexes import ID_INDEX, SAGA_INDEX, TIME_INDEX, missing_indexes
from migrator.stores.sql.legacy_table import (
    COLUMNS,
    LegacyTable,
    NotATimeoutsTable,
    build_source,
    parse_source,
    timeouts_table,
)
from migrator.stores.sql.store import Blank, TableStore
from migrator.stores.sql.vendor_runs import VENDOR_RUN_TABLE

T = TypeVar("T")

SUFFIX: Final = "TimeoutData"
_LOCKS: Final = timedelta(seconds=0.5)
"""How long to wait for the columns of a locked table."""
_SAMPLED: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where an endpoint's table is when the defaults do not apply."""

    prefix: str | None = None
    """``TablePrefix`` of the persistence, verbatim."""
    table: str | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    schema: str | None = None
    """None: the database's default. Ignored where it has no schemas."""
    placements: Mapping[str, Placement] = field(default_factory=dict)
    """By endpoint name; an empty placement only fixes the spelling of the name."""
    time_zone: str | None = None
    """Of due columns with local time; None: they have UTC."""


class SqlStore(TableStore):
    kind = "sql"
    shares_table = False

    def __init__(self, engine: sa.Engine, ledger: LedgerTables, options: SqlOptions) -> None:
        super().__init__(engine, ledger)
        self._options = options
        self._schema = self._schema_of(options.schema)
        self._tables: dict[str, LegacyTable] = {}
        self._names: dict[str, EndpointName] = {}
        """Of endpoints, by source; the first answer stays, whatever rows say later."""
        self._unsure: set[str] = set()

    def endpoints(self) -> Sequence[StoreEndpoint]:
        placed = {self.source_of(name): EndpointName(name) for name in self._options.placements}
        found = {legacy.source: legacy for legacy in self._discovered()}
        for source in placed:
            if source not in found and (legacy := self._table_at(source)):
                found[source] = legacy
        self._tables.update(found)
        self._names.update(placed)
        if found.keys() - self._names.keys():
            self._names = self._names_in_ledger(found) | self._names
        return sorted(
            (
                StoreEndpoint(name=self._name_of(legacy), source=source)
                for source, legacy in found.items()
            ),
            key=attrgetter("name"),
        )

    def _name_of(self, legacy: LegacyTable) -> EndpointName:
        source = legacy.source
        if source not in self._names:
            told = self._names_in_rows(legacy)
            sure = {name for name in told if name is not None}
            if told and len(sure) != 1:
                self._unsure.add(source)
            spelled = endpoint_of(legacy.table.name, self._dialect.table_suffix)
            self._names[source] = sure.pop() if len(sure) == 1 else spelled
        return self._names[source]

    def _names_in_ledger(self, sources: Collection[str]) -> dict[str, EndpointName]:
        run = self._ledger.run
        latest = sa.select(sa.func.max(run.c.id)).group_by(run.c.source)
        query = sa.select(run.c.source, run.c.endpoint).where(run.c.id.in_(latest))

        def names() -> Sequence[Any]:
            if not self._has_ledger():
                return ()
            return self._asked("reading the names of endpoints", lambda c: c.execute(query).all())

        return {
            source: EndpointName(name)
            for source, name in _if_allowed(names)
            if source in sources and self.source_of(name) == source
        }

    def _names_in_rows(self, legacy: LegacyTable) -> Sequence[EndpointName | None]:
        """Return the endpoint that sent some rows to itself, if its table would have this name.

        The sender alone is not enough: a retried message keeps that of another endpoint. Nor is the
        queue alone, which may belong to any endpoint.
        """
        row = legacy.table.c
        query = sa.select(row.Destination, row.Headers).order_by(row.Id).limit(_SAMPLED)
        rows: Sequence[Any] = _if_allowed(lambda: self._readable(legacy, query)[0])
        senders = [_own_name(destination, headers) for destination, headers in rows]
        known = {name for name in {*senders} if name and self.source_of(name) == legacy.source}
        return [EndpointName(name) if name and name in known else None for name in senders]

    def find(self, name: str) -> StoreEndpoint:
        source = self.source_of(name)
        legacy = self._table_at(source)
        if legacy is not None:
            self._tables[source] = legacy
            self._names[source] = EndpointName(name)
            self._unsure.discard(source)
            return StoreEndpoint(name=EndpointName(name), source=source)
        known = self.endpoints()
        for endpoint in known:
            if endpoint.name == name:
                return endpoint
        raise UnknownEndpoint(name, tuple(endpoint.name for endpoint in known))

    def remarks(self) -> Sequence[StoreRemark]:
        endpoints = self.endpoints()
        tables = [self.legacy_table(endpoint.source) for endpoint in endpoints]
        wanted = (TIME_INDEX, SAGA_INDEX, ID_INDEX)
        unsure = [
            StoreRemark(
                subject=each.source,
                text=f"its endpoint is called {each.name} here, as its table is, where a dot is "
                "an underscore; the rows that were looked at do not tell its name",
                remedy="if that is not its name, give it with --endpoint or in [[endpoints]]",
            )
            for each in endpoints
            if each.source in self._unsure and "_" in each.name
        ]

        def look(inspector: sa.Inspector) -> list[StoreRemark]:
            return [
                remark
                for each in tables
                for remark in missing_indexes(inspector, each.table, each.source, wanted)
            ]

        of_database = self._asked("asking what the database allows", self._dialect.remarks)
        return [*unsure, *self._inspected(look), *of_database]

    def legacy_table(self, source: str) -> LegacyTable:
        if source not in self._tables:
            try:
                self._tables[source] = self._inspected(partial(self._table_in, source=source))
            except NotATimeoutsTable as exc:
                raise StoreError(f"{source} is not a timeouts table: {exc}") from exc
        return self._tables[source]

    def read_anew(self, endpoint: StoreEndpoint) -> None:
        self._tables.pop(endpoint.source, None)
        self.legacy_table(endpoint.source)

    def source_of(self, name: str) -> str:
        placement = self._options.placements.get(name, Placement())
        suffix = self._dialect.table_suffix
        table = placement.table or (
            default_table(name, suffix) if placement.prefix is None else placement.prefix + suffix
        )
        schema = self._schema_of(placement.schema or self._options.schema)
        table = table.lower() if self._folds_names else self._dialect.spelled(table)
        return build_source(*self._as_kept(schema, table))

    def _schema_of(self, wanted: str | None) -> str | None:
        if not self._dialect.has_schemas:
            return None
        return self._dialect.spelled(wanted) if wanted else self._dialect.default_schema

    @cached_property
    def _folds_names(self) -> bool:
        doing = "asking how names of tables are kept"
        return self._dialect.may_fold_names and self._asked(doing, self._dialect.folds_names)

    def location(self, source: str) -> tuple[str | None, str]:
        try:
            return parse_source(source)
        except ValueError as exc:
            raise StoreError(str(exc)) from exc

    def blank(self, source: str) -> Blank:
        return replace(blank_table(self._engine, source), time_zone=self._options.time_zone)

    def _table_at(self, source: str) -> LegacyTable | None:
        try:
            return self._inspected(partial(self._table_in, source=source))
        except NotATimeoutsTable:
            return None

    def _table_in(self, inspector: sa.Inspector, *, source: str) -> LegacyTable:
        schema, name = parse_source(source)
        try:
            columns = inspector.get_columns(name, schema=schema)
        except NoSuchTableError as exc:
            raise NotATimeoutsTable(f"{name} does not exist") from exc
        return self._timeouts_table(schema, name, columns)

    def _discovered(self) -> list[LegacyTable]:
        suffix = self._dialect.spelled(self._dialect.table_suffix)
        suffix = suffix.lower() if self._folds_names else suffix
        of_schema, _ = self._as_kept(self._schema, suffix)

        def look(inspector: sa.Inspector) -> list[LegacyTable]:
            names = [
                name
                for name in inspector.get_table_names(schema=of_schema)
                if name.endswith(suffix) and VENDOR_RUN_TABLE not in name.casefold()
            ]
            if not names:
                return []
            columns = inspector.get_multi_columns(schema=of_schema, filter_names=names)
            found = []
            for (schema, name), of_table in columns.items():
                with suppress(NotATimeoutsTable):
                    found.append(self._timeouts_table(schema, name, of_table))
            return found

        return self._inspected(look)

    def _timeouts_table(self, schema: str | None, name: str, columns: Any) -> LegacyTable:
        wanted, zone = {key: key for key in COLUMNS}, self._options.time_zone
        kind = self._dialect.name
        table = timeouts_table(schema, name, columns, wanted, dialect=kind, time_zone=zone)
        return LegacyTable(source=build_source(schema, name), table=table)

    def _inspected(self, look: Callable[[sa.Inspector], T]) -> T:
        def inspect(connection: sa.Connection) -> T:
            self._dialect.bound_locks(connection, _LOCKS)
            return look(sa.inspect(connection))

        return self._asked("looking for timeouts tables", inspect)


def _if_allowed(read: Callable[[], Sequence[T]]) -> Sequence[T]:
    try:
        return read()
    except StoreError as exc:
        if not exc.is_of_source:
            raise
        return ()  # a check says which right is missing


def _own_name(destination: str | None, headers_text: str | None) -> str | None:
    """Return the endpoint that sent a row to itself; None: it went elsewhere, or is unknown."""
    try:
        sender = parse_headers(headers_text).get(ORIGINATING_ENDPOINT)
    except UnreadableHeaders:
        return None
    return sender if sender and sender == queue_part(destination) else None


def default_table(endpoint: str, suffix: str = SUFFIX) -> str:
    """Return the table the persistence creates for *endpoint*: only dots are replaced."""
    return endpoint.replace(".", "_") + "_" + suffix


def blank_table(engine: sa.Engine, source: str) -> Blank:
    schema, name = parse_source(source)
    dialect = dialect_for(engine.dialect.name)
    types, names = dialect.column_types(), dialect.column_names()
    options: dict[str, Any] = {**dialect.table_options()}
    columns: list[sa.Column[Any]] = [
        sa.Column(names[key], types[key], key=key, primary_key=key == "Id") for key in COLUMNS
    ]
    table = sa.Table(name, sa.MetaData(), *columns, schema=schema, **options)
    sa.Index(f"{name}_SagaIdx", table.c.SagaId)
    sa.Index(f"{name}_TimeIdx", table.c.Time)
    return Blank(table=table)


def endpoint_of(table: str, suffix: str = SUFFIX) -> EndpointName:
    """Return the endpoint as its table shows it: no dots, and on Oracle no letter case."""
    prefix = table.removesuffix(suffix).removesuffix(suffix.lower())
    return EndpointName(prefix.removesuffix("_") or table)
