"""A level queue without a process on any node: refused, and mended by what the finding says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dev.servers import wait_until
from migrator.delays.routing import DelaysVersion, level_name
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import row

DEAD = level_name(DelaysVersion.V2, 5)


def _finding(rig: Rig) -> dict[str, Any]:
    """Return what ``delays show`` finds of leaders."""
    told = json.loads(rig.must("delays", "show", "--json", codes=(0, 3)))
    (found,) = [each for each in told["findings"] if each["check"] == "level-leaders"]
    return dict(found)


@pytest.mark.slow
def test_a_level_without_a_leader_is_refused_with_its_cure(rig: Rig, vhost: Vhost) -> None:
    """As after a node was replaced (rabbitmq-server #16652): nothing is handed over meanwhile."""
    rig.prepare()
    rows = [row() for _ in range(20)]
    rig.insert(rows)
    assert _finding(rig)["level"] == "ok"
    vhost.node.evaluate(f"ra:stop_server(quorum_queues, {{'{vhost.name}_{DEAD}', node()}}).")
    refused = _finding(rig)
    assert (refused["level"], refused["subject"]) == ("refused", DEAD)
    assert vhost.node.name in refused["text"]
    assert refused["text"].endswith("running: none")
    stopped = rig.run("run", "--endpoint", "Sales", "--once")
    assert (stopped.returncode, "no leader" in stopped.stderr) == (3, True), stopped.stderr
    assert len(rig.stored_ids()) == len(rows)
    cure = re.search(r'rabbitmqctl eval "(.*)"', refused["remedy"])
    assert cure is not None
    vhost.node.evaluate(cure.group(1))
    wait_until(lambda: _finding(rig)["level"] == "ok", what="a leader")
    rig.migrate()
    assert rig.account(rows, "Billing").lost == ()
