"""Places on real servers that several of these files stand on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.servers import RabbitNode
from migrator.database.engine import open_engine
from tests.conftest import Vhost
from tests.contract.site import Site
from tests.support.levels import make_levels
from tests.unit.rabbitmq.material import vhost_with_levels


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    """A PostgreSQL database with a ledger."""
    engine = open_engine(database)
    yield Site(engine=engine)
    engine.dispose()


@pytest.fixture
def fresh_url(vhost: Vhost) -> str:
    """A virtual host with the levels of v2 for a test that counts what is in them."""
    make_levels(vhost.node.management_url, vhost.name)
    return vhost.amqp_url


@pytest.fixture(scope="module")
def url(rabbit_node: RabbitNode) -> Iterator[str]:
    """A virtual host with the levels of v2; messages of the file's other tests may be in it."""
    with vhost_with_levels(rabbit_node) as found:
        yield found
