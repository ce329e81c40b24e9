"""The cluster that faults are tried on: it forms, parts, and becomes whole again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pika
import pytest

from dev.cluster import Cluster
from dev.processes import wait_until
from migrator.delays.routing import DelaysVersion, level_name
from migrator.delays.topology import create_delays
from migrator.rabbitmq.addresses import parse_addresses
from migrator.rabbitmq.connection import ConnectionSettings
from tests.conftest import three_nodes

QUEUE = "kept"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of three with one quorum queue."""
    with three_nodes() as cluster:
        with pika.BlockingConnection(pika.URLParameters(cluster.nodes[0].amqp_url())) as connection:
            arguments = {"x-queue-type": "quorum"}
            connection.channel().queue_declare(QUEUE, durable=True, arguments=arguments)
        yield cluster


@pytest.mark.slow
def test_a_leader_that_is_killed_has_a_successor(cluster: Cluster) -> None:
    """Another node leads the queue while the first one is dead; then all are one cluster again."""
    first = cluster.leader(QUEUE, "/")
    first.kill()
    wait_until(lambda: cluster.leader(QUEUE, "/") is not first, what="nobody else leads")
    cluster.heal()
    assert cluster.is_whole()
    cluster.transfer(QUEUE, "/", first)
    assert cluster.leader(QUEUE, "/") is first


@pytest.mark.slow
def test_a_split_parts_one_node(cluster: Cluster) -> None:
    """A node that is cut off sees nobody, and is one of three again afterwards."""
    with cluster.split(cluster.nodes[2]):
        wait_until(lambda: len(cluster.nodes[2].peers()) == 1, what="it still sees others")
    cluster.heal()
    assert cluster.is_whole()


@pytest.mark.slow
def test_levels_are_led_by_all_listed_nodes(cluster: Cluster) -> None:
    """Whoever lists the nodes has the levels spread over them when they are created."""
    nodes = parse_addresses("\n".join(cluster.amqp_urls()))
    create_delays(ConnectionSettings(nodes=nodes), DelaysVersion.V2)
    leaders = Counter(cluster.leader(level_name(DelaysVersion.V2, n), "/").name for n in range(6))
    assert leaders == {node.name: 2 for node in cluster.nodes}
