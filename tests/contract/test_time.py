"""Due times: how fine they are, how far away, and in whose zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.contract.any_site import NOW, AnySite, LegacyRow, hours, timeout_id

pytestmark = pytest.mark.every_store

FAR = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.fixture(
    params=["Pacific/Chatham", pytest.param("America/St_Johns", marks=pytest.mark.slow)]
)
def odd_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A zone of neither whole nor half hours, or west of UTC; it is the process's own, too."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_it_is_never_due_earlier_than_stored(site: AnySite) -> None:
    """What is finer than a microsecond is rounded up, and goes back as it was."""
    fraction = "1" * site.due_digits
    row = LegacyRow(id=timeout_id(1), due=f"2026-03-01 13:00:00.{fraction}")
    endpoint, lease = site.create([row]), site.lease()
    claim = site.claim(endpoint, lease)
    (found,) = site.batches.rows(claim.batch)
    microseconds = 111_111 if site.due_digits == 6 else 111_112
    assert found.due_at == NOW + timedelta(hours=1, microseconds=microseconds)
    assert site.claims.release(claim.batch, lease) == 1
    assert site.legacy_rows() == [row]


def test_sessions_in_an_odd_zone_change_nothing(site: AnySite, odd_zone: str) -> None:
    """Due times are UTC, whatever zone the server, its sessions or this process are in."""
    rows = hours(3)
    endpoint = site.create(rows)
    with site.default_zone(odd_zone):
        other = site.second()
        lease = other.lease()
        claim = other.claim(endpoint, lease, due_until=NOW + timedelta(hours=2))
        due = [row.due_at for row in other.batches.rows(claim.batch)]
        assert due == [NOW + timedelta(hours=n) for n in (1, 2)]
        (left,) = [row for page in other.store.scan(endpoint) for row in page]
        assert left.due_at == NOW + timedelta(hours=3)
        assert other.claims.release(claim.batch, lease) == 2
        other.close()
    assert site.legacy_rows() == rows


def test_the_ends_of_the_calendar_are_times_like_others(site: AnySite) -> None:
    """Some mean "at once" or "never" by them; claimed in order, they go back as they were."""
    rows = [
        LegacyRow(id=timeout_id(n), due=due)
        for n, due in enumerate([site.first_time, "2026-03-01 13:00:00.000000", site.last_time])
    ]
    endpoint, lease = site.create(rows), site.lease()
    claims = site.claim_all(endpoint, lease, max_rows=1, due_until=FAR)
    assert [site.ids(claim) for claim in claims] == [[row.id] for row in rows]
    assert [site.claims.release(claim.batch, lease) for claim in claims] == [1, 1, 1]
    assert (site.legacy_rows(), site.remains()) == (rows, [])
