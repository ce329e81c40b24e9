"""Who lost the lane, or is told to stop now, publishes nothing more; who is refused, says so."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import row

ROWS: Final = 4000
BATCH: Final = 1000
ENDS_WITHIN_S: Final = 30.0
"""It takes one or two seconds; without a guard it was the whole of `broker.blocked_deadline`."""
IN_FLIGHT: Final = 300
"""Rows of 1 kB that may be in the buffers of a socket: nobody can take them back."""


@pytest.fixture
def calm_node(rabbit_node: RabbitNode) -> Iterator[RabbitNode]:
    """The session's node, on which a test that runs alone may raise an alarm."""
    yield rabbit_node
    rabbit_node.set_memory_limit()


@pytest.mark.punctual
@pytest.mark.parametrize("mode", ["direct", pytest.param("staged", marks=[pytest.mark.slow])])
def test_a_second_sigterm_ends_a_daemon_that_the_broker_blocks(
    rig: Rig, calm_node: RabbitNode, mode: str
) -> None:
    """Within moments, with its batch open; the next run finishes it."""
    process = blocked(rig, calm_node, mode)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    asked_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    rig.finish(process)
    took_s = time.monotonic() - asked_s
    print(f"{mode}: the second SIGTERM took {took_s:.1f} s")
    assert took_s < ENDS_WITHIN_S
    assert set(rig.batch_states()) > {"handed_over"}


@pytest.mark.slow
@pytest.mark.punctual
def test_an_owner_that_lost_its_lane_publishes_nothing_more(
    rig: Rig, calm_node: RabbitNode
) -> None:
    """While the broker blocks it, somebody takes its lane: it goes on in another one."""
    process = blocked(rig, calm_node, "direct")
    with rig.sql() as connection:
        connection.execute(
            "UPDATE migrator.lease SET owner = 'elsewhere-1/1/1/1/x', token = token + 1,"
            " until = now() + interval '1 hour' WHERE owner <> ''"
        )
        lanes = "SELECT 1 FROM migrator.lease WHERE owner NOT LIKE 'elsewhere%'"
        ends_s = time.monotonic() + 30
        while not connection.execute(lanes).fetchone() and time.monotonic() < ends_s:
            time.sleep(0.1)
        open_batch = "SELECT id FROM migrator.batch WHERE lane = 0 AND state = 'publishing'"
        ((batch,),) = connection.execute(open_batch).fetchall()
    calm_node.set_memory_limit()
    wait_until(lambda: not rig.stored_ids(), what="the end of claiming, in the other lane")
    rig.stop(process)
    marks = [str(each.properties.app_id).split("/")[-1] for each in rig.drain_levels()]
    more = sum(mark.startswith(f"{batch}.") for mark in marks)
    print(f"of the batch in hand {more} rows of {BATCH} are with the broker")
    assert more <= IN_FLIGHT


def blocked(rig: Rig, node: RabbitNode, mode: str) -> subprocess.Popen[str]:
    """Return a daemon that an alarm stops in the middle of a batch."""
    rig.settings |= {
        "MIGRATOR_HANDOVER__BATCH_SIZE": str(BATCH),
        "MIGRATOR_HANDOVER__WINDOW": "50",
        "MIGRATOR_HANDOVER__RATE_LIMIT": "1000",
    }
    rig.prepare()
    rig.insert([row() for _ in range(ROWS)])
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode)
    wait_until(lambda: rig.batch_states()["handed_over"] >= 1, what="handing over")
    node.set_memory_limit(0)
    wait_until(lambda: "memory" in doing(rig), what="a lane that is blocked")
    return process


def doing(rig: Rig) -> str:
    """Return what the ledger says of the lane that is at work."""
    with rig.sql() as connection:
        found = connection.execute("SELECT doing FROM migrator.lease WHERE owner <> ''").fetchone()
    return str(found[0]) if found else ""


@pytest.mark.slow
def test_rows_that_the_broker_refuses_are_told_of_and_go_in_the_end(rig: Rig, vhost: Vhost) -> None:
    """A full level queue: status and log say so, a few lines only; room again, and all go."""
    rows = [row(timedelta(seconds=100_000)) for _ in range(300)]
    rig.prepare()
    rig.settings["MIGRATOR_HANDOVER__SWEEP_INTERVAL"] = "200ms"
    process = rig.start("run", "--endpoint", "Sales", "--mode", "direct")
    wait_until(rig.has_lane, what="a daemon that has a lane")
    vhost.node.set_policy(vhost.name, "small", pattern=r"delay-level-16$", max_length=5)
    rig.insert(rows)
    wait_until(lambda: "the broker refuses" in doing(rig), what="status that says so")
    time.sleep(3)
    vhost.node.api("DELETE", f"policies/{vhost.name}/small")
    wait_until(lambda: set(rig.batch_states()) == {"handed_over"}, what="the end")
    lines = [json.loads(line) for line in rig.stop(process).splitlines() if line.startswith("{")]
    told = [each for each in lines if each.get("action") == "rows_refused"]
    assert 1 <= len(told) <= 8
    account = rig.account(rows, "Billing")
    assert (account.lost, account.duplicated, account.found) == ((), (), 300)
