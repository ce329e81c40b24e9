"""What makes a running daemon wait, on real servers: seen soon, shown, and over again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from dev.rabbit import RabbitNode
from dev.servers import wait_until
from tests.e2e.rig import Rig, row

RAISED_WITHIN_S: Final = 2.0
NO_ALARM: Final = ("set_vm_memory_high_watermark", "absolute", "1GiB")


@pytest.fixture
def calm_node(rabbit_node: RabbitNode) -> Iterator[RabbitNode]:
    """The session's node, on which a test that runs alone may raise an alarm."""
    yield rabbit_node
    rabbit_node.ctl(*NO_ALARM)


def listen(rig: Rig, tmp_path: Path) -> None:
    """Have the daemon listen on a socket of the test's own."""
    rig.settings |= {"MIGRATOR_WEB__SOCKET": str(tmp_path / "control.sock")}


def status(rig: Rig) -> dict[str, Any]:
    """Return what the daemon says of itself."""
    line = httpx.HTTPTransport(uds=rig.settings["MIGRATOR_WEB__SOCKET"])
    with httpx.Client(transport=line) as client:
        found: dict[str, Any] = client.get("http://daemon/status").raise_for_status().json()
        return found


def signals(rig: Rig) -> list[str]:
    """Return why the daemon waits now."""
    return [hold["signal"] for hold in status(rig)["holds"]]


def noted(rig: Rig, kind: str) -> list[dict[str, Any]]:
    """Return the details of all events of a kind in the ledger, oldest first."""
    with rig.sql() as connection:
        query = "SELECT detail FROM migrator.event WHERE kind = %s ORDER BY id"
        return [json.loads(detail) for (detail,) in connection.execute(query, (kind,))]


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
    (lane,) = json.loads(rig.must("status", "--json"))["lanes"]
    assert lane["doing"].startswith("held: broker_alarm: ")
    calm_node.ctl(*NO_ALARM)
    lifted_s = time.monotonic()
    wait_until(lambda: not rig.stored_ids(), seconds=10, what="going on by itself")
    print(f"went on {time.monotonic() - lifted_s:.2f} s after the alarm was over")
    wait_until(lambda: bool(noted(rig, "hold_ended")), seconds=5, what="a note of it")
    assert signals(rig) == []
    rig.stop(process)
