"""What a database counts for a preview is what converting each row would count."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from random import Random
from typing import Any, Final

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Reason
from migrator.nservicebus.wiretime import build_wire_time
from migrator.preview import count
from migrator.preview.count import scan
from migrator.preview.forecast import forecast
from migrator.stores.endpoints import EndpointPreview, Selection
from migrator.stores.sql import store
from tests.contract.any_site import NOW, LegacyRow, due_in, hours, timeout_id
from tests.contract.site import Site

pytestmark = [pytest.mark.every_store, pytest.mark.tables]

LIMITS: Final = BrokerLimits(
    frame_max_bytes=40_000, body_max_bytes=900, destination_map={"Old": "New", "Short": "x" * 200}
)
SAMPLED: Final = {"sample", "reply_queues", "zone_offsets"}
"""Fields that tell of the sample alone, where there is one."""
DAY: Final = timedelta(days=1)


def _due(rng: Random) -> timedelta | None:
    """Return when a row is due, from ``NOW``: often near the beginning of a level."""
    kind = rng.random()
    if kind < 0.05:
        return None
    if kind < 0.5:
        begin = timedelta(seconds=2 ** rng.randrange(28) - 1)
        return begin + timedelta(microseconds=rng.randint(-2_500_000, 2_500_000))
    return rng.choice(
        [
            timedelta(seconds=rng.uniform(-90, 90)),
            timedelta(seconds=rng.uniform(-9, 9)),
            timedelta(minutes=1),
            timedelta(0),
            rng.random() * 40 * DAY,
            rng.random() * 5000 * DAY,
        ]
    )


def _headers(rng: Random, due: timedelta | None) -> str | None:
    kind = rng.random()
    if kind < 0.05:
        return rng.choice([None, "[]", " ", "null", "x"])
    headers = {h.MESSAGE_ID: str(rng.random()), "Größe": "ü"[: rng.randrange(2)]}
    if kind < 0.1:
        headers["large"] = "y" * rng.choice([5_000, 13_000, 30_000])
    if due is not None and kind < 0.8:
        exact = NOW + due + timedelta(microseconds=rng.randint(-1_400_000, 1_400_000))
        headers[h.EXPIRE] = build_wire_time(exact)
    return json.dumps(headers, ensure_ascii=rng.random() < 0.9)


def _rows(rng: Random, rows: int) -> list[LegacyRow]:
    destinations = [
        "Sales",
        "sales",
        "Sales@APP1",
        "Old",
        "Old@B",
        "Billing",
        "Bill ing",
        "x" * 199,
    ]
    odd = [None, "", "@APP", "  ", " Sales", "Short", "y" * 200]
    found = []
    for number in range(rows):
        due = _due(rng)
        found.append(
            LegacyRow(
                id=timeout_id(rng.getrandbits(100) * 1000 + number),
                destination=rng.choice(odd if rng.random() < 0.1 else destinations),
                due=None if due is None else due_in(due),
                headers=_headers(rng, due),
                body=rng.choice([b"", b"x", b"b" * 900, b"b" * 901]),
            )
        )
    return found


def _told(found: EndpointPreview) -> dict[str, Any]:
    """Return every field that has to be the same, however rows were counted."""
    names = [each.name for each in fields(found) if each.name not in SAMPLED | {"quarantine"}]
    quarantine = {reason: entry.count for reason, entry in found.quarantine.items()}
    return {**{name: getattr(found, name) for name in names}, "quarantine": quarantine}


def _counted(site: Site, endpoint: StoreEndpoint, *, is_exact: bool, **given: Any) -> Any:
    usual: dict[str, Any] = {
        "selection": Selection(cutoff=timedelta(0), horizon=None),
        "rules": LIMITS,
        "now": NOW,
    }
    return scan(site.store, endpoint, **(usual | given), is_exact=is_exact)


@pytest.fixture(autouse=True)
def _few_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows are as good as many: the sample is small, too."""
    monkeypatch.setattr(count, "SAMPLE_ROWS", 20)


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_the_database_counts_what_conversion_counts(site: Site, seed: int) -> None:
    """Over any rows whose headers are JSON or plainly are not: each field, to the last row."""
    rng = Random(seed)
    site.create()
    rows = _rows(rng, 200)
    site.insert(rows)
    endpoint, lease = site.store.find(site.endpoint_name), site.lease()
    site.claim(endpoint, lease, max_rows=30)
    there = {row.id for row in site.legacy_rows()}
    site.insert([row for row in rows if row.id not in there][:20])  # a backup was restored
    for selection, now in (
        (Selection(cutoff=timedelta(0), horizon=None), NOW + timedelta(microseconds=123_456)),
        # rows are due at the very end of the cutoff, and of spans
        (Selection(cutoff=timedelta(minutes=1), horizon=30 * DAY), NOW),
    ):
        given = {"selection": selection, "now": now}
        exact, found = (_counted(site, endpoint, is_exact=e, **given) for e in (True, False))
        assert _told(found) == _told(exact)
        assert (exact.sample, found.sample.quarantine) == (None, {})
        assert 0 < found.sample.rows <= 20
        assert min(exact.quarantined, exact.in_ledger, exact.without_due_time) > 0


def test_what_the_database_cannot_see_is_told_of_the_sample(site: Site) -> None:
    """It is in no sum: one row of each kind of destination and due time is looked at first."""
    broken = replace(hours(1, start=70)[0], destination="Broken", headers='{"a": 1}')
    endpoint = site.create([*hours(60), broken])
    found, again = (_counted(site, endpoint, is_exact=False) for _ in range(2))
    (reason,) = found.sample.quarantine
    assert (reason, found.sample.rows) == (Reason.UNREADABLE_HEADERS, 20)
    assert found.sample.quarantine[reason].examples == [broken.id]
    assert (found.quarantined, found.to_hand_over, found.destinations["Broken"]) == (0, 61, 1)
    assert found == again
    exact = _counted(site, endpoint, is_exact=True)
    assert (exact.quarantined, exact.to_hand_over, exact.sample) == (1, 60, None)


def test_of_a_large_table_the_first_rows_are_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the same that conversion reads first; with so many rows or fewer, it is all."""
    site.create()
    site.insert(_rows(Random(3), 120))
    endpoint = site.store.find(site.endpoint_name)
    monkeypatch.setattr(store, "CHUNK_ROWS", 70)
    exact, found = (_counted(site, endpoint, is_exact=e, max_rows=70) for e in (True, False))
    assert _told(found) == _told(exact)
    assert (found.stored, found.is_complete, exact.sample) == (70, False, None)
    whole = _counted(site, endpoint, is_exact=False, max_rows=120)
    assert (whole.stored, whole.is_complete) == (120, True)


def test_few_rows_are_all_converted(site: Site) -> None:
    """A sample would be all of them."""
    assert _counted(site, site.create(hours(20)), is_exact=False).sample is None


def test_the_server_lets_a_preview_write_nothing(site: Site) -> None:
    """Its transaction is one that only reads; SQLite and SQL Server know no such thing."""
    endpoint = site.create(hours(30))
    opened = site.store.summary(
        endpoint, count._request(Selection(cutoff=DAY, horizon=None), LIMITS, NOW, None)
    )
    assert opened is not None
    with opened as summary:
        assert sum(group.rows for group in summary.groups([NOW])) == 30
        if site.engine.dialect.name not in ("sqlite", "mssql"):
            with pytest.raises(DBAPIError, match=r"(?i)read.only"):
                summary._connection.execute(text(f"DELETE FROM {site.quoted()}"))
    assert len(site.legacy_rows()) == 30


def test_a_burst_is_forecast_with_how_late_it_will_be(site: Site) -> None:
    """To the second, over all endpoints of the broker; what is spread is not told."""
    first, second = NOW + timedelta(hours=20), NOW + timedelta(hours=20, seconds=1)
    spread = [LegacyRow(id=timeout_id(n), due=due_in(timedelta(minutes=n))) for n in range(200)]
    dues = {first: 40, second: 30, NOW + DAY: 5, NOW - DAY: 90}
    moments = [moment for moment, rows in dues.items() for _ in range(rows)]
    rows = [
        LegacyRow(id=timeout_id(1000 + n), due=due_in(moment - NOW))
        for n, moment in enumerate(moments)
    ]
    endpoint = site.create([*spread, *rows])
    (burst,) = forecast(site.store, [endpoint], now=NOW, rate_per_s=10.0) or ()
    assert (burst.due_from, burst.due_until, burst.rows) == (first, second, 70)
    assert burst.late_s == pytest.approx(6.0)
