"""Who is told to stop now, publishes nothing more, whatever the broker does."""

from __future__ import annotations

import signal
import time
from functools import partial

import pytest

from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.rig import Rig
from tests.e2e.rows import row


@pytest.fixture
def vhost(alarm_vhost: Vhost) -> Vhost:
    """Where an alarm disturbs nobody else."""
    return alarm_vhost


@pytest.mark.punctual
@pytest.mark.parametrize("mode", ["direct", pytest.param("staged", marks=[pytest.mark.slow])])
def test_a_second_sigterm_ends_a_daemon_that_an_alarm_blocks(
    rig: Rig, vhost: Vhost, mode: str
) -> None:
    """Within moments, with its batch open; the next run finishes it."""
    rig.settings |= {
        "MIGRATOR_HANDOVER__BATCH_SIZE": "1000",
        "MIGRATOR_HANDOVER__WINDOW": "50",
        "MIGRATOR_HANDOVER__RATE_LIMIT": "1000",
    }
    rig.prepare()
    rig.insert([row() for _ in range(4000)])
    process = rig.start("run", "--endpoint", "Sales", "--mode", mode)
    wait_until(partial(rig.has_handed_over, 1), what="handing over")
    vhost.node.set_memory_limit(0)

    wait_until(lambda: "memory" in rig.doing(), what="a lane that is blocked")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    asked_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    rig.finish(process)
    # it takes one or two; without a guard it was the whole of `broker.blocked_deadline`
    assert time.monotonic() - asked_s < 30
    assert set(rig.batch_states()) > {"handed_over"}
