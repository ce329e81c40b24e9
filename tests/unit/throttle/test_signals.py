"""Tests of ``migrator.throttle.signals``, with real files and HTTP."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from migrator.errors import TargetUnavailable
from migrator.nservicebus.timeouts import EndpointName
from migrator.rabbitmq.server import AlarmWatch
from migrator.throttle.reasons import Signal
from migrator.throttle.signals import (
    Affected,
    BrokerAlarm,
    FlagFile,
    Limits,
    MaintenanceWindow,
    Measurement,
    Observation,
    Threshold,
    ThrottleUrl,
)
from migrator.throttle.windows import parse_window

SALES = EndpointName("Sales")


def test_a_window_goes_by_its_time_zone() -> None:
    """Summer time included."""
    windows, zone = [parse_window("22:00-06:00")], ZoneInfo("Europe/Vienna")
    winter = datetime(2026, 1, 15, 21, 30, tzinfo=UTC)  # 22:30 there
    summer = datetime(2026, 7, 16, 4, 30, tzinfo=UTC)  # 06:30 there, a Thursday
    there = MaintenanceWindow(windows, zone)
    assert there.poll_at(winter) == {}
    found = there.poll_at(summer)
    assert found == {None: Observation("it is Thu 06:30 Europe/Vienna", "only 22:00-06:00")}
    by_utc = MaintenanceWindow(windows, UTC).poll_at(summer.replace(hour=7))
    assert by_utc[None].observed == "it is Thu 07:30 UTC"


def test_a_file_says_no_by_being_there(tmp_path: Path) -> None:
    """And when nobody can look."""
    file = tmp_path / "wait"
    assert FlagFile(file).poll() == {}
    file.touch()
    assert FlagFile(file).poll()[None].observed.startswith(f"{file} exists, changed 20")
    assert "cannot be checked" in FlagFile(file / "below").poll()[None].observed


def test_an_alarm_is_heard_of_by_any_connection() -> None:
    """By that of a lane, or by the one that is there for it."""

    class Watch(AlarmWatch):
        """Says what the test wants; None: nothing."""

        def __init__(self, says: str | TargetUnavailable | None) -> None:
            self.says = says

        def look(self) -> str | None:
            if isinstance(self.says, TargetUnavailable):
                raise self.says
            return self.says

    def nothing() -> None:
        pass

    lost = TargetUnavailable("lost")
    limit = "until the broker takes messages again"
    assert BrokerAlarm(nothing, Watch(None)).poll() == {}
    assert BrokerAlarm(nothing, Watch("low disk")).poll() == {None: Observation("low disk", limit)}
    with pytest.raises(TargetUnavailable):
        BrokerAlarm(nothing, Watch(lost)).poll()
    for says in (None, lost):
        found = BrokerAlarm(lambda: "low on memory", Watch(says)).poll()
        assert found[None].observed == "low on memory"


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
    signal = ThrottleUrl(address)
    assert signal.poll() == {}
    _Handler.status, _Handler.body = 503, b"\nbackup\truns\nsecond line"
    assert signal.poll() == {
        None: Observation(f"{address} answered 503: backup runs", "until it answers 2xx")
    }
    _Handler.status, _Handler.body = 204, b""
    assert signal.poll() == {}
    signal.close()
    refused = ThrottleUrl("http://127.0.0.1:9/")
    assert "did not answer" in refused.poll()[None].observed
    refused.close()


# ── limits ─────────────────────────────────────────────────────────────────────────────────────


class Values(Threshold):
    """Has these values, one after the other."""

    signal = Signal.LATENCY

    def __init__(self, limits: Limits, *values: float) -> None:
        super().__init__(limits)
        self.left = iter(values)

    def measure(self) -> Mapping[Affected, Measurement]:
        return {SALES: Measurement(next(self.left), "much")}


def test_a_value_over_its_limit_counts_until_it_is_a_good_deal_lower() -> None:
    """Between the two nothing changes, whatever it was."""
    values = (100, 101, 99, 81, 80, 81, 100, 100.5)
    signal = Values(Limits(100, 0), *values)
    found = [SALES in signal.poll() for _ in values]
    assert found == [False, True, True, True, False, False, False, True]


def test_far_out_of_bounds_it_is_critical() -> None:
    """Except what cannot be measured for one endpoint: that only makes it wait."""
    signal = Values(Limits(100, 500), math.inf, 500, 501)
    found = [(SALES in signal.poll(), signal.critical) for _ in range(3)]
    text = "database_latency: much, above the limit of 500 at which the daemon ends"
    assert found == [(True, None), (True, None), (True, text)]
