"""What makes a running daemon wait, on real servers: seen soon, shown, and over again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from tests.conftest import Vhost
from tests.e2e.daemon import listen, listens, noted, signals, status
from tests.e2e.rig import Rig
from tests.e2e.rows import row

SHOWN_WITHIN_S: Final = 6.0
"""After so long it is no longer the machine that is busy; it takes some 0.3 s."""
LATENCY_MS: Final = 1000
"""Of the database: more than a busy machine alone makes of it."""


@pytest.fixture
def vhost(alarm_vhost: Vhost) -> Vhost:
    """Where an alarm disturbs nobody else."""
    return alarm_vhost


@pytest.mark.punctual
def test_an_alarm_and_a_locked_table_are_shown_soon(rig: Rig, vhost: Vhost, tmp_path: Path) -> None:
    """Although nothing is published; both lift by themselves, and are in the ledger."""
    shop = Rig(rig.database_url, rig.broker_url, endpoint="Shop")
    shop.create_store()
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_THROTTLE__MAX_DATABASE_LATENCY": f"{LATENCY_MS}ms",
        "MIGRATOR_THROTTLE__EVERY": "200ms",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    rig.prepare()
    process = rig.start("run", "--all-endpoints")
    wait_until(lambda: listens(rig), what="a daemon that listens")
    assert signals(rig) == []
    an_alarm_holds_everything(rig, vhost.node)
    a_locked_table_holds_its_endpoint(rig, shop)
    began = [each["signal"] for each in noted(rig, "hold_began")]
    assert began == ["broker_alarm", "database_latency"]
    rig.stop(process)


def an_alarm_holds_everything(rig: Rig, node: RabbitNode) -> None:
    """Raise an alarm, and end it; what was stored meanwhile is moved then."""
    raised_s = time.monotonic()
    node.set_memory_limit(0)
    hold = shown(rig, since_s=raised_s)
    assert hold["signal"] == "broker_alarm"
    assert "memory" in hold["observed"]
    rig.insert([row()])
    time.sleep(1)
    assert len(rig.stored_ids()) == 1
    wait_until(lambda: rig.doing().startswith("held: broker_alarm: "), what="the reason")
    node.set_memory_limit()
    over_s = time.monotonic()
    wait_until(lambda: not rig.stored_ids(), what="going on by itself")
    print(f"went on {time.monotonic() - over_s:.2f} s after the alarm was over")
    wait_until(lambda: len(noted(rig, "hold_ended")) == 1, what="a note of it")
    assert signals(rig) == []


def a_locked_table_holds_its_endpoint(rig: Rig, other: Rig) -> None:
    """Lock the table as a new index does, while *other* goes on; then unlock it."""
    with rig.sql() as connection, connection.transaction():
        connection.execute('LOCK TABLE "Sales_TimeoutData" IN SHARE MODE')
        hold = shown(rig, since_s=time.monotonic())
        assert (hold["signal"], hold["endpoint"]) == ("database_latency", "Sales")
        assert "public.Sales_TimeoutData keeps us waiting for more than" in hold["observed"]
        assert hold["limit"] == "at most 1.0 s"
        other.insert([row() for _ in range(10)])
        wait_until(lambda: not other.stored_ids(), what="the other endpoint")
        assert signals(rig) == ["database_latency"]
    wait_until(lambda: not signals(rig), what="the end of the hold")
    rig.insert([row()])
    wait_until(lambda: not rig.stored_ids(), what="going on by itself")


def shown(rig: Rig, *, since_s: float) -> dict[str, Any]:
    """Return the only hold as soon as there is one, and demand that this is soon."""
    wait_until(lambda: bool(signals(rig)), what="a hold")
    took_s = time.monotonic() - since_s
    (hold,) = status(rig)["holds"]
    print(f"shown after {took_s:.2f} s: {hold['text']}")
    assert took_s < SHOWN_WITHIN_S
    return dict(hold)


@pytest.mark.slow
def test_a_panic_limit_drains_the_daemon(rig: Rig, tmp_path: Path) -> None:
    """It ends with code 3 and says why; what was claimed is handed over."""
    rig.settings |= {
        "MIGRATOR_THROTTLE__PANIC_LEVEL_DEPTH": "150",
        "MIGRATOR_THROTTLE__EVERY": "200ms",
        "MIGRATOR_HANDOVER__BATCH_SIZE": "100",
        "MIGRATOR_HANDOVER__RATE_LIMIT": "200",
    }
    rig.management_url = None
    rig.prepare()
    rig.insert([row() for _ in range(2000)])
    done = rig.run("run", "--endpoint", "Sales")
    assert done.returncode == 3, done.stderr[-3000:]
    assert "150 is where the daemon gives up" in done.stderr
    assert set(rig.batch_states()) == {"handed_over"}
    assert rig.stored_ids()
    assert len(noted(rig, "panic")) == 1
