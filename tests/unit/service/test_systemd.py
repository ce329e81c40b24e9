"""Tests of ``migrator.service.systemd``, with real threads and a real socket.

Time passes when a test says so: on a busy machine real threads come too late for any interval.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from migrator.service import systemd
from migrator.service.systemd import ServiceManager, Supervision
from migrator.service.worker import Stop, WorkerThread
from tests.support.service_manager import ServiceManager as Listener

INTERVAL_S = 8.0
Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]


class Clock:
    """The monotonic clock of workers and supervision; it moves when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Manager(ServiceManager):
    """Our side of the protocol, which notes when signs of life were sent."""

    def __init__(self, clock: Clock, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self._clock = clock
        self.signs_s: list[float] = []

    def alive(self) -> None:
        self.signs_s.append(self._clock.now_s)
        super().alive()


class Worker(WorkerThread):
    """Goes on until told to hang, or to stop."""

    def __init__(self, name: str, stop: Stop) -> None:
        super().__init__(name, stop=stop, crash_action="lane_crashed", facts={})
        self.hang = threading.Event()
        self.hangs = threading.Event()
        self.go_on = threading.Event()

    def _run(self) -> None:
        while not self._stop.at_once.is_set():
            self.beat()
            if self.hang.is_set():
                self.hangs.set()
                self.go_on.wait(60)
                self.hangs.clear()
            time.sleep(0.001)


class Bench:
    """Two workers, their supervision, and who listens."""

    def __init__(self, listener: Listener, clock: Clock, wait_for: WaitFor, **environ: str) -> None:
        self._clock, self._wait_for = clock, wait_for
        self.stop = Stop()
        self.workers = [Worker(f"worker-{n}", self.stop) for n in range(2)]
        self.manager = Manager(clock, {"NOTIFY_SOCKET": listener.address, **environ})
        self.supervision = Supervision(self.manager, self.workers, self.stop)

    def start(self) -> None:
        for worker in self.workers:
            worker.start()
        self.supervision.begin()

    def look_for(self, seconds: float) -> None:
        """Look as the main thread does, for a while; who does not hang goes on meanwhile."""
        ends_s = self._clock.now_s + seconds
        while self._clock.now_s < ends_s:
            self._clock.now_s += self.supervision.look_every_s
            for worker in self.workers:
                self._wait_for(lambda each=worker: each.hangs.is_set() or not each.silent_s)  # type: ignore[misc]  # mypy cannot type a lambda's default
            self.supervision.look()

    def hang(self, number: int) -> None:
        """Have a worker hang from now on."""
        self.workers[number].hang.set()
        assert self.workers[number].hangs.wait(30)

    def end(self) -> None:
        self.stop.at_once.set()
        for worker in self.workers:
            worker.go_on.set()
            assert worker.join(30)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time for workers and supervision."""
    made = Clock()
    monkeypatch.setattr("migrator.service.systemd.time", made)
    monkeypatch.setattr("migrator.service.worker.time", made)
    return made


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """A service manager that only listens."""
    with Listener(tmp_path / "notify") as opened:
        yield opened


@pytest.fixture
def bench(listener: Listener, clock: Clock, wait_for: WaitFor) -> Iterator[Bench]:
    """With a watchdog."""
    made = Bench(listener, clock, wait_for, WATCHDOG_USEC=str(int(INTERVAL_S * 1e6)))
    made.start()
    yield made
    made.end()


def test_signs_of_life_come_several_times_in_each_interval(
    bench: Bench, listener: Listener, wait_for: WaitFor
) -> None:
    """After READY, and as long as all go on."""
    bench.look_for(3 * INTERVAL_S)
    signs = bench.manager.signs_s
    assert max(later - sooner for sooner, later in pairwise(signs)) <= INTERVAL_S / 2
    assert len(signs) >= 6
    wait_for(lambda: len(listener.messages("WATCHDOG=1")) == len(signs))
    assert listener.messages()[:2] == ["READY=1", "STATUS=working"]


def test_one_that_hangs_stops_the_signs_within_an_interval(
    bench: Bench, clock: Clock, lines: Lines
) -> None:
    """Although the other goes on; it is named in the log, once; when it goes on, so do they."""
    bench.look_for(INTERVAL_S)
    bench.hang(1)
    hung_s = clock.now_s
    bench.look_for(3 * INTERVAL_S)
    assert bench.manager.signs_s[-1] - hung_s < INTERVAL_S
    (line,) = lines("worker_hangs")
    assert (line.levelno, vars(line)["workers"]) == (logging.ERROR, ["worker-1"])
    resumed_s = clock.now_s
    bench.workers[1].hang.clear()
    bench.workers[1].go_on.set()
    bench.look_for(INTERVAL_S)
    assert bench.manager.signs_s[-1] > resumed_s


def test_one_that_ended_does_not_hang(bench: Bench, clock: Clock) -> None:
    """A lane that gave up leaves the others to their work."""
    ended = Worker("ended", Stop())
    ended._stop.at_once.set()
    ended.start()
    assert ended.join(30)
    bench.workers.append(ended)
    bench.look_for(2 * INTERVAL_S)
    assert clock.now_s - bench.manager.signs_s[-1] < INTERVAL_S


def test_while_draining_more_time_is_asked_for(
    bench: Bench, listener: Listener, wait_for: WaitFor
) -> None:
    """Again and again, as long as it gets on; STOPPING comes once, and the status says so."""
    bench.look_for(INTERVAL_S)
    bench.stop.draining.set()
    bench.look_for(20)
    bench.supervision.status("5 handed over")
    bench.supervision.end()
    wait_for(lambda: "STATUS=stopping: 5 handed over" in listener.messages())
    asked = listener.messages("EXTEND")
    assert len(asked) >= 3
    assert set(asked) == {"EXTEND_TIMEOUT_USEC=60000000"}
    ends = [text for text in listener.messages() if text.startswith(("EXTEND", "STOPPING"))]
    assert (ends[0], ends.count("STOPPING=1")) == ("STOPPING=1", 1)
    bench.hang(0)
    bench.look_for(2 * INTERVAL_S)
    bench.supervision.status("hangs")
    wait_for(lambda: "STATUS=stopping: hangs" in listener.messages())
    before = len(listener.messages("EXTEND"))
    bench.look_for(INTERVAL_S)
    bench.supervision.status("still hangs")
    wait_for(lambda: "STATUS=stopping: still hangs" in listener.messages())
    assert len(listener.messages("EXTEND")) == before


def test_without_a_watchdog_no_signs_are_sent(
    listener: Listener, clock: Clock, wait_for: WaitFor
) -> None:
    """But the rest is."""
    bench = Bench(listener, clock, wait_for)
    assert bench.supervision.wants_status
    bench.start()
    bench.look_for(5)
    bench.end()
    bench.supervision.end()
    wait_for(lambda: "STATUS=stopping: finishing what is in hand" in listener.messages())
    assert listener.messages("STOPPING") == ["STOPPING=1"]
    assert not listener.messages("WATCHDOG")


def test_a_worker_is_not_silent_before_and_after_its_work(clock: Clock) -> None:
    """Only a thread that runs can hang."""
    stop = Stop()
    worker = Worker("one", stop)
    assert worker.silent_s == 0
    worker.hang.set()
    worker.start()
    assert worker.hangs.wait(30)
    clock.now_s += 0.5
    assert worker.silent_s == 0.5
    stop.at_once.set()
    worker.go_on.set()
    assert worker.join(30)
    assert worker.silent_s == 0


# ── the protocol ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_abstract", [False, True], ids=["file", "abstract"])
def test_each_message_is_one_datagram(tmp_path: Path, wait_for: WaitFor, is_abstract: bool) -> None:
    """In the words of the protocol; a text is made one line."""
    address = f"@migrator-{secrets.token_hex(6)}" if is_abstract else tmp_path / "notify"
    with Listener(address) as listener:
        manager = ServiceManager({"NOTIFY_SOCKET": str(address)})
        assert manager.is_there
        manager.ready()
        manager.status("5 handed over\nREADY=0\n  größer")
        manager.alive()
        manager.extend(timedelta(seconds=1.5))
        manager.stopping()
        wait_for(lambda: len(listener.heard) == 5)
    assert listener.messages() == [
        "READY=1",
        "STATUS=5 handed over READY=0 größer",
        "WATCHDOG=1",
        "EXTEND_TIMEOUT_USEC=1500000",
        "STOPPING=1",
    ]


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1234"])
def test_without_a_manager_nothing_happens(address: str | None, lines: Lines) -> None:
    """Nor with one that is reached in a way we do not know."""
    environ = {"WATCHDOG_USEC": "1000000"} | ({} if address is None else {"NOTIFY_SOCKET": address})
    manager = ServiceManager(environ)
    manager.ready()
    manager.status("x")
    assert (manager.is_there, manager.watchdog) == (False, None)
    assert not lines("notify_failed")


def test_a_manager_that_went_away_is_told_once_and_ends_nothing(
    tmp_path: Path, lines: Lines
) -> None:
    """Until it is back, and goes away again."""
    address = tmp_path / "notify"
    manager = ServiceManager({"NOTIFY_SOCKET": str(address)})
    manager.ready()
    manager.alive()
    assert len(lines("notify_failed")) == 1
    with Listener(address):
        manager.alive()
    address.unlink()
    manager.alive()
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
            manager.status("x" * 1000)
            assert time.monotonic() - began_s < 30
        asked_s = time.monotonic()
        manager.alive()
        assert time.monotonic() - asked_s < 20


@pytest.mark.parametrize(
    ("environ", "watchdog"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, timedelta(seconds=3)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, timedelta(seconds=3)),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
    ],
)
def test_the_watchdog_is_read(environ: dict[str, str], watchdog: timedelta | None) -> None:
    """Ours only, and only when it says how long."""
    manager = ServiceManager({"NOTIFY_SOCKET": "/run/x", **environ})
    assert manager.watchdog == watchdog
