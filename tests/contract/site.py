"""One database with a ledger and a legacy table, and shortcuts to look at both.

The legacy table is filled and read with SQL of the test's own, so that a mistake in the store
cannot hide behind the same mistake here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from migrator.database.engine import open_engine, writing
from migrator.domain.states import Mode
from migrator.domain.timeouts import Lane, RunId
from migrator.errors import LedgerCloned
from migrator.ledger.batches import SqlBatches
from migrator.ledger.books import SqlBooks
from migrator.ledger.dispatching import SqlDispatching
from migrator.ledger.identity import adopt, check_identity
from migrator.ledger.leases import SqlLeases
from migrator.ledger.migrations import upgrade
from migrator.ledger.names import names_for
from migrator.ledger.quarantine import SqlQuarantine
from migrator.ledger.runs import SqlRuns
from migrator.ledger.tables import LedgerTables, build_tables
from migrator.ledger.upkeep import SqlUpkeep
from migrator.ledger.version import current
from migrator.ports import Claim, ClaimRequest, Cursor, Lease, StoreEndpoint
from migrator.stores.claims import SqlClaims
from migrator.stores.intake import SqlIntake
from migrator.stores.legacy_table import build_source, parse_source
from migrator.stores.seeding import create_table
from migrator.stores.sql_persistence import Placement, SqlOptions, SqlStore, default_table
from migrator.stores.tables import TableStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = ("Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion")
LONG = timedelta(minutes=5)


def timeout_id(number: int) -> str:
    """Return a guid that sorts by *number*."""
    return str(UUID(int=number))


@dataclass(frozen=True, kw_only=True)
class LegacyRow:
    """One row of the legacy table as the database returns it, converted to text and bytes."""

    id: str
    destination: str | None = "Billing"
    saga_id: str | None = "00000000-0000-0000-0000-000000000000"
    body: bytes | None = b'{"a":1}'
    due: str | None = "2026-03-01 13:00:00.123456"
    headers: str | None = '{\n  "NServiceBus.MessageId": "m-1"\n}'
    version: str | None = "6.6.5.0"


def due_in(delay: timedelta) -> str:
    """Return the due column of a row that is due *delay* after ``NOW``."""
    return (NOW + delay).replace(tzinfo=None).isoformat(" ", "microseconds")


def hours(count: int, *, start: int = 0) -> list[LegacyRow]:
    """Return *count* rows, due one, two, three … hours after ``NOW``."""
    return [
        LegacyRow(id=timeout_id(n), due=due_in(timedelta(hours=n + 1)))
        for n in range(start, start + count)
    ]


@dataclass
class Site:
    """A database as one process sees it."""

    engine: Engine
    endpoint_name: str = "Sales.Orders"
    schema: str = "public"
    placements: dict[str, Placement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Build everything wiring would build."""
        self.tables: LedgerTables = build_tables(names_for(self.engine))
        if current(self.engine, self.tables) is None:
            upgrade(self.engine, self.tables)
        self.store = self.open_store()
        self.claims = SqlClaims(self.engine, self.tables, self.store)
        self.intake = SqlIntake(self.engine, self.tables, self.store)
        self.ledger_id = self._identify()
        self.leases = SqlLeases(self.engine, self.tables, self.ledger_id)
        self.batches = SqlBatches(self.engine, self.tables)
        self.runs = SqlRuns(self.engine, self.tables, actor="test", version="0")
        self.books = SqlBooks(self.engine, self.tables)
        self.quarantine = SqlQuarantine(self.engine, self.tables)
        self.upkeep = SqlUpkeep(self.engine, self.tables)
        self.dispatching = SqlDispatching(self.engine, self.tables)

    def open_store(self) -> TableStore:
        """Return the store as wiring would build it."""
        options = SqlOptions(schema=self.schema, placements=self.placements)
        return SqlStore(self.engine, self.tables, options)

    def _identify(self) -> str:
        try:
            return check_identity(self.engine, self.tables)
        except LedgerCloned:  # a copy of the template
            return adopt(self.engine, self.tables)

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite."""
        return self.engine.dialect.name == "sqlite"

    @property
    def is_mysql(self) -> bool:
        """Whether the database is MariaDB or MySQL."""
        return self.engine.dialect.name == "mysql"

    @property
    def has_schemas(self) -> bool:
        """Whether tables are in schemas, the ledger's too."""
        return not (self.is_sqlite or self.is_mysql)

    @property
    def source(self) -> str:
        """The endpoint's table, by the vendor's rule."""
        return self.source_of(default_table(self.endpoint_name))

    def source_of(self, table: str, schema: str | None = None) -> str:
        """Return the source of a table in this database."""
        return build_source(schema or self.schema if self.has_schemas else None, table)

    def create(self, rows: Sequence[LegacyRow] = (), source: str | None = None) -> StoreEndpoint:
        """Create the legacy table with *rows*; return its endpoint."""
        create_table(self.engine, self.store.blank(source or self.source))
        if self.is_mysql:
            self._widen(source or self.source)
        self.insert(rows, source=source)
        return StoreEndpoint(name=self.endpoint_name, source=source or self.source)  # type: ignore[arg-type]

    def _widen(self, source: str) -> None:
        """Let the table hold what other databases' tables do: any text, and parts of a second.

        What the vendor's own types do to a row is looked at in ``test_store_mariadb``.
        """
        longer = 'MODIFY "Time" datetime(6), MODIFY "Headers" longtext CHARACTER SET utf8mb4'
        # not by way of the store, which would remember the table as it was
        quoted = self.engine.dialect.identifier_preparer.quote(parse_source(source)[1])
        self.execute(f"ALTER TABLE {quoted.replace('%%', '%')} {longer}")

    def insert(self, rows: Sequence[LegacyRow], *, source: str | None = None) -> None:
        """Insert rows as they are."""
        columns = ", ".join(f'"{column}"' for column in COLUMNS)
        casts = "CAST(:id AS uuid), :destination, CAST(:saga_id AS uuid), :body"
        values = f"{casts}, CAST(:due AS timestamp), :headers, :version"
        if not self.has_schemas:
            values = ":id, :destination, :saga_id, :body, :due, :headers, :version"
        statement = text(f"INSERT INTO {self.quoted(source)} ({columns}) VALUES ({values})")
        with writing(self.engine) as connection:
            for row in rows:
                connection.execute(statement, vars(row))

    def legacy_rows(self, source: str | None = None) -> list[LegacyRow]:
        """Return the legacy table, by id."""
        due, as_text = "to_char(\"Time\", 'YYYY-MM-DD HH24:MI:SS.US')", "text"
        if self.is_sqlite:
            due = '"Time"'
        if self.is_mysql:
            due, as_text = "date_format(\"Time\", '%Y-%m-%d %H:%i:%s.%f')", "char"
        query = (
            f'SELECT CAST("Id" AS {as_text}), "Destination", CAST("SagaId" AS {as_text}), "State",'
            f' {due}, "Headers", "PersistenceVersion" FROM {self.quoted(source)} ORDER BY "Id"'
        )
        with self.engine.connect() as connection:
            return [
                LegacyRow(
                    id=r[0],
                    destination=r[1],
                    saga_id=r[2],
                    body=r[3],
                    due=r[4],
                    headers=r[5],
                    version=r[6],
                )
                for r in connection.execute(text(query))
            ]

    def quoted(self, source: str | None = None) -> str:
        """Return the legacy table's name as SQL."""
        table = self.store.legacy_table(source or self.source).table
        return self.engine.dialect.identifier_preparer.format_table(table).replace("%%", "%")

    def lease(self, lane: int = 0, owner: str = "me") -> Lease:
        """Take a lane."""
        lease = self.leases.acquire(Lane(lane), owner, LONG)
        assert lease is not None
        return lease

    def run(self, endpoint: StoreEndpoint) -> RunId:
        """Begin a run."""
        return self.runs.begin(endpoint, {})

    def request(self, endpoint: StoreEndpoint, lease: Lease, **changes: Any) -> ClaimRequest:
        """Return a request for everything due within ten days after ``NOW``."""
        values: dict[str, Any] = {
            "run": RunId(0),
            "endpoint": endpoint,
            "lease": lease,
            "mode": Mode.STAGED,
            "due_after": None,
            "due_until": NOW + timedelta(days=10),
            "max_rows": 1000,
            "max_bytes": 10**9,
            "cursor": None,
        } | changes
        if not values["run"]:
            values["run"] = self.run(endpoint)
        return ClaimRequest(**values)

    def claim(self, endpoint: StoreEndpoint, lease: Lease, **changes: Any) -> Claim:
        """Claim, and expect to get something."""
        claim = self.claims.claim(self.request(endpoint, lease, **changes))
        assert claim is not None
        return claim

    def claim_all(
        self, endpoint: StoreEndpoint, lease: Lease, *, max_rows: int, **changes: Any
    ) -> list[Claim]:
        """Claim until there is nothing more, from cursor to cursor."""
        found: list[Claim] = []
        run, cursor = self.run(endpoint), None
        while claim := self._next(endpoint, lease, run, cursor, max_rows=max_rows, **changes):
            found.append(claim)
            cursor = claim.cursor
        return found

    def _next(
        self,
        endpoint: StoreEndpoint,
        lease: Lease,
        run: RunId,
        cursor: Cursor | None,
        **changes: Any,
    ) -> Claim | None:
        return self.claims.claim(self.request(endpoint, lease, run=run, cursor=cursor, **changes))

    def ids(self, claim: Claim) -> list[str]:
        """Return the ids a claim took, by row index."""
        return [str(row.id) for row in self.batches.rows(claim.batch)]

    def ledger_rows(self) -> list[Any]:
        """Return the ledger's timeouts, by id."""
        with self.engine.connect() as connection:
            return list(connection.execute(self.tables.timeout.select().order_by("id")))

    def states(self) -> dict[str, int]:
        """Return how many rows are in which effective state, by the public view."""
        return {s: n for e in self.books.progress().endpoints for s, n in e.rows.items()}

    def execute(self, statement: str, **values: Any) -> None:
        """Run SQL of the test's own."""
        with writing(self.engine) as connection:
            connection.execute(text(statement), values)

    def second(self) -> Site:
        """Return the same database as another process would open it."""
        return type(self)(
            engine=open_engine(self.engine.url),
            endpoint_name=self.endpoint_name,
            schema=self.schema,
            placements=self.placements,
        )


def locked(connection: Connection, quoted: str, row_id: str) -> None:
    """Delete a row like a timeout manager does, without committing yet."""
    key = ":id" if connection.dialect.name == "mysql" else "CAST(:id AS uuid)"
    deleted = connection.execute(text(f'DELETE FROM {quoted} WHERE "Id" = {key}'), {"id": row_id})
    assert deleted.rowcount == 1
