"""What makes a running daemon wait, on real servers: shown soon, and over again."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.daemon import listen, listens, noted, signals, status
from tests.e2e.rig import Rig
from tests.e2e.rows import row

SHOWN_WITHIN_S: Final = 6.0
"""After so long it is no longer the machine that is busy; it takes some 0.3 s."""


@pytest.fixture
def vhost(alarm_vhost: Vhost) -> Vhost:
    """Where an alarm disturbs nobody else."""
    return alarm_vhost


@pytest.mark.punctual
def test_an_alarm_is_shown_soon(rig: Rig, vhost: Vhost, tmp_path: Path) -> None:
    """Although nothing is published; over, what was stored meanwhile is moved by itself."""
    listen(rig, tmp_path)
    rig.settings |= {"MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms"}
    rig.prepare()
    process = rig.start("run", "--all-endpoints")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    assert signals(rig) == []
    raised_s = time.monotonic()
    vhost.node.set_memory_limit(0)
    wait_until(lambda: bool(signals(rig)), what="a hold")
    assert time.monotonic() - raised_s < SHOWN_WITHIN_S
    (hold,) = status(rig)["holds"]
    assert (hold["signal"], "memory" in hold["observed"]) == ("broker_alarm", True)
    rig.insert([row()])
    time.sleep(1)
    assert len(rig.stored_ids()) == 1
    wait_until(lambda: rig.doing().startswith("held: broker_alarm: "), what="the reason")
    vhost.node.set_memory_limit()
    wait_until(lambda: not rig.stored_ids(), what="going on by itself")
    wait_until(lambda: len(noted(rig, "hold_ended")) == 1, what="a note of it")
    assert signals(rig) == []
    assert [each["signal"] for each in noted(rig, "hold_began")] == ["broker_alarm"]
    rig.stop(process)


@pytest.mark.slow
def test_a_critical_limit_drains_without_an_alarm(rig: Rig, tmp_path: Path) -> None:
    """It ends with code 3 and says why; what was claimed is handed over."""
    rig.settings |= {
        "MIGRATOR_THROTTLE__CRITICAL_LEVEL_DEPTH": "150",
        "MIGRATOR_THROTTLE__EVERY": "200ms",
        "MIGRATOR_HANDOVER__BATCH_SIZE": "100",
        "MIGRATOR_HANDOVER__RATE_LIMIT": "200",
    }
    rig.management_url = None
    rig.prepare()
    rig.insert([row() for _ in range(2000)])
    done = rig.run("run", "--endpoint", "Sales")
    assert done.returncode == 3, done.stderr[-3000:]
    assert "above the limit of 150 at which the daemon ends" in done.stderr
    assert set(rig.batch_states()) == {"handed_over"}
    assert rig.stored_ids()
    assert len(noted(rig, "critical_load")) == 1


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
