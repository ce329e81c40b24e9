"""The migrations lead to exactly the tables the program works with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Engine, MetaData, String, Table, event, insert, text, update

from dev.servers import MariadbServer
from migrator.database.engine import open_engine, writing
from migrator.errors import LedgerError, LedgerMissing
from migrator.ledger.identity import check_identity
from migrator.ledger.migrations import _config, sql, upgrade
from migrator.ledger.tables import DEFAULT_SCHEMA, LedgerTables, build_tables, names_for
from migrator.ledger.version import VERSION_TABLE, check_head, current, head, script_location
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


@pytest.fixture
def tables(engine: Engine) -> LedgerTables:
    """The ledger's tables."""
    return build_tables(names_for(engine))


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


@pytest.mark.parametrize("schema", [DEFAULT_SCHEMA, "Other ledger"])
def test_upgrade_from_nothing_equals_the_tables(engine: Engine, schema: str) -> None:
    """Columns, types, keys and indexes; before it nothing is made, and repeating is harmless."""
    if schema != DEFAULT_SCHEMA and engine.dialect.name == "mysql":
        pytest.skip("it has no schemas, and making the ledger twice takes a second")
    tables = build_tables(names_for(engine, schema))
    with pytest.raises(LedgerMissing, match="migrator db upgrade"):
        check_head(engine, tables)
    assert current(engine, tables) is None
    upgrade(engine, tables)
    assert _differences(engine, tables) == []
    ledger_id = _check_complete(engine, tables)
    upgrade(engine, tables)
    assert check_identity(engine, tables) == ledger_id
    with (
        pytest.raises(NotImplementedError, match="restore a backup"),
        writing(engine) as connection,
    ):
        command.downgrade(_config(tables, connection=connection), "base")
    _check_complete(engine, tables)


def _check_complete(engine: Engine, tables: LedgerTables) -> str:
    """Demand a whole ledger of this version; the id it has."""
    assert current(engine, tables) == head()
    check_head(engine, tables)
    upgrade(engine, tables)
    return check_identity(engine, tables)


def test_two_upgrades_at_once_are_harmless(
    engine: Engine, tables: LedgerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits for the first and finds nothing to do."""
    # SQLite has no lock of its own for upgrades; a busy machine needs longer for one
    monkeypatch.setattr("migrator.database.engine.LOCK_TIMEOUT", timedelta(seconds=60))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: upgrade(engine, tables), range(2)))
    _check_complete(engine, tables)


def test_another_version_is_refused(engine: Engine, tables: LedgerTables) -> None:
    """Older and newer ledgers want different things from the operator."""
    upgrade(engine, tables)
    version = MetaData(schema=tables.names.schema)
    table = Table(tables.names.table(VERSION_TABLE), version, Column("version_num", String))
    for found, remedy in (("0000", "db upgrade"), ("9999", "newer")):
        with writing(engine) as connection:
            connection.execute(update(table).values(version_num=found))
        with pytest.raises(LedgerMissing, match=remedy):
            check_head(engine, tables)
    with pytest.raises(LedgerMissing, match="newer"):
        upgrade(engine, tables)
    assert current(engine, tables) == "9999"


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
    with psycopg.connect(database.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(sql("postgresql", schema).encode())
    assert _differences(engine, tables) == []
    assert _check_complete(engine, tables)
    engine.dispose()


def test_the_printed_sql_builds_the_same_ledger_on_mariadb(
    mariadb_database: str, mariadb_server: MariadbServer
) -> None:
    """Whoever runs it with the server's own program gets what ``upgrade`` makes."""
    engine = open_engine(mariadb_database)
    tables = build_tables(names_for(engine))
    mariadb_server.sql(sql("mysql", "unused"), mariadb_database.rpartition("/")[2])
    assert _differences(engine, tables) == []
    assert _check_complete(engine, tables)
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


_NEXT_SCRIPT: Final = """
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


def test_an_upgrade_killed_after_any_statement_is_finished_by_later_ones(
    mariadb_database: str, next_release: Callable[[], None]
) -> None:
    """Where each statement commits by itself, every upgrade goes on from where the last ended."""
    engine = open_engine(mariadb_database)
    tables = build_tables(names_for(engine))
    run = _upgrade_killed_after_each_statement(engine, tables)
    made = [statement for statement in run if "CREATE TABLE" in statement]
    assert len(made) == len({*made}) == len(tables.metadata.tables) + 1  # and alembic's own
    assert _differences(engine, tables) == []
    assert _check_complete(engine, tables)

    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    whose: dict[str, Any] = {"id": 1, "endpoint": "Sales", "source": "s"}
    begun = {"options": "{}", "tool_version": "0", "status": "done", "begun_at": now}
    batch = {"run_id": 1, "lane": 0, "mode": "staged", "state": "claimed", "attempt": 0}
    batch |= {"size": 3, "body_bytes": 1, "lease_token": 1}
    with writing(engine) as connection:
        connection.execute(insert(tables.run).values(whose | begun))
        connection.execute(insert(tables.batch).values(whose | batch))
    next_release()
    with pytest.raises(LedgerMissing, match="has version 0001, this program needs 0002"):
        check_head(engine, tables)
    run = _upgrade_killed_after_each_statement(engine, tables)
    assert sum("ADD COLUMN later" in statement for statement in run) == 1
    assert sum("CREATE INDEX" in statement for statement in run) == 1
    assert _check_complete(engine, tables)
    with engine.connect() as connection:
        later = text(f"SELECT size, later FROM {tables.batch.name}")
        assert connection.execute(later).all() == [(3, 3)]
    engine.dispose()


def test_the_head_is_that_of_all_scripts_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may take the scripts away under a daemon, or put newer ones there."""
    needed = head()
    assert needed == ScriptDirectory(str(script_location())).get_current_head()
    monkeypatch.setattr("migrator.ledger.version.script_location", lambda: tmp_path)
    assert head() == needed
