"""Tests of ``migrator.service.systemd``: when what is told, and how, with a real socket."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.service import systemd
from migrator.service.systemd import ServiceManager, Supervision
from migrator.service.worker import Stop
from tests.support.service_manager import ServiceManager as Listener
from tests.unit.service.conftest import Lines, WaitFor

INTERVAL_S = 8.0


class Bench:
    """Two workers, a clock that moves when told to, and a manager that notes what it is told."""

    def __init__(self, watchdog_s: float | None = INTERVAL_S) -> None:
        self.now_s, self.is_there, self.watchdog_s = 1000.0, True, watchdog_s
        self.told: list[tuple[float, str]] = []
        self.stop = Stop()
        self.workers: list[Any] = [SimpleNamespace(name=f"worker-{n}", silent_s=0) for n in "01"]
        manager: Any = self
        self.supervision = Supervision(manager, self.workers, self.stop)

    def monotonic(self) -> float:
        return self.now_s

    def tell(self, message: str) -> None:
        self.told.append((self.now_s, message))

    def look_for(self, seconds: float, *, hung: int | None = None) -> None:
        """Look as the main thread does, for a while; who does not hang goes on meanwhile."""
        ends_s = self.now_s + seconds
        while self.now_s < ends_s:
            self.now_s += self.supervision.look_every_s
            if hung is not None:
                self.workers[hung].silent_s += self.supervision.look_every_s
            self.supervision.look()

    def at_s(self, message: str) -> list[float]:
        return [at_s for at_s, text in self.told if text == message]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """With a watchdog, at work."""
    made = Bench()
    monkeypatch.setattr(systemd, "time", made)
    made.supervision.begin()
    return made


def test_one_that_hangs_stops_the_signs_within_an_interval(bench: Bench, lines: Lines) -> None:
    """Although the other goes on; it is named in the log, once; when it goes on, so do they.

    Before, they come several times in each interval.
    """
    bench.look_for(3 * INTERVAL_S)
    signs = bench.at_s("WATCHDOG=1")
    assert [text for _, text in bench.told[:2]] == ["READY=1", "STATUS=working"]
    assert max(later - sooner for sooner, later in pairwise(signs)) <= INTERVAL_S / 2
    hung_s = bench.now_s
    bench.look_for(3 * INTERVAL_S, hung=1)
    assert bench.at_s("WATCHDOG=1")[-1] - hung_s < INTERVAL_S
    (line,) = lines("worker_hangs")
    assert (line.levelno, vars(line)["workers"]) == (logging.ERROR, ["worker-1"])
    resumed_s, bench.workers[1].silent_s = bench.now_s, 0
    bench.look_for(INTERVAL_S)
    assert bench.at_s("WATCHDOG=1")[-1] > resumed_s


def test_while_draining_more_time_is_asked_for(bench: Bench) -> None:
    """Again and again, as long as it gets on; STOPPING comes once, and the status says so."""
    bench.look_for(INTERVAL_S)
    bench.stop.draining.set()
    began_s = bench.now_s
    bench.look_for(20)
    bench.supervision.status("5 handed over\nREADY=0\n  größer")
    bench.supervision.end()
    assert bench.told[-1][1] == "STATUS=stopping: 5 handed over READY=0 größer"
    asked = bench.at_s("EXTEND_TIMEOUT_USEC=60000000")
    assert len(asked) >= 3
    (stopping_s,) = bench.at_s("STOPPING=1")
    assert began_s < stopping_s <= asked[0]
    bench.look_for(INTERVAL_S, hung=0)
    count = len(bench.at_s("EXTEND_TIMEOUT_USEC=60000000"))
    bench.look_for(2 * INTERVAL_S, hung=0)
    assert len(bench.at_s("EXTEND_TIMEOUT_USEC=60000000")) == count


# ── the protocol ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_abstract", [False, True], ids=["file", "abstract"])
def test_each_message_is_one_datagram(tmp_path: Path, wait_for: WaitFor, is_abstract: bool) -> None:
    """At a file, or at a name that is none."""
    address = f"@migrator-{secrets.token_hex(6)}" if is_abstract else tmp_path / "notify"
    with Listener(address) as listener:
        manager = ServiceManager({"NOTIFY_SOCKET": str(address)})
        assert manager.is_there
        for message in ("READY=1", "STATUS=größer"):
            manager.tell(message)
        wait_for(lambda: len(listener.heard) == 2)
    assert listener.messages() == ["READY=1", "STATUS=größer"]


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1234"])
def test_without_a_manager_nothing_happens(address: str | None, lines: Lines) -> None:
    """Nor with one that is reached in a way we do not know."""
    environ = {"WATCHDOG_USEC": "1000000"} | ({} if address is None else {"NOTIFY_SOCKET": address})
    manager = ServiceManager(environ)
    manager.tell("READY=1")
    assert (manager.is_there, manager.watchdog_s) == (False, None)
    assert not lines("notify_failed")


def test_a_manager_that_went_away_is_told_once_and_ends_nothing(
    tmp_path: Path, lines: Lines
) -> None:
    """Until it is back, and goes away again."""
    address = tmp_path / "notify"
    manager = ServiceManager({"NOTIFY_SOCKET": str(address)})
    for _ in range(2):
        manager.tell("WATCHDOG=1")
    assert len(lines("notify_failed")) == 1
    with Listener(address):
        manager.tell("WATCHDOG=1")
    address.unlink()
    manager.tell("WATCHDOG=1")
    assert len(lines("notify_failed")) == 2


def test_a_manager_that_does_not_read_holds_nothing_up(
    tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its socket is full, a message is given up after a while."""
    monkeypatch.setattr(systemd, "_PATIENCE_S", 0.05)
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(address))
        manager = ServiceManager({"NOTIFY_SOCKET": str(address)})
        began_s = time.monotonic()
        while not lines("notify_failed"):
            manager.tell("x" * 1000)
            assert time.monotonic() - began_s < 30


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
    ],
)
def test_the_watchdog_is_read(environ: dict[str, str], watchdog_s: float | None) -> None:
    """Ours only, and only when it says how long."""
    assert ServiceManager({"NOTIFY_SOCKET": "/run/x", **environ}).watchdog_s == watchdog_s
