"""What every end-to-end test stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dev.postgres import PostgresServer
from dev.rabbit import RabbitNode
from tests.conftest import Vhost
from tests.e2e.mariadb_rig import MariadbRig
from tests.e2e.rig import Rig


@pytest.fixture
def new_rig() -> Iterator[Callable[..., Rig]]:
    """Makes rigs, on a virtual host or any servers; programs they leave running are killed."""
    made: list[Rig] = []

    def make(kind: type[Rig] = Rig, *, vhost: Vhost | None = None, **where: Any) -> Rig:
        if vhost is not None:
            where |= {"broker_url": vhost.amqp_url, "management_url": vhost.node.management_url}
        made.append(kind(**where))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(database: str, vhost: Vhost, new_rig: Callable[..., Rig]) -> Rig:
    """A store and a broker of this test's own."""
    return new_rig(vhost=vhost, database_url=database)


@pytest.fixture
def mariadb_rig(mariadb_database: str, vhost: Vhost, new_rig: Callable[..., Rig]) -> Rig:
    """The same with a store in MariaDB."""
    return new_rig(MariadbRig, vhost=vhost, database_url=mariadb_database)


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
