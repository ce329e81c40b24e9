"""Tests of the signals and how they are polled, with real threads, files and HTTP."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pytest

from migrator.errors import StoreUnavailable, TargetUnavailable
from migrator.nservicebus.timeouts import EndpointName
from migrator.throttle.polling import SignalPoll, SignalPolls
from migrator.throttle.reasons import Signal, Throttle
from migrator.throttle.signals import (
    Look,
    Sample,
    Verdict,
    Whom,
    check_alarm,
    check_flag_file,
    check_http,
    check_window,
    threshold,
)
from migrator.throttle.windows import parse_window
from tests.unit.service.conftest import WaitFor

SALES, SHOP = EndpointName("Sales"), EndpointName("Shop")
NO: Mapping[Whom, Verdict] = {None: Verdict("no", "yes")}


class Bench:
    """Signals that say what the test wants, looked at as the schedule does."""

    def __init__(self) -> None:
        self.throttle, self.throttles = Throttle(), SignalPolls()
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
            self.throttles.tick()

    def look(self) -> Mapping[Whom, Verdict]:
        self.go_on.wait(20)
        if self.failure is not None:
            raise self.failure
        self.answered_s = time.monotonic()
        return self.verdicts

    def new(self, signal: Signal, look: Look, *, stale_after_s: float = 60) -> SignalPoll:
        return SignalPoll(
            signal,
            self.throttle,
            look,
            every_s=0.01,
            stale_after_s=stale_after_s,
            close=lambda: setattr(self, "closed", True),
        )

    def begin(self, *more: SignalPoll, stale_after_s: float = 60) -> None:
        http = self.new(Signal.HTTP, self.look, stale_after_s=stale_after_s)
        self.throttles.replace([http, *more])
        self._thread.start()

    def end(self) -> None:
        self.go_on.set()
        self._over.set()
        self._thread.join(10)
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

    def lost() -> None:
        raise TargetUnavailable("lost")

    def nothing() -> None:
        pass

    limit = "until the broker takes messages again"
    assert check_alarm(nothing, nothing) == {}
    assert check_alarm(nothing, lambda: "low disk") == {None: Verdict("low disk", limit)}
    with pytest.raises(TargetUnavailable):
        check_alarm(nothing, lost)
    for look in (nothing, lost):
        assert check_alarm(lambda: "low on memory", look)[None].observed == "low on memory"


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


# ── limits ─────────────────────────────────────────────────────────────────────────────────────


def waits_after(*values: float, critical_above: float = 0) -> tuple[list[bool], list[str]]:
    """Return after which of these values one waits with a limit of 100, and what was critical."""
    left, critical = iter(values), list[str]()
    look = threshold(
        Signal.LATENCY,
        lambda: {SALES: Sample(next(left), "much")},
        (100.0, critical_above),
        critical.append,
    )
    return [SALES in look() for _ in values], critical


def test_a_value_over_its_limit_counts_until_it_is_a_good_deal_lower() -> None:
    """Between the two nothing changes, whatever it was."""
    found, _ = waits_after(100, 101, 99, 81, 80, 81, 100, 100.5)
    assert found == [False, True, True, True, False, False, False, True]


def test_far_out_of_bounds_it_is_critical() -> None:
    """Except what cannot be measured for one endpoint: that only makes it wait."""
    found, critical = waits_after(math.inf, 500, 501, critical_above=500)
    assert found == [True, True, True]
    assert critical == ["database_latency: much, above the limit of 500 at which the daemon ends"]
