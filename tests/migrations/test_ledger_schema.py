"""The migrations lead to exactly the tables the program works with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
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

from dev.servers import MariadbServer
from migrator.database.engine import open_engine, writing
from migrator.errors import LedgerError, LedgerMissing
from migrator.ledger.identity import check_identity
from migrator.ledger.migrations import _config, sql, upgrade
from migrator.ledger.tables import DEFAULT_SCHEMA, LedgerTables, build_tables, names_for
from migrator.ledger.version import check_head, current, head, script_location
from tests.support.mariadb import KIND as MARIADB

_CHANGES = ("CREATE", "ALTER", "UPDATE", "INSERT")
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


def _upgrade_killed_after_each_statement(engine: Engine, tables: LedgerTables) -> list[str]:
    """Upgrade until one upgrade lives; return every statement that changed something."""
    run = list[str]()

    def kill(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().startswith(_CHANGES) and statement not in run:
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
    return run


def test_an_upgrade_killed_after_any_statement_is_finished_by_later_ones(
    mariadb_database: str,
) -> None:
    """Where each statement commits by itself, every upgrade goes on from where the last ended."""
    engine = open_engine(mariadb_database)
    tables = build_tables(names_for(engine))
    run = _upgrade_killed_after_each_statement(engine, tables)
    made = [statement for statement in run if "CREATE TABLE" in statement]
    assert len(made) == len({*made}) == len(tables.metadata.tables) + 1  # and alembic's own
    assert _differences(engine, tables) == []
    check_head(engine, tables)
    upgrade(engine, tables)
    assert check_identity(engine, tables)
    engine.dispose()


_NEXT_SCRIPT = """
import sqlalchemy as sa
from alembic import context, op

revision = "0002"
down_revision = "0001"


def upgrade():
    names = context.config.attributes["names"]
    batch = names.table("batch")
    op.add_column(batch, sa.Column("later", sa.Integer, nullable=True), schema=names.schema)
    op.create_index(names.table("batch_later"), batch, ["later"], schema=names.schema)
    table = sa.table(batch, sa.column("size"), sa.column("later"), schema=names.schema)
    op.execute(sa.update(table).values(later=table.c.size))
"""


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Return what makes this program the next one: it has one more script."""
    scripts = tmp_path / "scripts"

    def install() -> None:
        shutil.copytree(script_location(), scripts)
        (scripts / "versions" / "0002_next.py").write_text(_NEXT_SCRIPT)
        for module in ("version", "migrations"):
            monkeypatch.setattr(f"migrator.ledger.{module}.script_location", lambda: scripts)
        head.cache_clear()

    yield install
    head.cache_clear()


def _rows(engine: Engine, tables: LedgerTables) -> list[list[tuple[object, ...]]]:
    """Return what is in every column of every table of this release."""
    with engine.connect() as connection:
        return [
            [tuple(row) for row in connection.execute(select(table))]
            for table in tables.metadata.sorted_tables
        ]


def _fill(engine: Engine, tables: LedgerTables) -> None:
    """Write one row into each table."""
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    whose: dict[str, Any] = {"endpoint": "Sales", "source": "s"}
    run = {"options": "{}", "tool_version": "0", "status": "done", "begun_at": now}
    batch = {"lane": 0, "mode": "staged", "attempt": 1, "size": 1, "body_bytes": 1}
    batch |= {"lease_token": 1, "state": "handed_over", "handed_over_at": now}
    row = {"store_id": "a", "row_index": 0, "due": now, "body": b"\x00", "content_hash": "x"}
    waiting = {"destination": "d", "reason": "x", "detail": "", "tries": 1}
    with writing(engine) as connection:
        for table, values in (
            (tables.run, {"id": 1, **whose, **run}),
            (tables.batch, {"id": 1, "run_id": 1, **whose, **batch}),
            (tables.timeout, {"id": 1, "batch_id": 1, **whose, **row}),
            (tables.lease, {"name": "lane.0", "token": 1, "until": now, "renewed_at": now}),
            (tables.held_destination, {**whose, **waiting, "since": now, "next_try_at": now}),
            (tables.event, {"at": now, "kind": "x", "actor": "me", "detail": "{}"}),
        ):
            connection.execute(insert(table).values(**values))


def test_a_ledger_with_data_is_upgraded_and_keeps_it(
    engine: Engine, tables: LedgerTables, next_release: Callable[[], None]
) -> None:
    """What this release wrote is there after the next one's upgrade, value by value."""
    upgrade(engine, tables)
    _fill(engine, tables)
    before = _rows(engine, tables)
    next_release()
    with pytest.raises(LedgerMissing, match="has version 0001, this program needs 0002"):
        check_head(engine, tables)
    upgrade(engine, tables)
    check_head(engine, tables)
    assert _rows(engine, tables) == before


def test_an_upgrade_of_data_killed_after_any_statement_is_finished_by_later_ones(
    mariadb_database: str, next_release: Callable[[], None]
) -> None:
    """A column, an index and a rule for old rows come once each."""
    engine = open_engine(mariadb_database)
    tables = build_tables(names_for(engine))
    upgrade(engine, tables)
    _fill(engine, tables)
    before = _rows(engine, tables)
    next_release()
    made = _upgrade_killed_after_each_statement(engine, tables)
    assert sum("ADD COLUMN later" in statement for statement in made) == 1
    assert sum("CREATE INDEX" in statement for statement in made) == 1
    check_head(engine, tables)
    assert _rows(engine, tables) == before
    engine.dispose()


def test_no_version_can_be_taken_back(engine: Engine) -> None:
    """The ledger is the only memory of what was handed over: a backup is the way back."""
    tables = build_tables(names_for(engine))
    upgrade(engine, tables)
    with (
        pytest.raises(NotImplementedError, match="restore a backup"),
        writing(engine) as connection,
    ):
        command.downgrade(_config(tables, connection=connection), "base")
    check_head(engine, tables)


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
