"""NServiceBus.NHibernate: one table for all endpoints, distinguished by a column.

Rules of this file: the owner of a row is decided by the database's own ``=``, as the timeout
manager does. An endpoint whose rows are all in the ledger is still an endpoint.
Source: reference ``legacy-stores.md`` 2.1 (table), 2.2 (values), 2.3 (queries).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from migrator.errors import StoreError, UnknownEndpoint
from migrator.ledger.tables import LedgerTables
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.timeouts import EndpointName
from migrator.stores.ports import StoreRemark
from migrator.stores.sql.indexes import (
    ENDPOINT_INDEX,
    ID_INDEX,
    SAGA_INDEX,
    has_index,
    missing_indexes,
)
from migrator.stores.sql.legacy_table import (
    SHARED_COLUMNS,
    LegacyTable,
    NotATimeoutsTable,
    build_source,
    owner_of,
    timeouts_table,
)
from migrator.stores.sql.store import Blank, TableStore
from migrator.text import counted

T = TypeVar("T")
TABLE: Final = "TimeoutEntity"
_FOLDING: Final = frozenset({"postgresql", "oracle"})
"""Databases that change the letter case of NHibernate's unquoted names."""
MOST_UNOWNED: Final = 10_000
_PROBE: Final = ("a", "A")


@dataclass(frozen=True, slots=True, kw_only=True)
class NHibernateOptions:
    schema: str | None = None
    """None: the connection's schema."""
    table: str = TABLE
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names by the vendor's names, where a naming strategy changed them."""
    names: Collection[str] = ()
    """Endpoints as the settings spell them; they need not have rows."""
    time_zone: str | None = None
    """Of a due column with local time; None: it has UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    table: sa.Table
    name: str
    ignores_case: bool
    is_indexed: bool

    def key(self, owner: str) -> str:
        """Return *owner* as in sources: the same for all spellings of one endpoint."""
        return owner.lower() if self.ignores_case else owner

    def source(self, owner: str) -> str:
        return build_source(self.table.schema, self.table.name, self.key(owner))


class NHibernateStore(TableStore):
    kind = "nhibernate"
    shares_table = True

    def __init__(self, engine: sa.Engine, ledger: LedgerTables, options: NHibernateOptions) -> None:
        super().__init__(engine, ledger)
        self._options = options
        self._schema = options.schema
        self._found: _Shared | None = None
        self._spelled: dict[str, str] = {}
        """The column's spelling of an owner, by its spelling in sources."""

    # ── endpoints ───────────────────────────────────────────────────────────────────────────

    def endpoints(self) -> Sequence[StoreEndpoint]:
        """Every endpoint with rows in table or ledger, and those of the settings."""
        shared = self._shared()
        if shared is None:
            return []
        owners = self._asked("looking for endpoints", lambda c: self._owners(c, shared))
        self._spelled = {shared.key(owner): owner for owner in reversed(owners)}
        return [
            StoreEndpoint(name=EndpointName(name), source=shared.source(name))
            for name in sorted(self._spelled.values())
        ]

    def find(self, name: str) -> StoreEndpoint:
        known, source = self.endpoints(), self.source_of(name)
        for endpoint in known:
            if endpoint.source == source:
                return endpoint
        raise UnknownEndpoint(name, tuple(endpoint.name for endpoint in known))

    def source_of(self, name: str) -> str:
        shared = self._shared()
        if shared is None:
            return build_source(*self._place(None), name)
        return shared.source(name)

    def remarks(self) -> Sequence[StoreRemark]:
        shared = self._shared()
        if shared is None:
            return []

        def look(connection: sa.Connection) -> list[StoreRemark]:
            wanted = (ENDPOINT_INDEX, SAGA_INDEX, ID_INDEX)
            found = missing_indexes(sa.inspect(connection), shared.table, shared.name, wanted)
            unowned = _unowned_remark(shared, unowned_rows(connection, shared.table))
            return [*found, *unowned, *self._dialect.remarks(connection)]

        return self._asked(f"looking at {shared.name}", look)

    # ── the table ───────────────────────────────────────────────────────────────────────────

    def legacy_table(self, source: str) -> LegacyTable:
        shared, key = self._shared(), self._owner(source)
        if shared is None or shared.source(key) != source:
            raise StoreError(
                f"{source} is not part of a timeouts table, or the table no longer exists"
            )
        if shared.ignores_case and key not in self._spelled:
            self.endpoints()
        return LegacyTable(source=source, table=shared.table, owner=self._spelled.get(key, key))

    def read_anew(self, endpoint: StoreEndpoint) -> None:
        self._found = None
        self.legacy_table(endpoint.source)

    def location(self, source: str) -> tuple[str | None, str]:
        place = self._place(self._shared())
        if build_source(*place, self._owner(source)) != source:
            raise StoreError(f"{source} belongs to another table than {build_source(*place)}")
        return place

    def blank(self, source: str) -> Blank:
        schema, name = self.location(source)
        types, names = self._dialect.shared_column_types(), self._names(name)
        columns = [
            sa.Column(names[key], types[key], key=key, primary_key=key == "Id")
            for key in SHARED_COLUMNS
        ]
        table = sa.Table(name, sa.MetaData(), *columns, schema=schema, mysql_engine="InnoDB")
        sa.Index(f"{name}_{_folded('SagaIdIdx', name)}", table.c.SagaId)
        sa.Index(f"{name}_{_folded('EndpointIdx', name)}", table.c.Endpoint, table.c.Time)
        owner = self._owner(source)
        return Blank(
            table=table,
            constants={"Endpoint": self._spelled.get(owner, owner)},
            has_compact_headers=True,
            time_zone=self._options.time_zone,
        )

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    def _place(self, shared: _Shared | None) -> tuple[str | None, str]:
        if shared is not None:
            return shared.table.schema, shared.table.name
        is_folded, name = self._engine.dialect.name in _FOLDING, self._options.table
        return self._schema, name.lower() if is_folded else name

    def _names(self, table: str) -> Mapping[str, str]:
        renamed = self._options.columns
        return {key: _folded(renamed.get(key, key), table) for key in SHARED_COLUMNS}

    def _owner(self, source: str) -> str:
        try:
            return owner_of(source)
        except ValueError as exc:
            raise StoreError(str(exc)) from exc

    def _owners(self, connection: sa.Connection, shared: _Shared) -> list[str]:
        in_ledger = self._in_ledger(connection, shared)
        in_table = owners_in(connection, shared.table, is_indexed=shared.is_indexed)
        return [*self._options.names, *in_ledger, *in_table]

    def _in_ledger(self, connection: sa.Connection, shared: _Shared) -> list[str]:
        batch = self._ledger.batch
        if not sa.inspect(connection).has_table(batch.name, schema=batch.schema):
            return []
        newest = sa.func.max(batch.c.endpoint)
        found = connection.execute(sa.select(batch.c.source, newest).group_by(batch.c.source))
        return [name for source, name in found if source == shared.source(name)]

    def _shared(self) -> _Shared | None:
        if self._found is None:
            self._found = self._asked("looking for the timeouts table", self._look)
        return self._found

    def _look(self, connection: sa.Connection) -> _Shared | None:
        inspector = sa.inspect(connection)
        if self._schema is None and self._dialect.has_schemas:
            self._schema = inspector.default_schema_name
        if self._dialect.looks_names_up:
            kept, _ = self._dialect.as_kept(connection, self._schema, self._options.table)
            self._schema = kept or self._schema
        name = _called(inspector.get_table_names(schema=self._schema), self._options.table)
        if name is None:
            return None
        called = build_source(self._schema, name)
        columns = inspector.get_columns(name, schema=self._schema)
        try:
            table = timeouts_table(
                self._schema,
                name,
                columns,
                {key: self._options.columns.get(key, key) for key in SHARED_COLUMNS},
                dialect=self._dialect.name,
                time_zone=self._options.time_zone,
            )
        except NotATimeoutsTable as exc:
            raise StoreError(f"{called} is not a timeouts table of NHibernate: {exc}") from exc
        return _Shared(
            table=table,
            name=called,
            ignores_case=ignores_case(connection, table),
            is_indexed=has_index(inspector, table, "Endpoint"),
        )


def _called(names: Collection[str], wanted: str) -> str | None:
    """Prefer the same letter case; raise ``StoreError`` if several match."""
    if wanted in names:
        return wanted
    found = sorted(name for name in names if name.casefold() == wanted.casefold())
    if len(found) > 1:
        raise StoreError(
            f"store.table {wanted} matches {', '.join(found)}; spell it like the one you mean"
        )
    return found[0] if found else None


def _folded(text: str, table: str) -> str:
    return text.lower() if table == table.lower() else text


def _unowned_remark(shared: _Shared, rows: int) -> Iterator[StoreRemark]:
    if not rows:
        return
    more = " or more" if rows == MOST_UNOWNED else ""
    is_one = rows == 1
    yield StoreRemark(
        subject=shared.name,
        text=counted(rows, "row belongs", f"rows{more} belong")
        + " to no endpoint: "
        + f"{shared.table.c.Endpoint.name} is NULL or empty; no timeout manager ever sends "
        + ("it, and it stays" if is_one else "them, and they stay"),
        remedy="find out which endpoint they belong to, and enter its name",
    )


def owners_in(connection: sa.Connection, table: sa.Table, *, is_indexed: bool) -> Iterator[str]:
    """Yield each value of ``Endpoint``, but one of those that the database finds equal.

    With an index, each name costs one search; without one the whole table is read once.
    """
    if not is_indexed:
        owner = table.c.Endpoint
        yield from filter(None, connection.scalars(sa.select(owner).distinct()))
        return
    last: str | None = connection.scalar(owner_after(table, None))
    while last is not None:
        if last:
            yield last
        last = connection.scalar(owner_after(table, last))


def ignores_case(connection: sa.Connection, table: sa.Table) -> bool:
    """Asked of the column without reading a row, so that the answer is always the same."""
    return bool(connection.scalar(case_probe(table)))


def case_probe(table: sa.Table) -> sa.Select[Any]:
    owner = table.c.Endpoint
    lower, upper = _PROBE
    one = sa.select(owner.label("owner")).where(sa.literal_column("1") == sa.literal_column("0"))
    # of the column's own type: Oracle mixes no national text with other text
    probe = sa.union_all(one, sa.select(sa.literal(lower, owner.type))).subquery("probe")
    return sa.select(sa.func.count()).where(probe.c.owner == upper)


def owner_after(table: sa.Table, last: str | None) -> sa.Select[Any]:
    owner = table.c.Endpoint
    query = sa.select(sa.func.min(owner))
    return query if last is None else query.where(owner > last)


def unowned_rows(connection: sa.Connection, table: sa.Table) -> int:
    """At most ``MOST_UNOWNED``."""
    owner = table.c.Endpoint
    some = sa.select(owner).where(owner.is_(None) | (owner == "")).limit(MOST_UNOWNED).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
