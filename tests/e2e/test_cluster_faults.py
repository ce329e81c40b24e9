"""The real program through faults of a RabbitMQ cluster: nothing lost, nothing doubtful.

A start of three nodes and one trial take a minute each, so all of it runs with --full only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dev.cluster import Cluster
from tests.conftest import three_nodes
from tests.e2e.cluster_faults import FAULTS
from tests.e2e.cluster_trials import MODES, rig_on, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROWS = 1500


@pytest.fixture(scope="module")
def cluster_with() -> Iterator[Callable[[str], Cluster]]:
    """Start one cluster per way to handle partitions, each when it is first asked for."""
    running: dict[str, Cluster] = {}
    with ExitStack() as stack:

        def of(handling: str) -> Cluster:
            if handling not in running:
                running[handling] = stack.enter_context(three_nodes(partition_handling=handling))
            return running[handling]

        yield of


@pytest.mark.parametrize("round_number", [1, 2])
@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*FAULTS])
def test_a_fault_of_the_cluster(
    cluster_with: Callable[[str], Cluster],
    database: str,
    name: str,
    mode: str,
    is_killed: bool,
    round_number: int,
) -> None:
    """All arrive; the program doubles none in ``staged``, and leaves nothing to a person."""
    cluster = cluster_with(FAULTS[name].partition_handling)
    cluster.heal()
    with rig_on(cluster, database) as rig:
        result = trial(rig, name, mode, count=ROWS, is_killed=is_killed)
    print(round_number, result)
    assert result.is_good, result
