"""Tests of ``migrator.daemon.supervision``, with real threads and a real socket."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from migrator.daemon.notify import ServiceManager
from migrator.daemon.supervision import Supervision
from migrator.daemon.worker import Stop, WorkerThread
from tests.support.service_manager import ServiceManager as Listener

INTERVAL_S = 0.4
Lines = Callable[[str], list[logging.LogRecord]]
WaitFor = Callable[[Callable[[], bool]], None]


class Worker(WorkerThread):
    """Goes on until told to hang, or to stop."""

    def __init__(self, name: str, stop: Stop) -> None:
        super().__init__(name, stop=stop, crash_action="lane_crashed", facts={})
        self.hang = threading.Event()
        self.go_on = threading.Event()

    def _run(self) -> None:
        while not self._stop.at_once.is_set():
            self.beat()
            if self.hang.is_set():
                self.go_on.wait(20)
            time.sleep(0.01)


class Bench:
    """Two workers, their supervision, and who listens."""

    def __init__(self, listener: Listener, **environ: str) -> None:
        self.listener = listener
        self.stop = Stop()
        self.workers = [Worker(f"worker-{n}", self.stop) for n in range(2)]
        manager = ServiceManager({"NOTIFY_SOCKET": listener.address, **environ})
        self.supervision = Supervision(manager, self.workers, self.stop)

    def start(self) -> None:
        for worker in self.workers:
            worker.start()
        self.supervision.begin()

    def look_for(self, seconds: float) -> None:
        """Look as the main thread does, for a while."""
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self.supervision.look()
            time.sleep(self.supervision.look_every_s)

    def end(self) -> None:
        self.stop.at_once.set()
        for worker in self.workers:
            worker.go_on.set()
            assert worker.join(10)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    """A service manager that only listens."""
    with Listener(tmp_path / "notify") as opened:
        yield opened


@pytest.fixture
def bench(listener: Listener) -> Iterator[Bench]:
    """With a short watchdog."""
    made = Bench(listener, WATCHDOG_USEC=str(int(INTERVAL_S * 1e6)))
    yield made
    if made.workers[0].silent_s:
        made.end()


def test_signs_of_life_come_several_times_in_each_interval(
    bench: Bench, listener: Listener, wait_for: WaitFor
) -> None:
    """After READY, and as long as all go on."""
    bench.start()
    bench.look_for(3 * INTERVAL_S)
    wait_for(lambda: len(listener.times_s("WATCHDOG=1")) >= 6)
    assert listener.messages()[:2] == ["READY=1", "STATUS=working"]
    signs = listener.times_s("WATCHDOG=1")
    assert max(later - sooner for sooner, later in pairwise(signs)) < INTERVAL_S


def test_one_that_hangs_stops_the_signs_within_an_interval(
    bench: Bench, listener: Listener, lines: Lines
) -> None:
    """Although the other goes on; it is named in the log, once; when it goes on, so do they."""
    bench.start()
    bench.look_for(INTERVAL_S)
    bench.workers[1].hang.set()
    hung_s = time.monotonic()
    bench.look_for(3 * INTERVAL_S)
    assert listener.times_s("WATCHDOG=1")[-1] - hung_s < INTERVAL_S + 0.1
    (line,) = lines("worker_hangs")
    assert (line.levelno, vars(line)["workers"]) == (logging.ERROR, ["worker-1"])
    resumed_s = time.monotonic()
    bench.workers[1].hang.clear()
    bench.workers[1].go_on.set()
    bench.look_for(INTERVAL_S)
    assert listener.times_s("WATCHDOG=1")[-1] > resumed_s


def test_one_that_ended_does_not_hang(bench: Bench, listener: Listener) -> None:
    """A lane that gave up leaves the others to their work."""
    ended = Worker("ended", Stop())
    ended._stop.at_once.set()
    ended.start()
    assert ended.join(10)
    bench.start()
    bench.workers.append(ended)
    bench.look_for(2 * INTERVAL_S)
    assert time.monotonic() - listener.times_s("WATCHDOG=1")[-1] < INTERVAL_S


def test_while_draining_more_time_is_asked_for(
    bench: Bench, listener: Listener, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    """Again and again, as long as it gets on; STOPPING comes once, and the status says so."""
    monkeypatch.setattr("migrator.daemon.supervision._EXTEND_EVERY_S", 0.1)
    bench.start()
    bench.look_for(0.1)
    assert not listener.messages("EXTEND") + listener.messages("STOPPING")
    bench.stop.draining.set()
    bench.look_for(0.5)
    bench.supervision.status("5 handed over")
    bench.supervision.end()
    wait_for(lambda: "STATUS=stopping: 5 handed over" in listener.messages())
    assert len(listener.messages("EXTEND_TIMEOUT_USEC=60000000")) >= 3
    assert listener.messages("STOPPING") == ["STOPPING=1"]
    bench.workers[0].hang.set()
    bench.look_for(2 * INTERVAL_S)
    before = len(listener.messages("EXTEND"))
    bench.look_for(INTERVAL_S)
    assert len(listener.messages("EXTEND")) == before


def test_without_a_watchdog_no_signs_are_sent(listener: Listener, wait_for: WaitFor) -> None:
    """But the rest is."""
    bench = Bench(listener)
    assert bench.supervision.wants_status
    bench.start()
    bench.look_for(0.6)
    bench.end()
    bench.supervision.end()
    wait_for(lambda: "STOPPING=1" in listener.messages())
    assert not listener.messages("WATCHDOG")


def test_a_worker_is_not_silent_before_and_after_its_work() -> None:
    """Only a thread that runs can hang."""
    stop = Stop()
    worker = Worker("one", stop)
    assert worker.silent_s == 0
    worker.hang.set()
    worker.start()
    time.sleep(0.1)
    assert worker.silent_s >= 0.1
    stop.at_once.set()
    worker.go_on.set()
    assert worker.join(10)
    assert worker.silent_s == 0
