"""The delays on a cluster of three nodes."""

from __future__ import annotations

from collections import Counter

import pytest

from migrator.delays.routing import DelaysVersion, level_name
from migrator.delays.topology import create_delays
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from tests.conftest import three_nodes


@pytest.mark.slow
def test_levels_are_led_by_all_listed_nodes() -> None:
    """Whoever lists the nodes has the levels spread over them when they are created."""
    with three_nodes() as cluster:
        nodes = parse_addresses("\n".join(cluster.amqp_urls()))
        create_delays(ConnectionSettings(nodes=nodes), DelaysVersion.V2)
        levels = [level_name(DelaysVersion.V2, level) for level in range(6)]
        leaders = Counter(cluster.leader(level, "/").name for level in levels)
        assert leaders == {node.name: 2 for node in cluster.nodes}
