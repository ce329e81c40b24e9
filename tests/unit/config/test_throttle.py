"""Tests of ``migrator.config.throttle``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from migrator.config import load
from migrator.config.throttle import Throttle


def test_everything_is_off_unless_it_is_wanted() -> None:
    """Empty and 0 both mean off."""
    given = Throttle()
    off = Throttle(
        max_level_depth=0,
        max_database_latency="",  # type: ignore[arg-type]  # as in a file
        touch_file="",  # type: ignore[arg-type]  # as in a file
        veto_url="",
        windows=(),
    )
    assert given == off
    assert given.open_windows == []


def test_a_file_says_what_holds(tmp_path: Path) -> None:
    """With units, and several windows."""
    file = tmp_path / "migrator.toml"
    file.write_text(
        '[throttle]\nwindows = ["22:00-06:00", "Sat-Sun 00:00-24:00"]\n'
        'time_zone = "Europe/Vienna"\nmax_database_latency = "500ms"\nveto_url = "http://a/b"\n'
    )
    given = load(file=file, environ={}).settings.throttle
    assert [window.text for window in given.open_windows] == ["22:00-06:00", "Sat-Sun 00:00-24:00"]
    assert given.zone == ZoneInfo("Europe/Vienna")
    assert given.max_database_latency is not None
    assert given.max_database_latency.total_seconds() == 0.5
    environ = {"MIGRATOR_THROTTLE__WINDOWS": '["01:00-02:00"]'}
    assert load(file=file, environ=environ).settings.throttle.windows == ("01:00-02:00",)


def test_utc_needs_no_data_about_time_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a small container may not have."""

    def unknown(key: str) -> ZoneInfo:
        raise LookupError(key)

    monkeypatch.setattr("migrator.config.quantities.ZoneInfo", unknown)
    assert Throttle().zone is UTC
    with pytest.raises(ValidationError, match="time zone"):
        Throttle(time_zone="Europe/Vienna")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"windows": ["10pm"]}, "22:00-06:00"),
        ({"time_zone": "Mars/Base"}, "time zone"),
        ({"time_zone": "../../etc/passwd"}, "time zone"),
        ({"touch_file": "here"}, "absolute path"),
        ({"veto_url": "ftp://a"}, "http://"),
        ({"veto_url": "http://me:secret@a/"}, "no password"),
        ({"every": "20s"}, "twice as long"),
        ({"max_database_latency": "0s"}, "longer than"),
        ({"max_level_depth": -1}, "greater"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], why: str) -> None:
    """Each with what would do."""
    with pytest.raises(ValidationError, match=why):
        Throttle(**given)


def test_windows_may_be_cron_expressions_of_the_zone() -> None:
    """Beside ranges; what is neither is refused."""
    given = Throttle(windows=("0 22 * * fri 8h", "12:00-13:00"), time_zone="Europe/Vienna")
    cron, _ = given.open_windows
    assert cron.text == "0 22 * * fri 8h"
    assert cron.is_open(datetime(2026, 1, 9, 21, 0, tzinfo=UTC))
    assert not cron.is_open(datetime(2026, 1, 9, 20, 59, tzinfo=UTC))
    with pytest.raises(ValidationError, match="weekdays by name"):
        Throttle(windows=("0 22 * * 5 8h",))
