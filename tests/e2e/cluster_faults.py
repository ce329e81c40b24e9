"""Faults of a RabbitMQ cluster by name: each happens, lasts, and ends; ``heal`` comes after it.

The program is connected to the first node, and the second one leads its staging queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dev.cluster import Cluster, ClusterNode

LONG_S: Final = 12.0
"""Longer than the heartbeat and the net tick allow."""
SHORT_S: Final = 0.4


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to the cluster, and how it is set up for that."""

    happen: Callable[[Cluster, str], None]
    """Given the cluster and the virtual host; returns when the fault is over."""
    partition_handling: str = "ignore"


def _kill(number: int) -> Callable[[Cluster, str], None]:
    return lambda cluster, _vhost: _down(cluster.nodes[number], cluster.nodes[number].kill)


def _stop(number: int) -> Callable[[Cluster, str], None]:
    return lambda cluster, _vhost: _down(cluster.nodes[number], cluster.nodes[number].stop)


def _down(node: ClusterNode, end: Callable[[], None]) -> None:
    end()
    time.sleep(LONG_S)
    node.start()


def _freeze(number: int) -> Callable[[Cluster, str], None]:
    def happen(cluster: Cluster, _vhost: str) -> None:
        cluster.nodes[number].freeze()
        time.sleep(LONG_S)
        cluster.nodes[number].thaw()

    return happen


def _cut(cluster: Cluster, _vhost: str) -> None:
    cluster.nodes[0].on.cut_clients()
    time.sleep(LONG_S)
    cluster.nodes[0].on.cut_clients(is_cut=False)


def _split(seconds: float) -> Callable[[Cluster, str], None]:
    def happen(cluster: Cluster, _vhost: str) -> None:
        with cluster.split(cluster.nodes[0]):
            time.sleep(seconds)
        time.sleep(5)  # before anybody looks after it

    return happen


def _transfer(cluster: Cluster, vhost: str) -> None:
    for turn in (1, 2, 3):
        for number, queue in enumerate(cluster.quorum_queues(vhost)):
            cluster.transfer(queue, vhost, cluster.nodes[(number + turn) % len(cluster.nodes)])


def _roll(cluster: Cluster, _vhost: str) -> None:
    cluster.roll()


FAULTS: Final = {
    "kill-client-node": Fault(happen=_kill(0)),
    "kill-leader": Fault(happen=_kill(1)),
    "stop-client-node": Fault(happen=_stop(0)),
    "stop-leader": Fault(happen=_stop(1)),
    "freeze-client-node": Fault(happen=_freeze(0)),
    "freeze-leader": Fault(happen=_freeze(1)),
    "cut": Fault(happen=_cut),
    "split-short": Fault(happen=_split(SHORT_S)),
    "split-long": Fault(happen=_split(LONG_S)),
    "split-short-pause": Fault(happen=_split(SHORT_S), partition_handling="pause_minority"),
    "split-long-pause": Fault(happen=_split(LONG_S), partition_handling="pause_minority"),
    "transfer": Fault(happen=_transfer),
    "roll": Fault(happen=_roll),
}
