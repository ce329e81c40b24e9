"""What makes a running daemon wait, on real servers: seen soon, shown, and over again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from tests.e2e.daemon import listen, noted, signals, status
from tests.e2e.rig import Rig, row

RAISED_WITHIN_S: Final = 2.0
NO_ALARM: Final = ("set_vm_memory_high_watermark", "absolute", "1GiB")


@pytest.fixture
def calm_node(rabbit_node: RabbitNode) -> Iterator[RabbitNode]:
    """The session's node, on which a test that runs alone may raise an alarm."""
    yield rabbit_node
    rabbit_node.ctl(*NO_ALARM)


@pytest.mark.punctual
def test_an_idle_daemon_shows_a_memory_alarm_within_two_seconds(
    rig: Rig, calm_node: RabbitNode, tmp_path: Path
) -> None:
    """Although it publishes nothing; it lifts by itself, and both are in the ledger."""
    listen(rig, tmp_path)
    rig.prepare()
    process = rig.start("run", "--endpoint", "Sales")
    wait_until((tmp_path / "control.sock").exists, seconds=20, what="a daemon that listens")
    assert signals(rig) == []
    raised_s = time.monotonic()
    calm_node.ctl("set_vm_memory_high_watermark", "0")
    wait_until(lambda: bool(signals(rig)), seconds=10, what="a hold")
    shown_s = time.monotonic() - raised_s
    (hold,) = status(rig)["holds"]
    print(f"shown {shown_s:.2f} s after rabbitmqctl was called: {hold['text']}")
    assert hold["signal"] == "broker_alarm"
    assert "memory" in hold["observed"]
    assert shown_s < RAISED_WITHIN_S
    wait_until(lambda: len(noted(rig, "hold_began")) == 1, seconds=5, what="a note of it")
    rig.insert([row()])
    time.sleep(1.5)
    assert len(rig.stored_ids()) == 1
    with rig.sql() as connection:
        (doing,) = connection.execute("SELECT doing FROM migrator.lease WHERE owner <> ''")
    assert doing[0].startswith("held: broker_alarm: ")
    calm_node.ctl(*NO_ALARM)
    lifted_s = time.monotonic()
    wait_until(lambda: not rig.stored_ids(), seconds=10, what="going on by itself")
    print(f"went on {time.monotonic() - lifted_s:.2f} s after the alarm was over")
    wait_until(lambda: bool(noted(rig, "hold_ended")), seconds=5, what="a note of it")
    assert signals(rig) == []
    rig.stop(process)


def test_a_locked_table_shows_as_database_latency(rig: Rig, tmp_path: Path) -> None:
    """Its endpoint waits, with the table named; the others go on, and it lifts by itself."""
    shop = Rig(rig.database_url, rig.broker_url, endpoint="Shop")
    shop.create_store()
    listen(rig, tmp_path)
    rig.settings |= {
        "MIGRATOR_THROTTLE__MAX_DATABASE_LATENCY": "400ms",
        "MIGRATOR_THROTTLE__EVERY": "200ms",
        "MIGRATOR_HANDOVER__SWEEP_INTERVAL": "200ms",
    }
    rig.prepare()
    process = rig.start("run", "--all-endpoints")
    wait_until((tmp_path / "control.sock").exists, seconds=30, what="a daemon that listens")
    with rig.sql() as connection, connection.transaction():
        connection.execute('LOCK TABLE "Sales_TimeoutData" IN SHARE MODE')
        locked_s = time.monotonic()
        wait_until(lambda: bool(signals(rig)), seconds=10, what="a hold")
        print(f"shown {time.monotonic() - locked_s:.2f} s after the table was locked")
        (hold,) = status(rig)["holds"]
        assert (hold["signal"], hold["endpoint"]) == ("database_latency", "Sales")
        assert "public.Sales_TimeoutData keeps us waiting for more than" in hold["observed"]
        assert hold["limit"] == "at most 400 ms"
        shop.insert([row() for _ in range(10)])
        wait_until(lambda: not shop.stored_ids(), seconds=15, what="the other endpoint")
        assert signals(rig) == ["database_latency"]
    wait_until(lambda: not signals(rig), seconds=10, what="the end of the hold")
    rig.insert([row()])
    wait_until(lambda: not rig.stored_ids(), seconds=10, what="going on by itself")
    rig.stop(process)


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
