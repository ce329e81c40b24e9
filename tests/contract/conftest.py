"""Every database the stores and the ledger support, one test run each.

The ledger is built once per kind of database; each test gets a copy, which it adopts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dev.servers import PostgresServer
from migrator.database.engine import open_engine
from migrator.ledger.migrations import upgrade
from migrator.ledger.names import names_for
from migrator.ledger.tables import build_tables
from tests.contract.site import Site


def _build_ledger(url: str) -> None:
    engine = open_engine(url)
    upgrade(engine, build_tables(names_for(engine)))
    engine.dispose()


@pytest.fixture(scope="session")
def postgresql_template(postgres_server: PostgresServer) -> str:
    """The name of a database with an empty ledger."""
    name = postgres_server.create_database()
    _build_ledger(postgres_server.url(name))
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with an empty ledger."""
    path = tmp_path_factory.mktemp("template") / "legacy.db"
    _build_ledger(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["postgresql", "sqlite"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database of each kind, with a ledger."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "legacy.db")
        yield f"sqlite:///{tmp_path}/legacy.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(template=request.getfixturevalue("postgresql_template"))
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def build_site(database_url: str) -> Iterator[Callable[..., Site]]:
    """Build a site with special options."""
    with ExitStack() as stack:

        def build(**options: Any) -> Site:
            engine = open_engine(database_url)
            stack.callback(engine.dispose)
            return Site(engine=engine, **options)

        yield build


@pytest.fixture
def site(build_site: Callable[..., Site]) -> Site:
    """A site as most are."""
    return build_site()
