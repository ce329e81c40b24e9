"""Mode migrate with near_due = dispatch: what is too near to be moved is sent when it is due."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

from dev.servers import wait_until
from tests.e2e.arrivals import Receiver
from tests.e2e.dispatching import prepare_dispatcher
from tests.e2e.old_endpoint import OldEndpoint
from tests.e2e.rig import Rig
from tests.e2e.rows import row

pytestmark = pytest.mark.punctual


def test_near_rows_are_sent_and_far_rows_are_moved(rig: Rig, tmp_path: Path) -> None:
    """Rows before the cutoff leave when they are due, overdue ones at once; the others migrate.

    The queues of the timeout manager are none of its business.
    """
    send_near_and_move_far(rig, tmp_path)


@pytest.mark.slow
def test_near_rows_are_not_sent_early_where_due_times_have_whole_seconds(
    mariadb_rig: Rig, tmp_path: Path
) -> None:
    """MariaDB cut the fraction off; the header still has it."""
    send_near_and_move_far(mariadb_rig, tmp_path)


def send_near_and_move_far(rig: Rig, tmp_path: Path) -> None:
    """Run mode migrate with a dispatcher for what is near, and look at what it sent when."""
    endpoint = OldEndpoint(rig)
    endpoint.declare("Billing")
    near_due = {"near_due": "dispatch", "cutoff": "10s"}
    prepare_dispatcher(rig, tmp_path, mode="migrate", handover=near_due)
    left_alone = endpoint.deferred(60)
    endpoint.send(left_alone)
    overdue = [row(timedelta(seconds=-60)) for _ in range(5)]
    far = [row(timedelta(days=3)) for _ in range(50)]
    rig.insert([*overdue, *far])
    process = rig.start("run", "--endpoint", "Sales")
    with Receiver(rig.broker_url, "Billing") as receiver:
        receiver.wait(lambda: len(receiver.arrivals) >= len(overdue))
        near = [row(timedelta(seconds=3.5 + n / 20)) for n in range(30)]
        rig.insert(near)
        receiver.wait(lambda: len(receiver.arrivals) >= len(overdue) + len(near))
        wait_until(lambda: rig.stored() == {}, what="an empty table")
        time.sleep(1)
        rig.stop(process)
    by_id = {each.headers["NServiceBus.RelatedToTimeoutId"]: each for each in receiver.arrivals}
    assert len(by_id) == len(receiver.arrivals) == len(overdue) + len(near)
    late = sorted((by_id[each.id].at - each.due_at).total_seconds() for each in near)
    print(f"late: {late[len(late) // 2]:.3f} s (median), {late[-1]:.3f} s (worst)")
    assert late[0] >= 0
    assert late[len(late) // 2] < 2
    assert late[-1] < 5
    assert {each.timeout_id for each in rig.drain_levels()} == {each.id for each in far}
    (kept,) = rig.drain(endpoint.timeouts)
    assert kept.properties.message_id == left_alone.properties.message_id
