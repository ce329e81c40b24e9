"""Tests of ``migrator.service.throttle_signals``, with real threads, files and HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from migrator.config.values import parse_window
from migrator.errors import StoreUnavailable, TargetUnavailable
from migrator.ledger.report import Signal
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.throttle import Throttle
from migrator.service.throttle_signals import (
    AT_START,
    ClockCheck,
    Look,
    SignalThrottle,
    SignalThrottles,
    Verdict,
    Whom,
    check_alarm,
    check_first_time,
    check_flag_file,
    check_http,
    check_window,
)
from tests.unit.ledger.told_clock import START, ToldClock
from tests.unit.service.conftest import WaitFor

SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")
NO: Mapping[Whom, Verdict] = {None: Verdict("no", "yes")}


class Bench:
    """Signals that say what the test wants, looked at as the schedule does."""

    def __init__(self) -> None:
        self.throttle, self.throttles = Throttle(), SignalThrottles()
        self.verdicts: Mapping[Whom, Verdict] = {}
        self.failure: StoreUnavailable | None = None
        self.answered_s = 0.0
        self.go_on = threading.Event()
        self.go_on.set()
        self.closed = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        while not self._over.wait(0.01):
            self.throttles.job.run()

    def look(self) -> Mapping[Whom, Verdict]:
        self.go_on.wait(20)
        if self.failure is not None:
            raise self.failure
        self.answered_s = time.monotonic()
        return self.verdicts

    def new(self, signal: Signal, look: Look, *, stale_after_s: float = 60) -> SignalThrottle:
        return SignalThrottle(
            signal,
            self.throttle,
            look,
            every_s=0.01,
            stale_after_s=stale_after_s,
            close=lambda: setattr(self, "closed", True),
        )

    def begin(self, *more: SignalThrottle, stale_after_s: float = 60) -> None:
        http = self.new(Signal.HTTP, self.look, stale_after_s=stale_after_s)
        self.throttles.replace([http, *more])
        self._thread.start()

    def end(self) -> None:
        self.go_on.set()
        self._over.set()
        self._thread.join(10)
        self.throttles.job.end()
        self.throttles.end()

    @property
    def texts(self) -> list[str]:
        return [reason.text for reason in self.throttle.reasons()]

    @property
    def signals(self) -> list[Signal]:
        return [reason.signal for reason in self.throttle.reasons()]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """One in which nothing is held."""
    made = Bench()
    yield made
    made.end()


def test_a_signal_is_looked_at_before_anything_is_claimed(bench: Bench, wait_for: WaitFor) -> None:
    """It holds by its first no, those it names, and lifts by its first yes."""
    bench.verdicts = NO
    bench.begin()
    assert bench.texts == ["throttle_http: no (yes)"]
    bench.verdicts = {SALES: Verdict("slow")}
    wait_for(lambda: bench.texts == ["throttle_http: slow"])
    assert bench.throttle.reason_for(SHOP) is None
    bench.verdicts = {}
    wait_for(lambda: not bench.texts)


def test_who_cannot_be_asked_is_believed_for_a_while_only(bench: Bench, wait_for: WaitFor) -> None:
    """Then hand-over waits, because nobody knows; the reason is told."""
    bench.begin(stale_after_s=0.3)
    bench.failure = StoreUnavailable("no line")
    wait_for(lambda: any("no line" in text for text in bench.texts))
    assert time.monotonic() - bench.answered_s > 0.3
    assert "must not be older than 0.3 s" in bench.texts[0]
    bench.failure = None
    wait_for(lambda: not bench.texts)


def test_who_hangs_holds_no_other_up(bench: Bench, wait_for: WaitFor) -> None:
    """It counts as one that cannot be asked, while the others are looked at."""
    others: dict[Whom, Verdict] = {}
    bench.begin(bench.new(Signal.FLAG_FILE, lambda: dict(others)), stale_after_s=0.3)
    bench.go_on.clear()
    wait_for(lambda: bench.signals == [Signal.HTTP])
    others[None] = Verdict("there")
    wait_for(lambda: len(bench.signals) == 2)
    bench.go_on.set()
    wait_for(lambda: bench.signals == [Signal.FLAG_FILE])


def test_what_is_replaced_holds_nothing_any_more(bench: Bench) -> None:
    """Its thread is over, and what it needed is closed."""
    bench.verdicts = NO
    bench.begin()
    assert len(bench.texts) == 1
    bench.throttles.replace([])
    assert (bench.texts, bench.closed) == ([], True)


# ── the signals ─────────────────────────────────────────────────────────────────────────────


def test_a_window_goes_by_its_time_zone() -> None:
    """Summer time included."""
    windows, zone = [parse_window("22:00-06:00")], ZoneInfo("Europe/Vienna")
    winter = datetime(2026, 1, 15, 21, 30, tzinfo=UTC)  # 22:30 there
    summer = datetime(2026, 7, 16, 4, 30, tzinfo=UTC)  # 06:30 there, a Thursday
    assert check_window(windows, zone, lambda: winter) == {}
    found = check_window(windows, zone, lambda: summer)
    assert found == {None: Verdict("it is Thu 06:30 Europe/Vienna", "only 22:00-06:00")}
    by_utc = check_window(windows, UTC, lambda: summer.replace(hour=7))
    assert by_utc[None].observed == "it is Thu 07:30 UTC"


def test_a_file_says_no_by_being_there(tmp_path: Path) -> None:
    """And when nobody can look."""
    file = tmp_path / "wait"
    assert check_flag_file(file) == {}
    file.touch()
    assert check_flag_file(file)[None].observed.startswith(f"{file} exists, changed 20")
    assert "cannot be checked" in check_flag_file(file / "below")[None].observed


def test_an_alarm_is_heard_of_by_any_connection() -> None:
    """By that of a lane, or by the one that is there for it."""
    workers: list[Any] = [SimpleNamespace(blocked_reason=None)]

    def lost() -> None:
        raise TargetUnavailable("lost")

    limit = "until the broker takes messages again"
    assert check_alarm(workers, lambda: None) == {}
    assert check_alarm(workers, lambda: "low disk") == {None: Verdict("low disk", limit)}
    with pytest.raises(TargetUnavailable):
        check_alarm(workers, lost)
    workers.append(SimpleNamespace(blocked_reason="low on memory"))
    for look in (lambda: None, lost):
        assert check_alarm(workers, look)[None].observed == "low on memory"


class _Handler(BaseHTTPRequestHandler):
    status = 200
    body = b""

    def do_GET(self) -> None:
        self.send_response(type(self).status)
        self.end_headers()
        self.wfile.write(type(self).body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    """Where a real HTTP server answers as ``_Handler`` says."""
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/may-i"
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_a_url_may_refuse(address: str) -> None:
    """Anything but 2xx is a no, with the first line of what it says; so is no answer."""
    with httpx.Client() as client:
        assert check_http(client, address) == {}
        _Handler.status, _Handler.body = 503, b"\nbackup\truns\nsecond line"
        found = check_http(client, address)
        assert found == {
            None: Verdict(f"{address} answered 503: backup runs", "until it answers 2xx")
        }
        _Handler.status, _Handler.body = 204, b""
        assert check_http(client, address) == {}
        nobody = check_http(client, "http://127.0.0.1:9/")
    assert "did not answer" in nobody[None].observed


# ── the database's clock ─────────────────────────────────────────────────────────────────────────


class Scene:
    """A database, this machine and a broker, each ahead by so many seconds; None: it is away."""

    def __init__(self) -> None:
        self.clock = ToldClock()
        self.wall_s = 0.0
        self.broker_s: float | None = 0.0
        self.check = ClockCheck(self.clock, self.ask_broker, self.wall_clock)
        assert not self.check()

    def holds(self) -> bool:
        """Let some seconds pass; return whether hand-over has to wait."""
        self.clock.elapsed_s += 6
        return bool(self.check())

    def _at(self, ahead_s: float) -> datetime:
        return START + timedelta(seconds=self.clock.elapsed_s + ahead_s)

    def wall_clock(self) -> datetime:
        return self._at(self.wall_s)

    def ask_broker(self, now: Callable[[], datetime]) -> bool | None:
        if self.broker_s is None:
            raise TargetUnavailable("away")
        return abs((now() - self._at(self.broker_s)).total_seconds()) < 1


@pytest.mark.parametrize("broker_s", [0.0, None])
def test_a_clock_that_nobody_agrees_with_holds_until_it_is_back(broker_s: float | None) -> None:
    """This machine still has the old time, and so has the broker, or it is away."""
    scene = Scene()
    scene.broker_s = broker_s
    scene.clock.ahead_s = 300
    assert scene.holds()
    assert scene.holds()
    scene.clock.ahead_s = 0
    assert not scene.holds()


@pytest.mark.parametrize(
    ("database_s", "wall_s", "broker_s", "waits"),
    [
        (45.0, 0.0, 0.0, True),
        (-45.0, 0.0, 0.0, True),
        (45.0, 0.0, None, True),  # until the broker can be asked
        (45.0, 0.0, 20.0, True),
        (45.0, 0.0, 45.0, False),  # this machine is wrong
        (1.9, 0.0, 0.0, False),
        (45.0, 45.0, 0.0, False),
    ],
)
def test_the_first_time_needs_a_witness(
    *, database_s: float, wall_s: float, broker_s: float | None, waits: bool
) -> None:
    """A start beside a wrong clock waits as a daemon does whose clock jumped, and so it ends."""
    scene = Scene()
    scene.clock = ToldClock()
    scene.clock.ahead_s, scene.wall_s, scene.broker_s = database_s, wall_s, broker_s
    check = ClockCheck(scene.clock, scene.ask_broker, scene.wall_clock)
    check_first_time(scene.clock, scene.ask_broker, scene.wall_clock)
    found = check()
    scene.clock.elapsed_s += 6
    assert bool(found) is bool(check()) is waits
    if waits:
        assert AT_START in found[None].observed
        scene.clock.elapsed_s += 6
        scene.clock.ahead_s = 0
        assert not check()
        assert scene.clock.after(0) == 0
        scene.clock.ahead_s = 45
        scene.clock.elapsed_s += 6
        assert "jumped: it is 45.0 s ahead of where it was" in check()[None].observed


def test_this_machine_is_a_witness() -> None:
    """Its clock went on as it should, and has the new time."""
    scene = Scene()
    scene.wall_s, scene.broker_s = 40, None
    assert not scene.holds()
    assert not scene.holds()
    scene.clock.ahead_s = 40.5
    assert not scene.holds()
    assert scene.clock.after(0) == 40.5


def test_a_machine_that_jumped_as_well_is_none_but_the_broker_is() -> None:
    """Somebody may have set the clock of the one machine that both run on."""
    scene = Scene()
    scene.wall_s = scene.clock.ahead_s = 300
    assert scene.holds()
    scene = Scene()
    scene.wall_s = scene.clock.ahead_s = scene.broker_s = 300
    assert not scene.holds()
