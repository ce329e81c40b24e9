"""What the program says to SQL Server and Oracle alone, as text that a person has read.

There is no server of the two here; so what ``elsewhere`` cannot hear, because no other database is
told so, is compiled as an engine would compile it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ClauseElement, and_, insert, select
from sqlalchemy.dialects.mssql.pyodbc import MSDialect_pyodbc
from sqlalchemy.dialects.oracle.oracledb import OracleDialect_oracledb
from sqlalchemy.engine import Dialect as Kind

from migrator.database import mssql, oracle
from migrator.database.portable import first_for_update
from migrator.database.types import GuidBytes, byte_length
from migrator.ledger.states import BatchState, Mode
from migrator.ledger.tables import LedgerTables, build_tables, ledger_names
from migrator.ledger.work import Lease, StoreEndpoint
from migrator.nservicebus.timeouts import Lane, RunId
from migrator.recall.queries import locked_rows
from migrator.recall.rules import Scope
from migrator.stores.requests import ClaimRequest, Cursor
from migrator.stores.sql.claims import is_there
from migrator.stores.sql.dialects import Dialect, dialect_for
from migrator.stores.sql.dialects.mssql import MssqlDialect, keeping, seeking, walking
from migrator.stores.sql.dialects.oracle import OracleDialect
from migrator.stores.sql.intake import clearing, removing_known
from migrator.stores.sql.legacy_table import (
    COLUMNS,
    SHARED_COLUMNS,
    LegacyTable,
    build_source,
    timeouts_table,
)
from migrator.stores.sql.moving import Copied, Move, reading_content, removing
from migrator.stores.sql.nhibernate import case_probe
from migrator.stores.sql.returns import putting_back
from migrator.verify.queries import AuditStatements
from tests.support.tagged import tagged_message

NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
ID: Final = "7d0c1b52-9e4f-4a3b-1234-08da9f3c5e7b"
LEASE: Final = Lease(lane=Lane(0), owner="me", token=1)


def kind_of(dialect: str) -> Kind:
    """Return SQLAlchemy's dialect as an engine of ours has it."""
    kinds: dict[str, Any] = {"mssql": MSDialect_pyodbc, "oracle": OracleDialect_oracledb}
    found: Kind = kinds[dialect]()
    {"mssql": mssql, "oracle": oracle}[dialect].adapt(found)
    return found


def written(dialect: str, statement: ClauseElement) -> str:
    """Return *statement* as the driver is handed it, lists of values spelled out."""
    compiled = statement.compile(
        dialect=kind_of(dialect), compile_kwargs={"render_postcompile": True}
    )
    return str(compiled).strip()


def tables(dialect: str) -> tuple[Dialect, LegacyTable, LedgerTables]:
    """Return the dialect, a legacy table as an inspector would find it, and a ledger."""
    store = dialect_for(dialect)
    name = {"oracle": "sales_orders_to"}.get(dialect, "Sales_Orders_TimeoutData")
    columns: list[Mapping[str, Any]] = [
        {"name": store.column_names()[key], "type": type_}
        for key, type_ in store.column_types().items()
    ]
    schema = store.default_schema if store.has_schemas else None
    table = timeouts_table(schema, name, columns, {k: k for k in COLUMNS}, dialect=dialect)
    legacy = LegacyTable(source=build_source(schema, name), table=table)
    return store, legacy, build_tables(ledger_names(dialect))


def families(dialect: str) -> Iterator[tuple[str, list[ClauseElement]]]:
    """Yield each family's name and its statements, in the order they are executed."""
    store, legacy, ledger = tables(dialect)
    yield "claim", list(_claim(store, legacy, ledger))
    yield "put_back", list(_put_back(store, legacy, ledger))
    yield "store", list(_store(legacy, ledger))
    yield "quarantine", list(_quarantine(dialect, ledger))
    tagged = [tagged_message(9, index, ID, 7) for index in (0, 1)]
    yield "recall", [locked_rows(ledger, tagged, Scope(), dialect=dialect)]
    yield "verify", list(_verify(store, ledger))
    of_all = shared(dialect)
    ours = [*_claim(store, of_all, ledger), *_put_back(store, of_all, ledger)]
    yield "nhibernate", [case_probe(of_all.table), *ours, *_store(of_all, ledger)]


def shared(dialect: str) -> LegacyTable:
    """Return the rows of one endpoint in NHibernate's table, as an inspector would find it."""
    store = dialect_for(dialect)
    is_folded = dialect == "oracle"
    types = {
        key: type_.load_dialect_impl(kind_of(dialect)) if isinstance(type_, GuidBytes) else type_
        for key, type_ in store.shared_column_types().items()
    }
    columns: list[Mapping[str, Any]] = [
        {"name": key.lower() if is_folded else key, "type": type_} for key, type_ in types.items()
    ]
    schema = store.default_schema if store.has_schemas else None
    name = "timeoutentity" if is_folded else "TimeoutEntity"
    table = timeouts_table(schema, name, columns, {k: k for k in SHARED_COLUMNS}, dialect=dialect)
    source = build_source(schema, name, "Sales.Orders")
    return LegacyTable(source=source, table=table, owner="Sales.Orders")


def request(legacy: LegacyTable, **changes: Any) -> ClaimRequest:
    """Return what a lane asks for in the middle of a run."""
    values: dict[str, Any] = {
        "run": RunId(7),
        "endpoint": StoreEndpoint(name="Sales.Orders", source=legacy.source),  # type: ignore[arg-type]
        "lease": LEASE,
        "mode": Mode.STAGED,
        "due_after": NOW,
        "due_until": NOW + timedelta(days=10),
        "max_rows": 200,
        "max_bytes": 10**6,
        "cursor": Cursor(due_at=NOW + timedelta(hours=1), id=ID),
    } | changes
    return ClaimRequest(**values)


def _claim(store: Dialect, legacy: LegacyTable, ledger: LedgerTables) -> Iterator[ClauseElement]:
    asked, named = request(legacy), request(legacy, only=frozenset({ID}), due_after=None)
    move = Move(legacy=legacy, ledger=ledger, request=asked, batch_id=9)
    assert isinstance(store, MssqlDialect | OracleDialect)
    yield select(is_there(legacy, asked))
    yield store.picking(move)
    yield store.picking(replace(move, request=named))
    if isinstance(store, MssqlDialect):
        by_id = seeking("PK 100 %")
        yield store.picking(move, walking("Index_Time 100 %"))
        yield store.picking(replace(move, request=named), by_id)
        yield store.copying(move, [Copied(id=ID, row_index=0, content_hash="ab")], by_id)
        yield reading_content(legacy, [ID], keeping(by_id))
    else:
        yield store.copying(move)
        yield reading_content(legacy, [ID])
    yield removing(legacy, [ID])
    if isinstance(store, MssqlDialect):
        yield store.keeping_out(legacy.table, [ID])
        yield store.keeping_out(legacy.table, [ID], seeking("PK 100 %"))
    else:
        nobody: Any = None
        yield store.looking(nobody, legacy.table, [ID])


def _put_back(store: Dialect, legacy: LegacyTable, ledger: LedgerTables) -> Iterator[ClauseElement]:
    row = ledger.timeout.c
    yield putting_back(store, ledger, legacy, and_(row.batch_id == 9, row.state.is_(None)))


def _store(legacy: LegacyTable, ledger: LedgerTables) -> Iterator[ClauseElement]:
    yield insert(legacy.table)
    yield removing_known(legacy, ledger, [ID])
    yield clearing(legacy, [ID])


def _quarantine(dialect: str, ledger: LedgerTables) -> Iterator[ClauseElement]:
    row, batch = ledger.timeout, ledger.batch
    query = (
        select(row.c.id, row.c.batch_id, byte_length(row.c.body).label("body_bytes"))
        .join(batch, batch.c.id == row.c.batch_id)
        .where(batch.c.state == BatchState.HANDED_OVER, row.c.state == "quarantined")
        .order_by(row.c.due, row.c.id)
    )
    yield first_for_update(query, row, at_most=200, dialect=dialect)


def _verify(store: Dialect, ledger: LedgerTables) -> Iterator[ClauseElement]:
    queries = AuditStatements(ledger, store)
    yield queries.with_keys({(9, 0), (9, 1), (10, 0)})
    yield (
        queries.whole_rows()
        .where(ledger.timeout.c.id > 9)
        .order_by(ledger.timeout.c.id)
        .limit(1000)
    )
    yield queries.intact([1, 2])
