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

import pytest

from migrator.config.values import parse_window
from migrator.errors import StoreUnavailable, TargetUnavailable
from migrator.ledger.pause_reasons import Signal
from migrator.nservicebus.timeouts import EndpointName
from migrator.service.throttle import (
    BooleanThrottle,
    Limits,
    PollInterval,
    Sample,
    SignalThrottles,
    ThresholdThrottle,
    Throttle,
    Verdict,
    Whom,
)
from migrator.service.throttle_signals import (
    ClockCheck,
    HttpCheck,
    check_alarm,
    check_flag_file,
    check_window,
)
from tests.unit.ledger.told_clock import START, ToldClock

WaitFor = Callable[[Callable[[], bool]], None]
INTERVAL = PollInterval(every_s=0.01, stale_after_s=60)
SOON_STALE = PollInterval(every_s=0.01, stale_after_s=0.3)
SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")


@pytest.fixture
def throttle() -> Throttle:
    """Nothing is held."""
    return Throttle()


@pytest.fixture
def ticking() -> Iterator[Callable[[SignalThrottles], None]]:
    """Runs throttles as the schedule does, until the test is over."""
    over = threading.Event()
    threads: list[tuple[SignalThrottles, threading.Thread]] = []

    def run(throttles: SignalThrottles) -> None:
        def tick() -> None:
            while not over.wait(0.01):
                throttles.job.do()

        throttles.begin()
        threads.append((throttles, threading.Thread(target=tick)))
        threads[-1][1].start()

    yield run
    over.set()
    for throttles, thread in threads:
        thread.join(10)
        throttles.end()


class Judge:
    """Says what the test wants."""

    def __init__(self) -> None:
        self.verdict: Verdict | None = None
        self.failure: StoreUnavailable | None = None
        self.answered_s = 0.0
        self.go_on = threading.Event()
        self.go_on.set()
        self.closed = False

    def __call__(self) -> Verdict | None:
        self.go_on.wait(20)
        if self.failure is not None:
            raise self.failure
        self.answered_s = time.monotonic()
        return self.verdict

    def close(self) -> None:
        self.closed = True


def judged(throttle: Throttle, judge: Judge, interval: PollInterval = INTERVAL) -> BooleanThrottle:
    """Return a throttle that asks *judge*."""
    return BooleanThrottle(Signal.VETO, throttle, interval, judge, close=judge.close)


def texts(throttle: Throttle) -> list[str]:
    """Return why is waited, oldest first."""
    return [hold.text for hold in throttle.reasons()]


def test_a_judge_is_asked_before_anything_is_claimed(
    throttle: Throttle, ticking: Callable[[SignalThrottles], None], wait_for: WaitFor
) -> None:
    """It holds by its first no, and lifts by its first yes."""
    judge = Judge()
    judge.verdict = Verdict(observed="no", limit="yes")
    ticking(SignalThrottles([judged(throttle, judge)]))
    assert texts(throttle) == ["veto: no (yes)"]
    judge.verdict = None
    wait_for(lambda: not throttle.reasons())


def test_who_cannot_be_asked_is_believed_for_a_while_only(
    throttle: Throttle, ticking: Callable[[SignalThrottles], None], wait_for: WaitFor
) -> None:
    """Then hand-over waits, because nobody knows; the reason is told."""
    judge = Judge()
    ticking(SignalThrottles([judged(throttle, judge, SOON_STALE)]))
    judge.failure = StoreUnavailable("no line")
    wait_for(lambda: any("no line" in text for text in texts(throttle)))
    assert time.monotonic() - judge.answered_s > SOON_STALE.stale_after_s
    assert "not to be older than 0.3 s" in texts(throttle)[0]
    judge.failure = None
    wait_for(lambda: not throttle.reasons())


def test_who_hangs_holds_no_other_up(
    throttle: Throttle, ticking: Callable[[SignalThrottles], None], wait_for: WaitFor
) -> None:
    """It counts as one that cannot be asked, while the others are looked at."""
    hangs, other = Judge(), Judge()
    others = BooleanThrottle(Signal.TOUCH_FILE, throttle, INTERVAL, other)
    throttles = SignalThrottles([judged(throttle, hangs, SOON_STALE), others])
    ticking(throttles)
    hangs.go_on.clear()
    wait_for(lambda: [hold.signal for hold in throttle.reasons()] == [Signal.VETO])
    other.verdict = Verdict(observed="there")
    wait_for(lambda: len(throttle.reasons()) == 2)
    hangs.go_on.set()
    wait_for(lambda: [hold.signal for hold in throttle.reasons()] == [Signal.TOUCH_FILE])


def test_what_is_replaced_holds_nothing_any_more(
    throttle: Throttle, ticking: Callable[[SignalThrottles], None], wait_for: WaitFor
) -> None:
    """Its thread is over, and what it needed is closed."""
    judge = Judge()
    judge.verdict = Verdict(observed="no")
    before = judged(throttle, judge)
    throttles = SignalThrottles([before])
    ticking(throttles)
    assert len(throttle.reasons()) == 1
    throttles.replace([])
    assert throttle.reasons() == []
    assert before.task.has_ended
    assert judge.closed


class Values:
    """Measured values."""

    def __init__(self, **values: float) -> None:
        self.values = values

    def __call__(self) -> Mapping[Whom, Sample]:
        return {
            EndpointName(name) if name != "all" else None: Sample(value=each, text=f"{each:g} s")
            for name, each in self.values.items()
        }


def test_a_value_holds_its_endpoint_alone(
    throttle: Throttle, ticking: Callable[[SignalThrottles], None], wait_for: WaitFor
) -> None:
    """Above the limit, until it is a good deal lower; one that is gone holds nothing."""
    values, panics = Values(Sales=0.5, Shop=0.1), list[str]()
    latency = ThresholdThrottle(
        Signal.LATENCY,
        throttle,
        INTERVAL,
        limits=Limits(most=1.0),
        measure=values,
        critical=panics.append,
    )
    ticking(SignalThrottles([latency]))
    assert throttle.reasons() == []
    values.values = {"Sales": 1.5, "Shop": 0.1}
    wait_for(lambda: throttle.reason_for(SALES) is not None)
    assert throttle.reason_for(SHOP) is None
    values.values = {"Sales": 0.9, "Shop": 1.2}
    wait_for(lambda: throttle.reason_for(SHOP) is not None)
    assert texts(throttle)[0] == "database_latency: 0.9 s (at most 1)"
    values.values = {"Sales": 0.8}
    wait_for(lambda: not throttle.reasons())
    assert panics == []


def test_far_out_of_bounds_it_panics(
    throttle: Throttle, ticking: Callable[[SignalThrottles], None], wait_for: WaitFor
) -> None:
    """With or without a limit that holds."""
    panics = list[str]()
    latency = ThresholdThrottle(
        Signal.LEVEL_DEPTH,
        throttle,
        INTERVAL,
        limits=Limits(critical_above=5),
        measure=Values(all=6.0),
        critical=panics.append,
    )
    ticking(SignalThrottles([latency]))
    wait_for(lambda: bool(panics))
    assert panics[0] == "level_depth: 6 s, and 5 is where the daemon gives up"
    assert throttle.reasons() == []


# ── the signals ─────────────────────────────────────────────────────────────────────────────


def test_a_window_goes_by_its_time_zone() -> None:
    """Summer time included."""
    windows, zone = [parse_window("22:00-06:00")], ZoneInfo("Europe/Vienna")
    winter = datetime(2026, 1, 15, 21, 30, tzinfo=UTC)  # 22:30 there
    assert check_window(windows, zone, lambda: winter) is None
    summer = datetime(2026, 7, 16, 4, 30, tzinfo=UTC)  # 06:30 there, a Thursday
    assert check_window(windows, zone, lambda: summer) == Verdict(
        observed="it is Thu 06:30 Europe/Vienna", limit="only 22:00-06:00"
    )
    by_utc = check_window([parse_window("22:00-06:00")], UTC, lambda: summer.replace(hour=7))
    assert by_utc is not None
    assert by_utc.observed == "it is Thu 07:30 UTC"


def test_a_file_says_no_by_being_there(tmp_path: Path) -> None:
    """And when nobody can look."""
    file = tmp_path / "wait"
    assert check_flag_file(file) is None
    file.touch()
    found = check_flag_file(file)
    assert found is not None
    assert found.observed.startswith(f"{file} exists, of 20")
    cannot = check_flag_file(file / "below")
    assert cannot is not None
    assert "cannot be looked at" in cannot.observed


def test_an_alarm_is_heard_of_by_any_connection() -> None:
    """By that of a lane, or by the one that is there for it."""
    workers: list[Any] = [SimpleNamespace(blocked_reason=None)]
    assert check_alarm(workers, lambda: None) is None
    assert check_alarm(workers, lambda: "low on disk") == Verdict(
        observed="low on disk", limit="until the broker takes messages again"
    )

    def lost() -> None:
        raise TargetUnavailable("lost")

    with pytest.raises(TargetUnavailable):
        check_alarm(workers, lost)
    workers.append(SimpleNamespace(blocked_reason="low on memory"))
    for look in (lambda: None, lost):
        found = check_alarm(workers, look)
        assert found is not None
        assert found.observed == "low on memory"


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


def test_an_address_may_veto(address: str) -> None:
    """Anything but 2xx is a no, with the first line of what it says; so is no answer."""
    veto = HttpCheck(address)
    assert veto() is None
    _Handler.status, _Handler.body = 503, b"\nbackup\truns\nsecond line"
    assert veto() == Verdict(
        observed=f"{address} says 503: backup runs", limit="until it answers 2xx"
    )
    _Handler.status, _Handler.body = 204, b""
    assert veto() is None
    veto.close()
    nobody = HttpCheck("http://127.0.0.1:9/")
    found = nobody()
    nobody.close()
    assert found is not None
    assert "did not answer" in found.observed


# ── the database's clock ─────────────────────────────────────────────────────────────────────────


class Scene:
    """A database, this machine and a broker, each ahead by so many seconds; None: it is away."""

    def __init__(self) -> None:
        self.clock = ToldClock()
        self.wall_s = 0.0
        self.broker_s: float | None = 0.0
        self.check = ClockCheck(self.clock, self._ask_broker, lambda: self._at(self.wall_s))
        assert self.check() is None

    def holds(self) -> bool:
        """Let some seconds pass; return whether hand-over has to wait."""
        self.clock.elapsed_s += 6
        return self.check() is not None

    def _at(self, ahead_s: float) -> datetime:
        return START + timedelta(seconds=self.clock.elapsed_s + ahead_s)

    def _ask_broker(self, now: Callable[[], datetime]) -> bool | None:
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
