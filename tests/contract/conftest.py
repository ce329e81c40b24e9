"""Every database the stores and the ledger support, one test run each.

All tests have one database of a kind after the other, emptied before each, and one engine: another
engine would compile each statement of the ledger once more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, Engine, MetaData, Table, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateSchema, DropSchema

from dev.raven_parts import MAIN, VERSIONS
from dev.servers import AzuriteServer, MariadbServer, PostgresServer, RavenServer
from migrator.database.engine import open_engine, writing
from migrator.ledger import migrations
from migrator.ledger.tables import DEFAULT_SCHEMA, PREFIX, build_tables, names_for
from tests.contract.any_site import AnySite
from tests.contract.azure_site import AzureSite
from tests.contract.nhibernate_site import NHibernateSite
from tests.contract.raven_site import REAL_SITES, Raven4Site, Raven35Site, RealRavenSite
from tests.contract.rules import Run
from tests.contract.site import Site
from tests.support.azure import LegacyAccount
from tests.support.elsewhere import Watch
from tests.support.mariadb import KIND as MARIADB
from tests.support.raven_real import RealRaven
from tests.support.ravendb import StrictRaven


@pytest.fixture(scope="session")
def sqlite_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The session's SQLite database for these tests."""
    yield from _lent(f"sqlite:///{tmp_path_factory.mktemp('contract')}/legacy.db")


@pytest.fixture(scope="session")
def postgresql_engine(postgres_server: PostgresServer) -> Iterator[Engine]:
    """The same in PostgreSQL; a database of each test's own costs ten times as much."""
    yield from _lent(postgres_server.url(postgres_server.create_database()))


@pytest.fixture(scope="session")
def mariadb_engine(mariadb_server: MariadbServer) -> Iterator[Engine]:
    """The same in MariaDB."""
    yield from _lent(mariadb_server.url(mariadb_server.create_database()))


def _lent(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    migrations.upgrade(engine, build_tables(names_for(engine)))
    yield engine
    engine.dispose()


ON_REQUEST: Final = {
    name: url
    for name, url in {
        "mysql-by-url": os.environ.get("MIGRATOR_MYSQL_URL", ""),
        "mssql": os.environ.get("MSSQL_URL", ""),
        "oracle": os.environ.get("ORACLE_URL", ""),
        "postgresql-by-url": os.environ.get("POSTGRESQL_URL", ""),
    }.items()
    if url
}
"""Databases that somebody named, by how their tests are called."""
KINDS = ["postgresql", MARIADB, "sqlite", *ON_REQUEST]
DOCUMENT_SITES: Final[dict[str, type[AnySite]]] = {
    "azurite": AzureSite,
    "ravendb-3.5": Raven35Site,
    "ravendb-4": Raven4Site,
    **{f"ravendb-{version}": site for version, site in REAL_SITES.items()},
}
"""Stores that have the ledger in a database of its own, here in SQLite."""
_FOR_FULL: Final = {"ravendb-4", *(f"ravendb-{version}" for version in VERSIONS if version != MAIN)}
"""Document stores for --full: one real RavenDB of 4 and later is asked the same in each run."""


@pytest.fixture(scope="session")
def requested_engines() -> Iterator[Mapping[str, Engine]]:
    """The databases that somebody named, each with a ledger; everything in them goes."""
    engines = {name: open_engine(url) for name, url in ON_REQUEST.items()}
    for name, engine in engines.items():
        # a schema of Oracle is a user
        owner = engine.url.username if name == "oracle" else engine.url.database
        if "test" not in str(owner).casefold():
            pytest.fail(f"tests empty the database of {name}: its name (or user) must say test")
        migrations.upgrade(engine, build_tables(names_for(engine)))
    yield engines
    for engine in engines.values():
        _empty(engine)
        engine.dispose()


_ON_MARIADB: Final = {"test_claims.py", "test_store.py", "test_ledger.py"}
"""Files that run on MariaDB as a whole, in the short form, too."""


_NOT_ON_SQLITE: Final = {
    "test_decommission.py",
    "test_dispatch_claims.py",
    "test_dispatching.py",
    "test_intake.py",
    "test_operators.py",
}
"""Files that run on SQLite with --full only; nobody has a timeout manager there."""


@pytest.fixture
def engine(request: pytest.FixtureRequest, database_kind: str) -> Engine:
    """The database of a kind, empty but for a ledger."""
    given = request.getfixturevalue
    engine: Engine = (
        given("requested_engines")[database_kind]
        if database_kind in ON_REQUEST
        else given(f"{'mariadb' if database_kind == MARIADB else database_kind}_engine")
    )
    _empty(engine)
    return engine


def _empty(engine: Engine) -> None:
    """End other sessions, and take away all but an empty ledger; a copy takes half a second."""
    tables = build_tables(names_for(engine)).metadata.sorted_tables
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(_OTHERS_OUT)
            for schema in {*inspect(connection).get_schema_names()} - {*_KEPT_SCHEMAS}:
                connection.execute(DropSchema(schema, cascade=True))
            connection.execute(CreateSchema("public"))
        elif engine.dialect.name == "mysql":
            _end_others(connection)
        for name in inspect(connection).get_table_names():
            if not name.startswith(PREFIX):
                Table(name, MetaData()).drop(connection)
        for table in reversed(tables):
            if not table.name.endswith("ledger"):
                connection.execute(table.delete())


_OTHERS_OUT: Final = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_KEPT_SCHEMAS: Final = (DEFAULT_SCHEMA, "information_schema")


def _end_others(connection: Connection) -> None:
    sessions = "information_schema.processlist WHERE db = database() AND id <> connection_id()"
    for (session,) in connection.execute(text(f"SELECT id FROM {sessions}")).all():
        with suppress(OperationalError):  # it has gone by itself
            connection.exec_driver_sql(f"KILL {session}")


@pytest.fixture
def azure_account(azurite_server: AzuriteServer) -> Iterator[LegacyAccount]:
    """An account of this test's own."""
    account = LegacyAccount(azurite_server.url())
    yield account
    account.close()


def _strict_raven(family: str) -> Iterator[StrictRaven]:
    with StrictRaven(family) as server:
        yield server
    assert server.violations == []


@pytest.fixture
def strict_raven_35() -> Iterator[StrictRaven]:
    """A server that knows what is documented of RavenDB 3.5, and no more."""
    yield from _strict_raven("3.5")


@pytest.fixture
def strict_raven_4() -> Iterator[StrictRaven]:
    """The same of 4 and later."""
    yield from _strict_raven("4")


@pytest.fixture(scope="session")
def real_ravens(
    raven_servers: Callable[[str], RavenServer],
) -> Iterator[Callable[[str], RealRaven]]:
    """Give the session's database of a version of RavenDB for these tests."""
    with ExitStack() as stack:

        @cache
        def of(version: str) -> RealRaven:
            server = raven_servers(version)
            return stack.enter_context(RealRaven(server, server.create_database()))

        yield of


@pytest.fixture
def real_raven_database(
    real_ravens: Callable[[str], RealRaven], site_kind: type[RealRavenSite]
) -> RealRaven:
    """The database of the version that a site is of, emptied."""
    database = real_ravens(site_kind.server_version)
    database.empty()
    return database


@pytest.fixture(scope="session")
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """Who looks at statements as others would be told them."""
    with Watch(accepts=request.config.getoption("--snapshot-update")) as watch:
        yield watch


@pytest.fixture(autouse=True)
def _every_statement_was_read(watch: Watch) -> Iterator[None]:
    """Fail a test whose statements nobody has read as they are for other databases."""
    watch.forget()
    yield
    found = watch.flaws()
    assert not found, "\n".join(found)


# ── which tests run on which stores ─────────────────────────────────────────────────────────────


COLLECTED: Final = pytest.StashKey[Sequence[Run]]()
"""Every run of these tests that was collected, also what is left out afterwards."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Leave to --full what tells little of MariaDB, and remember what runs where."""
    _leave_to_full(items)
    config.stash[COLLECTED] = [
        Run(
            file=item.path.stem,
            test=str(getattr(item, "originalname", item.name)),
            store=_store_of(item),
            is_slow=item.get_closest_marker("slow") is not None,
        )
        for item in items
        if item.path.parent == Path(__file__).parent
    ]


def _store_of(item: pytest.Item) -> str:
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    site, database = params.get("site_kind"), params.get("database_kind")
    for name, kind in DOCUMENT_SITES.items():
        if site is kind:
            return name
    if site is None:
        return str(params.get("store_kind", ""))
    return f"{database}-{'nhibernate' if site is NHibernateSite else 'sql'}"


def _leave_to_full(items: Sequence[pytest.Item]) -> None:
    """It is the same SQL as of the others."""
    for item in items:
        params: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        kind, site, file = params.get("database_kind"), params.get("site_kind"), item.path.name
        marker = item.get_closest_marker("every_store")
        is_telling = file in _ON_MARIADB or (marker and not marker.kwargs.get("slow"))
        # the ledger beside document stores is no rehearsal
        is_rehearsal = site is NHibernateSite or (site is Site and file in _NOT_ON_SQLITE)
        if (kind == MARIADB and not is_telling) or (kind == "sqlite" and is_rehearsal):
            item.add_marker(pytest.mark.slow)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every store that its marks name, beside the ledgers that go with it."""
    if "site_kind" in metafunc.fixturenames:
        metafunc.parametrize(("database_kind", "site_kind"), list(_places(metafunc)))
    elif "database_kind" in metafunc.fixturenames:
        metafunc.parametrize("database_kind", KINDS)


def _places(metafunc: pytest.Metafunc) -> Iterator[Any]:
    """Yield ledger and kind of site of each run of a test."""
    has = metafunc.definition.get_closest_marker
    every, documents = has("every_store"), has("documents")
    others = [pytest.mark.slow] if every and every.kwargs.get("slow") else []
    if has("shared_table"):
        for kind in KINDS:
            yield pytest.param(kind, NHibernateSite, id=f"{kind}-nhibernate")
        return
    for kind in KINDS if not documents else ():
        yield pytest.param(kind, Site, id=f"{kind}-sql")
        if every and not has("own_table"):
            yield pytest.param(kind, NHibernateSite, id=f"{kind}-nhibernate", marks=others)
    if documents or (every and not has("tables") and not has("own_table")):
        only = (documents and documents.args) or DOCUMENT_SITES
        rarely = documents.kwargs.get("rarely", ()) if documents else ()
        for name, site in DOCUMENT_SITES.items():
            if name in only:
                marks = [pytest.mark.slow] if name in _FOR_FULL or name in rarely else others
                yield pytest.param("sqlite", site, id=name, marks=marks)


@pytest.fixture
def build_site(
    request: pytest.FixtureRequest, engine: Engine, site_kind: type[AnySite]
) -> Iterator[Callable[..., AnySite]]:
    """Build a site with special options."""
    with ExitStack() as stack:
        needs = {"legacy": request.getfixturevalue(site_kind.needs)} if site_kind.needs else {}

        def build(**options: Any) -> AnySite:
            site = site_kind(engine=engine, **needs, **options)
            stack.callback(site.close)
            return site

        yield build


@pytest.fixture
def site(build_site: Callable[..., AnySite]) -> AnySite:
    """A site as most are."""
    return build_site()
