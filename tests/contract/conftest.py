"""Every database the stores and the ledger support, one test run each.

Of SQLite each test gets a copy of one file, which it adopts; in PostgreSQL and in MariaDB all of
them have one database after the other, emptied before each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import OperationalError

from dev.servers import MariadbServer, PostgresServer
from migrator.database.engine import open_engine, writing
from migrator.ledger import migrations
from migrator.ledger.identity import enter_identity
from migrator.ledger.names import DEFAULT_SCHEMA, names_for
from migrator.ledger.tables import build_tables
from tests.contract.nhibernate_site import NHibernateSite
from tests.contract.site import Site


def _build_ledger(url: str) -> None:
    engine = open_engine(url)
    migrations.upgrade(engine, build_tables(names_for(engine)))
    engine.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """A PostgreSQL database that one test after the other is given, as good as new each time."""

    server: PostgresServer
    name: str
    ledger_sql: str

    def renew(self) -> None:
        """Drop everything in it, whoever still uses it, and make an empty ledger.

        A database of its own for each test would cost ten times as much.
        """
        url = self.server.url(self.name)
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(_OTHERS_OUT)
            for (schema,) in connection.execute(_SCHEMAS).fetchall():
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            connection.execute("CREATE SCHEMA public")
            connection.execute(self.ledger_sql.encode())
        engine = open_engine(url)
        with writing(engine) as connection:
            enter_identity(connection, build_tables(names_for(engine)))
        engine.dispose()


_OTHERS_OUT = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_SCHEMAS = """
SELECT nspname FROM pg_namespace
WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"""


@pytest.fixture(scope="session")
def lent(postgres_server: PostgresServer) -> Lent:
    """The session's database for these tests."""
    ledger_sql = migrations.sql("postgresql", DEFAULT_SCHEMA)
    return Lent(
        server=postgres_server, name=postgres_server.create_database(), ledger_sql=ledger_sql
    )


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with an empty ledger."""
    path = tmp_path_factory.mktemp("template") / "legacy.db"
    _build_ledger(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def mariadb_engine(mariadb_server: MariadbServer) -> Iterator[Engine]:
    """The session's MariaDB database for these tests, with a ledger."""
    url = mariadb_server.url(mariadb_server.create_database())
    _build_ledger(url)
    engine = open_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def mysql_engine() -> Iterator[Engine]:
    """A database of a MySQL server that somebody named; everything in it goes."""
    engine = open_engine(MYSQL_URL)
    if "test" not in str(engine.url.database):
        pytest.fail("tests empty the database of MIGRATOR_MYSQL_URL: its name must say test")
    migrations.upgrade(engine, build_tables(names_for(engine)))
    yield engine
    engine.dispose()


MYSQL_URL = os.environ.get("MIGRATOR_MYSQL_URL", "")
KINDS = ["postgresql", "mariadb", "sqlite", *(["mysql"] if MYSQL_URL else [])]


_ON_MARIADB: Final = {"test_claims.py", "test_store.py", "test_ledger.py"}
"""Files that run on MariaDB as a whole, in the short form, too."""


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database of each kind, with a ledger."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "legacy.db")
        yield f"sqlite:///{tmp_path}/legacy.db"
        return
    if request.param in {"mariadb", "mysql"}:
        engine: Engine = request.getfixturevalue(f"{request.param}_engine")
        _empty(engine)
        yield engine.url.render_as_string(hide_password=False)
        return
    lent: Lent = request.getfixturevalue("lent")
    lent.renew()
    yield lent.server.url(lent.name)


def _empty(engine: Engine) -> None:
    """End other sessions, and take away all but an empty ledger; a copy takes half a second."""
    ledger = build_tables(names_for(engine)).metadata.sorted_tables
    with writing(engine) as connection:
        sessions = "information_schema.processlist WHERE db = database() AND id <> connection_id()"
        for (session,) in connection.execute(text(f"SELECT id FROM {sessions}")).all():
            with suppress(OperationalError):  # it has gone by itself
                connection.exec_driver_sql(f"KILL {session}")
        for name in inspect(connection).get_table_names():
            if not name.startswith("migrator_"):
                connection.exec_driver_sql(f"DROP TABLE `{name.replace('%', '%%')}`")
        for table in reversed(ledger):
            if table.name != "migrator_ledger":
                connection.execute(table.delete())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave to --full what tells little of MariaDB: it is the same SQL as of the others."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("database_url") != "mariadb":
            continue
        marker = item.get_closest_marker("every_store")
        is_telling = marker is not None and not marker.kwargs.get("slow")
        if not is_telling and item.path.name not in _ON_MARIADB:
            item.add_marker(pytest.mark.slow)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over every kind of store, where it is marked so."""
    if "site_kind" not in metafunc.fixturenames:
        return
    shared = pytest.param(NHibernateSite, id="nhibernate")
    if metafunc.definition.get_closest_marker("shared_table"):
        metafunc.parametrize("site_kind", [shared])
        return
    kinds: list[Any] = [pytest.param(Site, id="sql")]
    marker = metafunc.definition.get_closest_marker("every_store")
    if marker and not metafunc.definition.get_closest_marker("own_table"):
        slow = [pytest.mark.slow] if marker.kwargs.get("slow") else []
        kinds.append(pytest.param(NHibernateSite, id="nhibernate", marks=slow))
    metafunc.parametrize("site_kind", kinds)


@pytest.fixture
def build_site(database_url: str, site_kind: type[Site]) -> Iterator[Callable[..., Site]]:
    """Build a site with special options."""
    with ExitStack() as stack:

        def build(**options: Any) -> Site:
            engine = open_engine(database_url)
            stack.callback(engine.dispose)
            return site_kind(engine=engine, **options)

        yield build


@pytest.fixture
def site(build_site: Callable[..., Site]) -> Site:
    """A site as most are."""
    return build_site()
