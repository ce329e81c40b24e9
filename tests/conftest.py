"""Real servers for the tests: one RabbitMQ node and one server per database for a whole run.

``dev/test`` starts them and tells where they are (TEST_SERVERS); without it a session starts its
own when the first test asks. A test that disturbs a server takes a private one. Where servers
cannot be had, tests are skipped with the reason; with ``CI`` in the environment they fail instead.
"""

from __future__ import annotations

import gc
import os
import re
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest
import trustme
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from dev.cluster import Cluster
from dev.raven_parts import MAIN
from dev.servers import (
    AzuriteServer,
    MariadbServer,
    PostgresServer,
    RabbitNode,
    RavenServer,
    ServerMissingError,
    TlsFiles,
    shared,
)
from tests.support import cannot_run
from tests.support.mariadb import KIND, new_server
from tests.support.proxy import Proxy
from tests.support.raven_real import RealRaven

S = TypeVar("S", PostgresServer, MariadbServer, AzuriteServer, RavenServer, RabbitNode)

ONE_BY_ONE: Final = (
    *("alarm", r"test_store_mariadb\.py", "test_cluster.*staged", "test_cluster"),
    *(r"browser/test_pages\.py", r"docs/test_reference\.py", r"docs/test_site\.py"),
    r"e2e/test_package\.py",
    *(
        rf"integration/test_{each}\.py"
        for each in (
            "broker_(link|destinations)",
            "broker_satellites",
            "broker_staging",
            "level_scan",
        )
    ),
    *(
        rf"contract/.*\[.*{each}"
        for each in ("postgresql", "mariadb", "sqlite", "azurite", "ravendb")
    ),
)
"""Tests whose names match one of these, the first that does, share private servers, a browser, a
bare machine, what is built from all pages, levels, or a store with the statements that were
compiled for it; in one process these are made only once, and no two make them in the same folder.
The faults of a cluster take most of an hour, so two processes share them."""
LONG: Final = frozenset({"browser", "e2e"})
"""Folders whose tests take longest: begun last, one of them would be waited for alone."""

# How long an example takes is the machine's affair, and how many are thrown away is chance's.
settings.register_profile(
    "any-machine",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)
settings.load_profile("any-machine")

_BROKER_FIXTURES = {"rabbit_node", "rabbit_tls_node", "vhost", "alarm_vhost"}
_MARIADB_FIXTURES = {"mariadb_server", "mariadb_database"}
_DATABASE_FIXTURES = {"postgres_server", "database", *_MARIADB_FIXTURES}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a person accept what a snapshot says now, after reading the difference."""
    parser.addoption("--snapshot-update", action="store_true", help="rewrite reviewed snapshots")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Have ``--dist loadscope`` keep together what shares a private server, and nothing else."""
    return _Together(config, log) if config.getvalue("dist") == "loadscope" else None


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return next((each for each in ONE_BY_ONE if re.search(each, nodeid)), nodeid)


def pytest_configure() -> None:
    """End on SIGTERM as on Ctrl-C, so that fixtures still close their servers.

    Thousands of tests are found, and none of them is garbage: to look for some takes a third of
    the time.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from here on, but not among the tests."""
    gc.freeze()
    gc.enable()


_ACCOUNT: Final = re.compile(
    r"attempted (?P<attempted>\d+), found (?P<found>\d+), lost (?P<lost>\d+), "
    r"duplicated (?P<duplicated>\d+), foreign (?P<foreign>\d+), early (?P<early>\d+)"
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests say of themselves, in any process, and the sum of what they account for.

    The former by ``record_property("told", …)``, the latter by printing an account of timeouts.
    """
    passed, sums, tests = terminalreporter.getreports("passed"), Counter[str](), 0
    for report in passed:
        for name, value in report.user_properties:
            if name == "told":
                terminalreporter.write_line(str(value))
        if report.when == "call":
            accounts = [*_ACCOUNT.finditer(report.capstdout)]
            tests += bool(accounts)
            for account in accounts:
                sums.update({name: int(number) for name, number in account.groupdict().items()})
    if tests:
        told = ", ".join(f"{name} {number}" for name, number in sums.items())
        terminalreporter.write_line(f"accounts of timeouts in {tests} tests: {told}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the servers its fixtures need, and put the longest first.

    ``dev/test`` has to find the punctual. Otherwise the order stays as it is: by chance.
    """
    items.sort(key=lambda item: LONG.isdisjoint(item.path.parts))
    for item in items:
        if item.get_closest_marker("punctual") and "mark.punctual" not in item.path.read_text(
            "utf-8"
        ):
            raise pytest.UsageError(f"{item.nodeid}: its file has to say pytest.mark.punctual")
        names = set(getattr(item, "fixturenames", ()))
        if names & _BROKER_FIXTURES:
            item.add_marker("broker")
        if names & _DATABASE_FIXTURES:
            item.add_marker("database")
        if names & _MARIADB_FIXTURES or _runs_on_mariadb(item):
            item.add_marker("mariadb")


def _runs_on_mariadb(item: pytest.Item) -> bool:
    """Return whether a parameter says so, by which a fixture is asked for later."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return "unit" not in item.path.parts and not {KIND, *_MARIADB_FIXTURES}.isdisjoint(
        map(str, params.values())
    )


def _serving(make: Callable[[], S], kind: str = "", version: str = "") -> Iterator[S]:
    """Yield the run's server of a *kind*, or one of our own.

    Without its program skip the test, or fail it where servers are promised.
    """
    running: Any = shared(kind)
    if running is not None and (not version or version == running.version):
        yield running
        return
    try:
        server = make()
    except ServerMissingError as missing:
        cannot_run(str(missing))
    with server:
        yield server


# --- the broker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host of one test."""

    name: str
    node: RabbitNode

    @property
    def amqp_url(self) -> str:
        """Where ``guest`` connects to it."""
        return self.node.amqp_url(self.name)


@pytest.fixture(scope="session")
def rabbit_node() -> Iterator[RabbitNode]:
    """The run's RabbitMQ node, or one of our own of the release that RABBITMQ_ROOT names."""
    yield from _serving(RabbitNode, "" if os.environ.get("RABBITMQ_ROOT") else "rabbitmq")


@pytest.fixture
def vhost(rabbit_node: RabbitNode) -> Iterator[Vhost]:
    """A virtual host nobody else uses, deleted afterwards."""
    with _new_vhost(rabbit_node) as made:
        yield made


@contextmanager
def _new_vhost(node: RabbitNode) -> Iterator[Vhost]:
    name = f"test-{secrets.token_hex(6)}"
    node.create_vhost(name)
    yield Vhost(name, node)
    node.delete_vhost(name)


@pytest.fixture(scope="session")
def _node_for_alarms() -> Iterator[RabbitNode]:
    yield from _serving(RabbitNode)


@pytest.fixture
def alarm_vhost(request: pytest.FixtureRequest, _node_for_alarms: RabbitNode) -> Iterator[Vhost]:
    """A virtual host of a node that may raise an alarm, which stops all its publishers.

    A test says so in its name. One that kills a node starts its own: when a virtual host with
    levels is deleted soon after a restart, RabbitMQ 3.10 loses its dead-letter workers for good.
    """
    assert "alarm" in request.node.nodeid
    with _new_vhost(_node_for_alarms) as made:
        yield made
        _node_for_alarms.set_memory_limit()


@contextmanager
def three_nodes(**options: Any) -> Iterator[Cluster]:
    """Yield a cluster of three nodes; where no network of hosts can be made, say why.

    With ``CI`` in the environment too it is skipped: what a machine allows is not ours to promise.
    """
    try:
        cluster = Cluster(**options)
    except ServerMissingError as missing:
        pytest.skip(str(missing))
    with cluster:
        yield cluster


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """Certificates of one authority, as PEM files."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


@pytest.fixture(scope="session")
def tls_material(tmp_path_factory: pytest.TempPathFactory) -> TlsMaterial:
    """An authority, a server certificate for the loopback interface, and one for a client."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    files = [folder / "ca.pem"]
    for name, leaf in (
        ("server", authority.issue_cert("localhost", "127.0.0.1", "::1")),
        ("client", authority.issue_cert("client@migrator.test", common_name="client")),
    ):
        files += [folder / f"{name}.pem", folder / f"{name}.key"]
        files[-2].write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(files[-1])
    return TlsMaterial(*files)


@pytest.fixture(scope="session")
def rabbit_tls_node(tls_material: TlsMaterial) -> Iterator[RabbitNode]:
    """A node of its own with a TLS listener that demands client certificates."""
    files = TlsFiles(tls_material.ca, tls_material.server_cert, tls_material.server_key)
    yield from _serving(lambda: RabbitNode(tls=files, verify_clients=True))


# --- the database -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The run's PostgreSQL server."""
    yield from _serving(PostgresServer, "postgresql")


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database nobody else uses, dropped afterwards."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[AzuriteServer]:
    """The run's emulator of Azure Storage."""
    yield from _serving(AzuriteServer, "azurite")


@pytest.fixture(scope="session")
def raven_servers() -> Iterator[Callable[[str], RavenServer]]:
    """Start the session's RavenDB server of a version, once, unless the run has one."""
    running: dict[str, RavenServer] = {}
    with ExitStack() as stack:

        def of(version: str) -> RavenServer:
            if version not in running:
                serve = contextmanager(_serving)(
                    lambda: RavenServer(version=version), "ravendb", version
                )
                running[version] = stack.enter_context(serve)
            return running[version]

        yield of


@pytest.fixture(scope="session")
def raven_server(raven_servers: Callable[[str], RavenServer]) -> RavenServer:
    """The session's RavenDB server of the version that most tests are run with.

    ``RAVENDB_VERSION`` names another one.
    """
    return raven_servers(os.environ.get("RAVENDB_VERSION", MAIN))


@pytest.fixture(scope="session")
def lent_raven(raven_server: RavenServer) -> str:
    """The session's RavenDB database for ``real_raven``."""
    return raven_server.create_database()


@pytest.fixture
def real_raven(raven_server: RavenServer, lent_raven: str) -> Iterator[RealRaven]:
    """RavenDB, without documents, behind a boundary where a test can make requests fail."""
    with RealRaven(raven_server, lent_raven) as raven:
        raven.empty()
        yield raven
    assert raven.violations == []


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    """The run's MariaDB server, or MySQL in its place."""
    yield from _serving(new_server, KIND)


@pytest.fixture(scope="session")
def private_mariadb() -> Iterator[MariadbServer]:
    """A MariaDB server that no other file of tests uses, whose settings may be changed."""
    yield from _serving(new_server)


@pytest.fixture
def mariadb_database(mariadb_server: MariadbServer) -> Iterator[str]:
    """The address of an empty MariaDB database nobody else uses, dropped afterwards."""
    name = mariadb_server.create_database()
    yield mariadb_server.url(name)
    mariadb_server.drop_database(name)


# --- the line between ---------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Iterator[Callable[[str], Proxy]]:
    """Place proxies before servers.

    ``line = proxy(url)`` makes one; connect to ``line.url(url)`` instead of ``url``.
    """
    with ExitStack() as stack:

        def place(url: str) -> Proxy:
            parts = urlsplit(url)
            return stack.enter_context(Proxy(str(parts.hostname), parts.port or 0))

        yield place
