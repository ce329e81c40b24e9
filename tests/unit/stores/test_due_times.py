"""Tests of ``migrator.stores.due_times``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.stores.due_times import DueTimeReading, DueTimeRules, judge, zone_offset
from migrator.stores.ports import DueTime

WINTER, SUMMER = datetime(2027, 1, 5, 8, tzinfo=UTC), datetime(2027, 7, 5, 8, tzinfo=UTC)
HOUR = timedelta(hours=1)


def local(moment: datetime, zone: str) -> DueTime:
    """Return a row whose column has the local time of *zone*, read as UTC."""
    stored = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    return DueTime(stored=stored, due_at=stored, expires_at=moment)


def edited(moment: datetime, by: timedelta) -> DueTime:
    """Return a row whose column somebody changed."""
    return DueTime(stored=moment + by, due_at=moment + by, expires_at=moment)


def some(zone: str, *, start: datetime = WINTER, count: int = 10) -> list[DueTime]:
    """Return rows of *zone*, due hour after hour."""
    return [local(start + HOUR * n, zone) for n in range(count)]


def read(sample: Sequence[DueTime]) -> DueTimeReading:
    """Return what is made of *sample* without any setting."""
    return judge(sample, DueTimeRules())


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
def test_local_time_is_refused_with_the_zone_and_the_setting(zone: str) -> None:
    """Of winter and summer together, by which zones are told apart."""
    reading = read([*some(zone), *some(zone, start=SUMMER)])
    assert reading.is_refused
    assert f"local time of {zone}" in reading.text
    assert f"such as {zone}" in reading.remedy
    assert "store.time_zone" in reading.remedy


def test_rows_of_which_winter_looks_like_utc_are_refused() -> None:
    """London is an hour ahead in summer only; the rows of winter fit as well."""
    reading = read([*some("Europe/London"), *some("Europe/London", start=SUMMER, count=3)])
    assert reading.is_refused
    assert "local time of Europe/London" in reading.text


def test_a_wrong_setting_is_refused() -> None:
    """Rows of UTC that are read as Berlin's: the setting is named, and so is what fits."""
    rows = [
        DueTime(stored=moment, due_at=moment - HOUR, expires_at=moment)
        for moment in (WINTER + HOUR * n for n in range(5))
    ]
    reading = judge(rows, DueTimeRules(time_zone="Europe/Berlin"))
    assert reading.is_refused
    assert "read as Europe/Berlin" in reading.text
    assert "local time of UTC" in reading.text


def test_a_store_of_two_zones_is_refused_and_no_zone_promised() -> None:
    """The driver was changed one day: no setting is right for all rows."""
    reading = read([*some("UTC"), *some("America/New_York", count=4)])
    assert reading.is_refused
    assert "others do not" in reading.text
    assert "correct the rows" in reading.remedy


def test_the_only_row_counts() -> None:
    """Nobody can tell it from an edited one, and early is worse than asked."""
    reading = read(some("Europe/Berlin", count=1))
    assert reading.is_refused
    assert "Europe/Berlin, Africa/Algiers" in reading.text


@pytest.mark.parametrize(
    "sample",
    [
        [],
        some("UTC"),
        [*some("UTC"), edited(WINTER, HOUR), edited(WINTER, 2 * HOUR)],
        [*some("UTC", count=60), *(edited(WINTER, HOUR) for _ in range(5))],
        [edited(WINTER, timedelta(minutes=n)) for n in (1, 7, 20, 44)],
        [edited(WINTER, HOUR * n) for n in (-3, 1, 5, 7)],
        [edited(WINTER, timedelta(days=n)) for n in (1, 1, 1, 1)],
        [edited(WINTER, timedelta(milliseconds=500)) for _ in range(4)],
        [DueTime(stored=WINTER, due_at=WINTER, expires_at=None) for _ in range(4)],
    ],
    ids=["none", "utc", "two", "few", "odd", "many", "days", "rounded", "headless"],
)
def test_edited_rows_and_rows_without_a_header_refuse_nothing(sample: Sequence[DueTime]) -> None:
    """There the column counts, as it does for the timeout manager."""
    assert not read(sample).is_refused


def test_what_was_moved_on_purpose_is_told_and_accepted() -> None:
    """All by an hour, and an operator who says so."""
    reading = judge(some("Europe/Berlin"), DueTimeRules(accepts_shifted=True))
    assert (reading.is_refused, reading.shifted) == (False, 10)
    assert reading.text


@given(quarters=st.integers(-56, 56).filter(bool), noise=st.floats(-1, 1))
def test_every_zone_on_earth_is_recognised(quarters: int, noise: float) -> None:
    """From -14 h to +14 h, with the rounding of any store."""
    offset = quarters * timedelta(minutes=15)
    assert zone_offset(offset + timedelta(seconds=noise)) == offset


@pytest.mark.parametrize("minutes", [0, 1 / 60, 10, 60 + 2 / 60, 15 * 60, 365 * 24 * 60])
def test_an_edit_of_the_due_time_is_not_taken_for_a_zone(minutes: float) -> None:
    """Rounding is forgiven, to a second."""
    assert zone_offset(timedelta(minutes=minutes)) is None
