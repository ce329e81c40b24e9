"""The migrations lead to exactly the tables the program works with."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event, insert, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.schema import CreateSchema

from dev.servers import MariadbServer
from migrator.database.engine import open_engine, writing
from migrator.errors import LedgerError, LedgerMissing
from migrator.ledger.identity import check_identity
from migrator.ledger.migrations import _config, sql, upgrade
from migrator.ledger.names import DEFAULT_SCHEMA, names_for
from migrator.ledger.tables import LedgerTables, build_tables
from migrator.ledger.version import check_head, current, head, script_location
from tests.support.mariadb import KIND as MARIADB

_SERVERS = {"postgresql": "database", MARIADB: "mariadb_database"}


@pytest.fixture(params=["postgresql", MARIADB, "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database of each kind."""
    server = _SERVERS.get(request.param)
    url = f"sqlite:///{tmp_path}/x.db" if server is None else request.getfixturevalue(server)
    found = open_engine(url)
    yield found
    found.dispose()


@pytest.fixture(params=[DEFAULT_SCHEMA, "Other ledger"])
def tables(request: pytest.FixtureRequest, engine: Engine) -> LedgerTables:
    """The ledger's tables, in the default schema and in another one."""
    if request.param != DEFAULT_SCHEMA and engine.dialect.name == "mysql":
        pytest.skip("it has no schemas, and making the ledger twice takes a second")
    return build_tables(names_for(engine, request.param))


def _differences(engine: Engine, tables: LedgerTables) -> list[object]:
    own = tables.names.schema

    def is_ours(name: str | None, kind: str, parents: object) -> bool:
        del parents
        if kind == "schema":
            return name == own
        return kind != "table" or not str(name).endswith("alembic_version")

    options = {"include_schemas": own is not None, "include_name": is_ours, "compare_type": True}
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, tables.metadata))


def test_upgrade_from_nothing_equals_the_tables(engine: Engine, tables: LedgerTables) -> None:
    """Columns, types, keys and indexes are the same."""
    upgrade(engine, tables)
    assert _differences(engine, tables) == []
    assert current(engine, tables) == head()
    check_head(engine, tables)


def test_upgrading_twice_is_harmless(engine: Engine, tables: LedgerTables) -> None:
    """The ledger keeps its id."""
    upgrade(engine, tables)
    ledger_id = check_identity(engine, tables)
    upgrade(engine, tables)
    assert check_identity(engine, tables) == ledger_id


def test_two_upgrades_at_once_are_harmless(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first and finds nothing to do."""
    # SQLite has no lock of its own for upgrades; a busy machine needs longer for one
    monkeypatch.setattr("migrator.database.engine.LOCK_TIMEOUT", timedelta(seconds=60))
    tables = build_tables(names_for(engine))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: upgrade(engine, tables), range(2)))
    check_head(engine, tables)
    assert check_identity(engine, tables)


def test_a_missing_ledger_names_the_remedy(engine: Engine, tables: LedgerTables) -> None:
    """Nothing is created on the way."""
    assert current(engine, tables) is None
    with pytest.raises(LedgerMissing, match="migrator db upgrade"):
        check_head(engine, tables)
    assert current(engine, tables) is None


@pytest.mark.parametrize(("version", "remedy"), [("9999", "newer"), ("0000", "db upgrade")])
def test_another_version_is_refused(engine: Engine, version: str, remedy: str) -> None:
    """Older and newer ledgers want different things from the operator."""
    tables = build_tables(names_for(engine))
    upgrade(engine, tables)
    table = (
        "migrator_alembic_version" if tables.names.schema is None else "migrator.alembic_version"
    )
    with writing(engine) as connection:
        connection.execute(text(f"UPDATE {table} SET version_num = '{version}'"))
    with pytest.raises(LedgerMissing, match=remedy):
        check_head(engine, tables)
    if version > head():
        with pytest.raises(LedgerMissing, match=remedy):
            upgrade(engine, tables)
        assert current(engine, tables) == version


def test_a_failed_upgrade_leaves_nothing_behind(database: str) -> None:
    """An obstacle in the way of the last view rolls everything back."""
    engine = open_engine(database)
    tables = build_tables(names_for(engine))
    with writing(engine) as connection:
        connection.execute(text("CREATE SCHEMA migrator"))
        connection.execute(text("CREATE TABLE migrator.progress (x integer)"))
    with pytest.raises(LedgerError, match="upgrading the ledger"):
        upgrade(engine, tables)
    assert current(engine, tables) is None
    engine.dispose()


@pytest.mark.parametrize("schema", [DEFAULT_SCHEMA, "Other ledger"])
def test_the_printed_sql_builds_the_same_ledger(database: str, schema: str) -> None:
    """A DBA who runs it gets what ``upgrade`` makes; the first upgrade then only adds the id."""
    engine = open_engine(database)
    tables = build_tables(names_for(engine, schema))
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.autocommit = True
        driver.execute(sql("postgresql", schema))
        driver.autocommit = False
    assert _differences(engine, tables) == []
    check_head(engine, tables)
    upgrade(engine, tables)
    assert check_identity(engine, tables)
    engine.dispose()


def test_the_printed_sql_builds_the_same_ledger_on_mariadb(
    mariadb_database: str, mariadb_server: MariadbServer
) -> None:
    """Whoever runs it with the server's own program gets what ``upgrade`` makes."""
    engine = open_engine(mariadb_database)
    tables = build_tables(names_for(engine))
    mariadb_server.sql(sql("mysql", "unused"), mariadb_database.rpartition("/")[2])
    assert _differences(engine, tables) == []
    check_head(engine, tables)
    upgrade(engine, tables)
    assert check_identity(engine, tables)
    engine.dispose()


class _KilledError(Exception):
    """Stands for the end of the process."""


def test_an_upgrade_killed_after_any_statement_is_finished_by_later_ones(
    mariadb_database: str,
) -> None:
    """Where each statement commits by itself, every upgrade goes on from where the last ended."""
    engine = open_engine(mariadb_database)
    tables = build_tables(names_for(engine))
    changes = ("CREATE", "ALTER", "UPDATE", "INSERT")
    run = list[str]()

    def kill(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().startswith(changes) and statement not in run:
            run.append(statement)
            raise _KilledError

    event.listen(engine, "after_cursor_execute", kill)
    for _ in range(100):
        try:
            upgrade(engine, tables)
        except _KilledError:
            continue
        break
    event.remove(engine, "after_cursor_execute", kill)
    made = [statement for statement in run if "CREATE TABLE" in statement]
    assert len(made) == len({*made}) == len(tables.metadata.tables) + 1  # and alembic's own
    assert _differences(engine, tables) == []
    check_head(engine, tables)
    upgrade(engine, tables)
    assert check_identity(engine, tables)
    engine.dispose()


def _upgrade_to(engine: Engine, tables: LedgerTables, version: str) -> None:
    with writing(engine) as connection:
        if tables.names.schema is not None:
            connection.execute(CreateSchema(tables.names.schema))
        command.upgrade(_config(tables, connection=connection), version)


def _old_rows(engine: Engine, tables: LedgerTables) -> list[list[tuple[object, ...]]]:
    """Return what is in the columns that 0001 has."""
    new = {"dispatched_at", "serves", "purged", "claiming_at", "releasing_at"}
    new |= {"store_version", "store_extra", "going_back", "ledger_id", "position"}
    wanted = [
        [column for column in table.columns if column.name not in new]
        for table in (tables.run, tables.batch, tables.timeout, tables.lease, tables.event)
    ]
    with engine.connect() as connection:
        return [[tuple(row) for row in connection.execute(select(*each))] for each in wanted]


def test_a_ledger_with_data_is_upgraded_and_keeps_it(engine: Engine, tables: LedgerTables) -> None:
    """What 0001 wrote is there afterwards, value by value, and new columns are empty."""
    _upgrade_to(engine, tables, "0001")
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with writing(engine) as connection:
        connection.execute(
            insert(tables.run).values(
                id=1,
                endpoint="Sales",
                source="s",
                options="{}",
                tool_version="0",
                status="done",
                begun_at=now,
            )
        )
        connection.execute(
            insert(tables.batch).values(
                id=1,
                run_id=1,
                endpoint="Sales",
                source="s",
                lane=0,
                mode="staged",
                state="handed_over",
                attempt=1,
                size=1,
                body_bytes=1,
                lease_token=1,
                handed_over_at=now,
            )
        )
        connection.execute(
            insert(tables.timeout).values(
                id=1,
                source="s",
                endpoint="Sales",
                store_id="a",
                batch_id=1,
                row_index=0,
                due=now,
                body=b"\x00",
                content_hash="x",
            )
        )
        for lane in (0, 1):
            connection.execute(
                insert(tables.lease).values(name=f"lane.{lane}", token=1, until=now, renewed_at=now)
            )
        connection.execute(insert(tables.event).values(at=now, kind="x", actor="me", detail="{}"))
    before = _old_rows(engine, tables)
    upgrade(engine, tables)
    assert _differences(engine, tables) == []
    assert _old_rows(engine, tables) == before
    with engine.connect() as connection:
        assert connection.scalars(select(tables.batch.c.dispatched_at)).all() == [None]
        assert connection.scalars(select(tables.lease.c.serves)).all() == [None, None]
        assert connection.scalars(select(tables.batch.c.purged)).all() == [0]


def test_what_older_versions_purged_is_counted_by_the_upgrade(engine: Engine) -> None:
    """Of settled batches, what is not there was purged; of others it is gone."""
    tables = build_tables(names_for(engine))
    _upgrade_to(engine, tables, "0002")
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    whose: dict[str, Any] = {"endpoint": "Sales", "source": "s"}
    settings = {"options": "{}", "tool_version": "0", "status": "done", "begun_at": now}
    numbers = {"lane": 0, "mode": "staged", "attempt": 1, "body_bytes": 1, "lease_token": 1}
    batches = [("handed_over", 3, 1), ("dispatched", 2, 0), ("released", 1, 2), ("claimed", 4, 1)]
    with writing(engine) as connection:
        connection.execute(insert(tables.run).values(id=1, **whose, **settings))
        for number, (state, size, rows) in enumerate(batches, start=1):
            connection.execute(
                insert(tables.batch).values(
                    id=number, run_id=1, state=state, size=size, **whose, **numbers
                )
            )
            for index in range(rows):
                connection.execute(
                    insert(tables.timeout).values(
                        store_id=f"{number}.{index}",
                        batch_id=number,
                        row_index=index,
                        due=now,
                        content_hash="x",
                        **whose,
                    )
                )
    upgrade(engine, tables)
    purged = select(tables.batch.c.purged).order_by(tables.batch.c.id)
    with engine.connect() as connection:
        assert connection.scalars(purged).all() == [2, 2, 0, 0]


def test_two_lanes_never_serve_one_source(engine: Engine) -> None:
    """The database itself refuses a second dispatcher's lane."""
    tables = build_tables(names_for(engine))
    upgrade(engine, tables)
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    values = {"token": 0, "until": now, "renewed_at": now, "serves": "s"}
    with writing(engine) as connection:
        connection.execute(insert(tables.lease).values(name="lane.1000", **values))
    with pytest.raises(IntegrityError), writing(engine) as connection:
        connection.execute(insert(tables.lease).values(name="lane.1001", **values))


def test_the_newest_script_is_the_head_of_all() -> None:
    """``head`` goes by the names of the files; Alembic reads in them who follows whom."""
    assert head() == ScriptDirectory(str(script_location())).get_current_head()


def test_a_running_program_needs_what_it_needed_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may take the scripts away under a daemon, or put newer ones there."""
    needed = head()
    monkeypatch.setattr("migrator.ledger.version.script_location", lambda: tmp_path)
    assert head() == needed
