"""What is said to SQL Server, with which types, and how its answers are read; without a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mssql, oracle

from migrator.database.engine import open_engine, writing
from migrator.database.failures import is_passing
from migrator.database.portable import MOST_IN_LIST, among, locked_at_once
from migrator.database.types import ColumnTime, exactly
from migrator.dispatcher.ledger import DispatchedBatches
from migrator.errors import LedgerError, RowRefused, StoreUnavailable
from migrator.ledger import migrations
from migrator.ledger.batches import SqlBatches
from migrator.ledger.claims import too_long
from migrator.ledger.identity import identity_of
from migrator.ledger.purge import SettledRows
from migrator.ledger.tables import LedgerTables, build_tables, ledger_names
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus.satellites import ClearTimeouts, DelayedMessage
from migrator.nservicebus.timeouts import NO_SAGA, EndpointName, TimeoutId
from migrator.stores.sql.claims import SqlClaims
from migrator.stores.sql.dialects import dialect_for
from migrator.stores.sql.indexes import has_index
from migrator.stores.sql.intake import SqlIntake
from migrator.stores.sql.legacy_table import LATEST
from migrator.stores.sql.sql_persistence import Placement, SqlOptions, SqlStore
from tests.support import fake_odbc, statements
from tests.support.fake_odbc import FakeOdbc


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeOdbc:
    """What answers instead of a SQL Server."""
    found = FakeOdbc()
    found.install(monkeypatch)
    return found


@pytest.fixture
def engine(server: FakeOdbc) -> Iterator[sa.Engine]:
    """An engine as any command has it."""
    found = open_engine(fake_odbc.URL)
    yield found
    found.dispose()


@pytest.fixture
def ledger() -> LedgerTables:
    """The ledger's tables."""
    return build_tables(ledger_names("mssql"))


# ── the lock of an upgrade ──────────────────────────────────────────────────────────────────────


def test_the_lock_of_an_upgrade_is_the_sessions_and_is_given_back(
    server: FakeOdbc, engine: sa.Engine, ledger: LedgerTables
) -> None:
    """Before the first statement no transaction is open; the lock ends after the upgrade's."""

    def taken() -> list[tuple[int]]:
        is_refused = "'Transaction'" in server.said[-1][0] and not server.in_transaction
        return [(-999 if is_refused else 0,)]

    server.answer("sp_getapplock", taken)
    server.answer("CREATE SCHEMA", fake_odbc.error("42000", "No right to CREATE SCHEMA. (262) (S"))
    with pytest.raises(LedgerError, match="No right"):
        migrations.upgrade(engine, ledger)
    said = server.statements()
    lock = next(n for n, each in enumerate(said) if "sp_getapplock" in each)
    assert said[lock].rindex("SET NOCOUNT OFF") > said[lock].index("EXEC")
    assert "BEGIN TRAN" not in " ".join(said)
    ends = [each for each in said[lock + 2 :] if each == "ROLLBACK" or "releaseapplock" in each]
    assert [each.split(" @")[0] for each in ends[:2]] == ["ROLLBACK", "EXEC sp_releaseapplock"]
    assert "@LockOwner = 'Session'" in ends[1]
    assert said[lock + 1] == "COMMIT"


@pytest.mark.parametrize(
    ("taken", "failure", "told"),
    [
        (-1, StoreUnavailable, "another process is upgrading"),
        (-3, StoreUnavailable, "another process is upgrading"),
        (-999, LedgerError, "returned -999; no other process has it"),
    ],
)
def test_a_refused_lock_is_told_from_one_that_somebody_has(
    taken: int,
    failure: type[Exception],
    told: str,
    server: FakeOdbc,
    engine: sa.Engine,
    ledger: LedgerTables,
) -> None:
    """Who is told that somebody else upgrades, looks for somebody; and nothing is given back."""
    server.answer("sp_getapplock", [(taken,)])
    with pytest.raises(failure, match=told):
        migrations.upgrade(engine, ledger)
    assert not any("releaseapplock" in each for each in server.statements())


# ── text ────────────────────────────────────────────────────────────────────────────────────────

_NAMES = sa.Table(
    "names",
    sa.MetaData(),
    sa.Column("wide", sa.NVARCHAR(200)),
    sa.Column("narrow", sa.VARCHAR(23)),
    sa.Column("id", mssql.UNIQUEIDENTIFIER(as_uuid=False)),
)
_WROCLAW = "Wrocław.注文"


@pytest.mark.parametrize(
    "condition",
    [
        exactly(_NAMES.c.wide) == _WROCLAW,
        among(exactly(_NAMES.c.wide), [_WROCLAW]),
        ~among(_NAMES.c.wide, [_WROCLAW]),
        sa.literal(_WROCLAW) == _NAMES.c.wide,
        sa.literal(_WROCLAW, sa.String()) == _NAMES.c.wide,
        sa.literal(_WROCLAW, sa.String(36)) == _NAMES.c.wide,
    ],
)
def test_text_is_bound_as_nvarchar(
    condition: sa.ColumnElement[bool], server: FakeOdbc, engine: sa.Engine
) -> None:
    """As VARCHAR it would be `Wroc?aw.??` to most databases, and the row would not be found."""
    with engine.connect() as connection:
        connection.execute(sa.select(_NAMES.c.id).where(condition))
    assert server.values() == (_WROCLAW,)
    assert {size[0] for size in server.sizes} == {fake_odbc.WVARCHAR}


def test_what_is_compared_with_a_varchar_column_is_bound_as_it_is(
    server: FakeOdbc, engine: sa.Engine
) -> None:
    """Else the server would convert the column, row by row, and search no index."""
    with engine.connect() as connection:
        connection.execute(sa.select(_NAMES.c.id).where(_NAMES.c.narrow == "7.8.6"))
    assert [size[0] for size in server.sizes] == [fake_odbc.VARCHAR]


def test_text_is_bound_as_what_its_column_in_the_ledger_is(
    engine: sa.Engine, ledger: LedgerTables
) -> None:
    """Else letters are lost, or a lane that is renewed looks at the rows of all, and waits."""
    dialect: Any = engine.dialect
    kinds = {"VARCHAR": fake_odbc.VARCHAR, "NVARCHAR": fake_odbc.WVARCHAR}
    for column in (each for table in ledger.metadata.tables.values() for each in table.columns):
        kind = str(column.type.compile(dialect)).partition("(")[0]
        if kind in kinds:
            bound: Any = column.type.dialect_impl(dialect).get_dbapi_type(dialect.dbapi)
            told = bound[0] if isinstance(bound, tuple) else bound
            assert (str(column), told) == (str(column), kinds[kind])


def test_names_that_are_written_out_are_national_text(engine: sa.Engine) -> None:
    """A list too long for parameters says N'…', with or without a type of its own."""
    names = [f"{_WROCLAW}.{n}" for n in range(MOST_IN_LIST + 1)]
    query = sa.select(_NAMES.c.id).where(~among(exactly(_NAMES.c.wide), names))
    said = str(query.compile(engine, compile_kwargs={"render_postcompile": True}))
    assert said.count(f"N'{_WROCLAW}.") == len(names) == said.count("'") // 2
    literal = sa.select(sa.literal(_WROCLAW))
    assert f"N'{_WROCLAW}'" in str(literal.compile(engine, compile_kwargs={"literal_binds": True}))


def test_a_claim_copies_source_and_endpoint_as_national_text(
    engine: sa.Engine,
) -> None:
    """The ledger would otherwise keep another name than the endpoint has."""
    claim = dict(statements.families("mssql"))["claim"]
    compiled: Any = next(each for each in claim if isinstance(each, sa.Insert)).compile(engine)
    dialect: Any = engine.dialect
    told: list[Any] = [
        parameter.type.dialect_impl(dialect).get_dbapi_type(dialect.dbapi)
        for parameter in compiled.bind_names
        if isinstance(parameter.type, sa.String)
    ]
    assert told
    assert {each if isinstance(each, int) else each[0] for each in told} == {fake_odbc.WVARCHAR}


# ── the database, and names in it ───────────────────────────────────────────────────────────────


def test_a_database_is_looked_up_by_its_name(server: FakeOdbc, engine: sa.Engine) -> None:
    """On Azure, DB_ID() may be the id that another database has in sys.databases."""
    server.answer("sys.databases WHERE database_id", [("other", "other")])
    server.answer("group_database_id.*WHERE name = DB_NAME", [("srv", "sales")])
    server.answer("AS state.*WHERE name = DB_NAME", [{"name": "sales", "state": 1}])
    with engine.connect() as connection:
        assert identity_of(connection) == "mssql:srv:sales"
        assert dialect_for("mssql").remarks(connection) == []


@pytest.mark.parametrize("ignores_case", [True, False])
def test_one_table_is_one_source_whatever_letter_case_is_typed(
    ignores_case: bool, server: FakeOdbc, engine: sa.Engine, ledger: LedgerTables
) -> None:
    """Its rows could else be claimed under each; where letter case counts, the names are two."""

    def kept() -> list[dict[str, Any]]:
        called, of_schema = server.values()
        fold = str.casefold if ignores_case else str
        found = next((t for t in ("Sales_TimeoutData", "Own") if fold(t) == fold(called)), None)
        is_there = fold(of_schema) == fold("dbo")
        return [{"kept_schema": "dbo", "kept_table": found}] if is_there else []

    server.answer("sys.schemas AS s", kept)
    placements = {"Own": Placement(table="OWN")}
    stores = [
        SqlStore(engine, ledger, SqlOptions(schema=schema, placements=placements))
        for schema in (None, "DBO")
    ]
    found = [store.source_of(name) for store in stores for name in ("Sales", "SALES", "Own", "New")]
    theirs = [f"dbo.{name}" for name in ("Sales_TimeoutData", "Sales_TimeoutData", "Own")]
    typed = [f"DBO.{name}_TimeoutData" for name in ("Sales", "SALES")]
    assert found == (
        [*theirs, "dbo.New_TimeoutData"] * 2
        if ignores_case
        else [
            *("dbo.Sales_TimeoutData", "dbo.SALES_TimeoutData", "dbo.OWN", "dbo.New_TimeoutData"),
            *(*typed, "DBO.OWN", "DBO.New_TimeoutData"),
        ]
    )


# ── what fails ──────────────────────────────────────────────────────────────────────────────────

_NOTHING_TO_ROLL_BACK = fake_odbc.error(
    "25000", "The ROLLBACK TRANSACTION request has no corresponding BEGIN TRANSACTION. (3903) (SQL"
)


@pytest.mark.parametrize(
    ("cause", "failure", "told"),
    [
        (("40001", "You are the deadlock victim. (1205) (SQLExecDirectW)"), StoreUnavailable,
         "deadlock victim"),
        (("22001", "String or binary data would be truncated. (8152) (SQL"), LedgerError,
         "truncated"),
    ],
)  # fmt: skip
def test_a_rollback_with_nothing_left_hides_no_error(
    cause: tuple[str, str], failure: type[Exception], told: str, server: FakeOdbc, engine: sa.Engine
) -> None:
    """FreeTDS does so after each error that has aborted a transaction, which any of ours does."""
    server.answer("DELETE", fake_odbc.error(*cause))
    server.rollback_error = _NOTHING_TO_ROLL_BACK
    with (
        pytest.raises(failure, match=told),
        writing(engine, LedgerError, doing="x") as connection,
    ):
        connection.execute(sa.delete(_NAMES))


def test_another_failure_of_a_rollback_is_told(server: FakeOdbc, engine: sa.Engine) -> None:
    """It may be a connection that is lost."""
    server.rollback_error = fake_odbc.error("HY000", "Out of luck. (50000) (SQLEndTran)")
    with pytest.raises(sa.exc.DBAPIError, match="Out of luck"), engine.connect() as connection:
        connection.execute(sa.select(_NAMES.c.id))


@pytest.mark.parametrize(
    ("message", "passes"),
    [
        ("no corresponding BEGIN TRANSACTION. (3903) (SQLExecDirectW)", True),
        ("no corresponding BEGIN. (3903) (SQLEndTran); [40001] [FreeTDS]Deadlock (1205)", True),
        *((f"Cannot open database. ({number}) (SQLDriverConnect)", True)
          for number in (615, 926, 4060, 4221, 40197, 40501, 40613, 49918, 49919, 49920)),
        ("Login failed. (18456) (SQLDriverConnect); [42000] [M]Cannot open database. (4060)", True),
        ("Row (1205) is odd. (547) (SQLExecDirectW)", False),
    ],
)  # fmt: skip
def test_an_aborted_transaction_and_what_azure_calls_passing_are_tried_again(
    message: str, passes: bool
) -> None:
    """The vendor's list of transient faults; any of the messages in one error may say it."""
    failure = sa.exc.DBAPIError("x", None, fake_odbc.error("42000", message))
    assert is_passing(failure) is passes


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("libmsodbcsql-18.5.so.1.1", False),
        ("msodbcsql17.dll", False),
        ("libmsodbcsql.18.dylib", False),
        ("libtdsodbc.so", True),
        ("SQLSRV32.DLL", True),
    ],
)
def test_no_other_driver_than_microsofts_is_taken(
    name: str, is_refused: bool, server: FakeOdbc, engine: sa.Engine
) -> None:
    """It is named, and what to install; a preview refuses what may not be claimed."""
    server.driver_name = name
    _, legacy, _ = statements.tables("mssql")
    with engine.connect() as connection:
        found = dialect_for("mssql").obstacle(connection, legacy)
    assert (found is not None and name in found and "ODBC+Driver+18" in found) is is_refused


# ── what is asked of the server ─────────────────────────────────────────────────────────────────


def test_an_isolation_level_that_nobody_tells_is_no_assertion(
    server: FakeOdbc, engine: sa.Engine
) -> None:
    """Sessions begin with one, and go back to it after a verification."""
    server.answer("FROM sys.system_views", [])
    snapshots = dialect_for("mssql").read_only(engine)
    with snapshots.connect() as connection:
        connection.execute(sa.select(_NAMES.c.id))
    said = [each for each in server.statements() if "ISOLATION LEVEL" in each]
    assert [each.split("LEVEL ")[1].split(";")[0] for each in said] == [
        *("READ COMMITTED", "SNAPSHOT", "READ COMMITTED")
    ]


def test_a_database_that_is_not_shown_is_a_finding(engine: sa.Engine) -> None:
    """It ended a preview with a message of SQLAlchemy."""
    with engine.connect() as connection:
        (found,) = dialect_for("mssql").remarks(connection)
    assert (found.subject, "it is not known whether" in found.text) == ("db", True)


@pytest.mark.parametrize(
    ("kind", "filter_", "is_missing"),
    [(2, None, False), (2, "([Time] IS NOT NULL)", True), (6, None, True)],
)
def test_an_index_of_some_rows_or_of_columns_is_none_that_a_claim_walks(
    kind: int, filter_: str | None, is_missing: bool, server: FakeOdbc, engine: sa.Engine
) -> None:
    """A filtered index is no way to all rows, and a columnstore has no order."""
    _, legacy, _ = statements.tables("mssql")
    name = legacy.table.name
    server.answer(
        "filter_definition",
        [{"table_name": name, "index_id": 2, "is_unique": 0, "name": "TimeIdx", "type": kind,
          "filter_definition": filter_}],
    )  # fmt: skip
    server.answer(
        "is_included_column",
        [{"table_name": name, "index_id": 2, "name": "Time", "is_included_column": 0}],
    )
    server.answer(r"^SELECT sys.objects.name \nFROM", [(name,)])
    with engine.connect() as connection:
        assert has_index(sa.inspect(connection), legacy.table, "Time") is not is_missing


def test_the_last_moment_is_the_columns_own() -> None:
    """`DateTime.MaxValue` is .997 in datetime: a later one does not fit, a sooner misses it."""
    dialect: Any = None
    wide: Any = mssql.DATETIME2
    kept = {
        type(each).__name__: ColumnTime(each).process_bind_param(LATEST, dialect).microsecond
        for each in (mssql.DATETIME(), wide(6), oracle.TIMESTAMP())
    }
    assert kept == {"DATETIME": 997_000, "DATETIME2": 999_999, "TIMESTAMP": 999_999}


def test_lengths_are_those_of_utf_16() -> None:
    """A column of 200 has room for 100 pairs; one more would fail its whole batch for ever."""
    nobody: Any = None
    store: Any = dialect_for("mssql")
    store.demand_room(nobody, [{"Destination": "𝄞" * 100}])
    with pytest.raises(RowRefused, match="202 UTF-16 units"):
        store.demand_room(nobody, [{"Destination": "𝄞" * 101}])
    endpoint: Any = StoreEndpoint(name=EndpointName("𝄞" * 128), source="x")
    assert "256 characters" in str(too_long(endpoint, "mssql"))
    assert too_long(endpoint, "oracle") is None


# ── the locks of a claim ────────────────────────────────────────────────────────────────────────


def test_a_purge_deletes_too_few_rows_at_once_to_lock_the_ledger(
    server: FakeOdbc, engine: sa.Engine, ledger: LedgerTables
) -> None:
    """They are locked when they are looked for."""
    SettledRows(engine, ledger).purge(before=statements.NOW)
    (looked,) = (each for each in server.statements() if "UPDLOCK" in each)
    assert looked.startswith("SELECT TOP 2000 ")


def test_a_look_at_many_endpoints_has_no_more_parameters_than_the_server_takes(
    server: FakeOdbc, engine: sa.Engine
) -> None:
    """With 2100 in one statement it fails (8003)."""
    _, legacy, ledger = statements.tables("mssql")
    asked = [statements.request(legacy) for _ in range(300)]
    server.answer("EXISTS", lambda: [(1,) * server.statements()[-1].count("EXISTS")])
    found = SqlClaims(engine, ledger, lambda _source: legacy).promising(asked)
    assert list(found) == asked
    looks = [
        (said.count("EXISTS"), len(values)) for said, values in server.said if "EXISTS" in said
    ]
    assert sum(endpoints for endpoints, _ in looks) == len(asked)
    assert max(values for _, values in looks) < 2100


def test_any_number_of_batches_is_taken_over_from_an_operator(
    server: FakeOdbc, engine: sa.Engine, ledger: LedgerTables
) -> None:
    """A retry of a large quarantine makes as many; they would be taken over never (8003)."""
    given = {"run_id": 7, "lane": 0, "mode": "direct", "state": "claimed", "size": 1}
    row = dict.fromkeys(ledger.batch.c.keys()) | given
    server.answer("FROM migrator.batch", [row | {"id": n} for n in range(2200)])
    server.answer(r"lease\.token", [(1,)])
    taken = SqlBatches(engine, ledger).put_in(statements.LEASE)
    assert len(taken) == 2200
    (values,) = (values for said, values in server.said if said.startswith("UPDATE"))
    assert len(values) < 2100


def test_a_lock_that_somebody_keeps_holds_up_no_claim(server: FakeOdbc, engine: sa.Engine) -> None:
    """Without row versions the look waits for it, and does not know what a claim would find."""
    _, legacy, ledger = statements.tables("mssql")
    asked, claims = [statements.request(legacy)], SqlClaims(engine, ledger, lambda _source: legacy)
    locked = "Lock request time out period exceeded. (1222) (SQLExecDirectW)"
    server.answer("EXISTS", fake_odbc.error("42000", locked))
    assert claims.promising(asked) == asked
    server.answer("EXISTS", fake_odbc.error("08S01", "Communication link failure (0) (SQL"))
    with pytest.raises(StoreUnavailable, match="link failure"):
        claims.promising(asked)


@pytest.mark.parametrize("has_key", [True, False])
def test_what_a_dispatcher_stores_locks_rows_by_their_ids(
    has_key: bool, server: FakeOdbc, engine: sa.Engine
) -> None:
    """A plan that reads the whole table would lock all of it, so that no row may come."""
    _, legacy, ledger = statements.tables("mssql")
    server.answer(r"lease\.token", [(1,)])
    server.answer("sys.index_columns", [("PK", "Id")] if has_key else [])
    endpoint = StoreEndpoint(name=EndpointName("Sales.Orders"), source=legacy.source)
    new = DelayedMessage(
        id=TimeoutId(statements.ID),
        native_id="m-1",
        destination="Billing",
        saga_id=NO_SAGA,
        due_at=statements.NOW,
        headers={},
        headers_text="{}",
        body=b"",
    )
    intake = SqlIntake(engine, ledger, lambda _source: legacy)
    intake.apply(endpoint, [new, ClearTimeouts(saga_id=statements.ID)], statements.LEASE)
    (looked,) = (each for each in server.statements() if "HOLDLOCK" in each)
    assert ("(INDEX([PK]), FORCESEEK, UPDLOCK, HOLDLOCK, ROWLOCK)" in looked) is has_key
    removed = [each for each in server.statements() if each.startswith("DELETE")]
    hints = [re.search(r"WITH \((.*?)\)", each) for each in removed]
    assert [found and found[1] for found in hints] == [
        "ROWLOCK, READPAST, READCOMMITTEDLOCK",  # of rows that this transaction has written
        "ROWLOCK",  # of a saga's, which others may be removing
    ]


def test_a_dispatcher_forgets_too_few_rows_at_once_to_lock_the_ledger(
    server: FakeOdbc, engine: sa.Engine, ledger: LedgerTables
) -> None:
    """With 20 000 as elsewhere, every lane would wait for it."""
    server.answer("SELECT SYSUTCDATETIME", [(statements.NOW.replace(tzinfo=None),)])
    server.answer("dispatched_at <", [{"id": n, "run_id": 7, "size": 1000} for n in range(9)])
    server.answer(r"lease\.token", [(1,)])
    DispatchedBatches(engine, ledger).prune(statements.LEASE, older_than=timedelta(days=1))
    (forgotten,) = (values for said, values in server.said if said.startswith("DELETE"))
    assert forgotten == (0, 1)
    assert locked_at_once(20_000, "postgresql") == 20_000
