"""What every end-to-end test stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.e2e.mariadb_rig import MariadbRig
from tests.e2e.rig import Rig


@pytest.fixture
def rig(database: str, vhost: Any) -> Iterator[Rig]:
    """A store and a broker of this test's own; programs it leaves running are killed."""
    rig = Rig(
        database_url=database,
        broker_url=vhost.amqp_url,
        management_url=vhost.node.management_url,
    )
    yield rig
    rig.close()


@pytest.fixture
def mariadb_rig(mariadb_database: str, vhost: Any) -> Iterator[Rig]:
    """The same with a store in MariaDB."""
    rig = MariadbRig(
        database_url=mariadb_database,
        broker_url=vhost.amqp_url,
        management_url=vhost.node.management_url,
    )
    yield rig
    rig.close()


@pytest.fixture
def new_rig() -> Iterator[Callable[..., Rig]]:
    """Makes rigs on other servers than the session's; cleans up after them as well."""
    made: list[Rig] = []

    def make(**where: Any) -> Rig:
        made.append(Rig(**where))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def private_node() -> Iterator[RabbitNode]:
    """A node of this test's own, which it may kill."""
    with RabbitNode() as node:
        yield node


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test's own, which it may restart."""
    with PostgresServer() as server:
        yield server
