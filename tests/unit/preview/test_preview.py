"""Tests of ``migrator.preview``: what is counted, and the document of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from migrator.cli.output import json_text
from migrator.delays.routing import DelaysVersion
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Reason
from migrator.nservicebus.timeouts import MAX_DELAY_S, EndpointName, QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.preview.count import scan
from migrator.preview.forecast import Burst
from migrator.preview.report import Preview, span_of
from migrator.reports.plan import Plan
from migrator.stores.endpoints import EndpointPreview, Selection, chosen_endpoints
from migrator.stores.requests import ScannedRow
from tests.unit.preflight.fakes import NOW, SALES, FakeStore

BILLING = StoreEndpoint(name=EndpointName("Billing"), source="public.Billing_TimeoutData")
SECOND = timedelta(seconds=1)


class Rows(FakeStore):
    """A store that is scanned in chunks of two; ``Sales_`` is another way to say ``Sales``."""

    def __init__(self, *rows: ScannedRow) -> None:
        super().__init__(endpoints=[BILLING, SALES])
        self.rows = rows
        self.chunks = 0

    def find(self, name: str) -> StoreEndpoint:
        return super().find(name.rstrip("_"))

    def scan(self, endpoint: StoreEndpoint) -> Iterator[Sequence[ScannedRow]]:
        assert endpoint is SALES
        for start in range(0, len(self.rows), 2):
            self.chunks += 1
            yield self.rows[start : start + 2]

    def trial_claim(self, endpoint: StoreEndpoint) -> None:
        pytest.fail("a preview must not claim")


HOUR = timedelta(hours=1)


def row(
    due_in: timedelta | None = HOUR,
    headers: Mapping[str, str | None] | None = None,
    **changed: Any,
) -> ScannedRow:
    """Return a row for Sales that is due in *due_in* from NOW; None: it has no due time."""
    usual = ScannedRow(
        id="id",
        destination="Sales",
        due_at=None if due_in is None else NOW + due_in,
        headers_text=json.dumps(headers or {}),
        body_bytes=100,
        is_in_ledger=False,
    )
    return replace(usual, **changed)


def scanned(
    *rows: ScannedRow,
    cutoff: timedelta = timedelta(minutes=1),
    horizon: timedelta | None = None,
    **rules: Any,
) -> EndpointPreview:
    """Return the preview of *rows*; the counts must add up."""
    choice = Selection(cutoff=cutoff, horizon=horizon)
    found = scan(Rows(*rows), SALES, selection=choice, rules=BrokerLimits(**rules), now=NOW)
    parts = (found.in_ledger, found.without_due_time, found.left, found.beyond_horizon)
    assert sum(parts) + found.to_migrate == found.stored == len(rows)
    assert sum(found.destinations.values()) == found.to_hand_over
    assert found.is_complete
    return found


def test_each_row_has_one_fate() -> None:
    """Claimed already, no due time, left, too late, or to be migrated."""
    found = scanned(
        row(is_in_ledger=True),
        row(None),
        row(-SECOND),
        row(timedelta(minutes=1)),
        row(timedelta(minutes=1) + SECOND),
        row(timedelta(days=30)),
        row(timedelta(days=30) + SECOND),
        horizon=timedelta(days=30),
    )
    counts = (found.in_ledger, found.without_due_time, found.left, found.to_migrate)
    assert (*counts, found.beyond_horizon) == (1, 1, 2, 2, 1)
    assert found.overdue == 1


def test_without_a_cutoff_overdue_rows_are_ours() -> None:
    """They go out at once, through no level."""
    found = scanned(row(-SECOND), row(timedelta(0)), row(SECOND), cutoff=timedelta(0))
    assert (found.to_migrate, found.left, found.overdue) == (3, 0, 2)
    assert found.entry_levels == {0: 1}


def test_rows_beyond_the_longest_delay_stay() -> None:
    """28 bits of seconds, less an hour's margin."""
    longest = timedelta(seconds=MAX_DELAY_S)
    found = scanned(row(longest - timedelta(hours=1)), row(longest), row(2 * longest))
    assert (found.to_migrate, found.beyond_horizon) == (1, 2)
    assert found.due == {"8.5y": 2, "beyond": 1}


def test_rows_to_be_quarantined_are_counted_by_reason_with_examples() -> None:
    """Three ids and the first row's detail are enough to look closer; no body is read."""
    bad = [row(id=f"bad-{n}", headers_text="{") for n in range(5)]
    large = [row(body_bytes=1001), row(body_bytes=1000)]
    found = scanned(*bad, row(id="lost", destination=None), *large, body_max_bytes=1000)
    assert (found.quarantined, found.to_hand_over) == (7, 1)
    entry = found.quarantine[Reason.UNREADABLE_HEADERS]
    assert (entry.count, entry.examples) == (5, ["bad-0", "bad-1", "bad-2"])
    assert entry.detail == "not JSON: JSONDecodeError"
    assert found.quarantine[Reason.NO_DESTINATION].examples == ["lost"]
    assert found.quarantine[Reason.BODY_TOO_LARGE].count == 1


def test_destinations_are_counted_after_renaming() -> None:
    """Machine names are gone, and --map has been applied."""
    found = scanned(
        row(destination="Old@APP01"),
        row(destination="New"),
        row(destination=None, headers={h.ROUTE_EXPIRED_TO: "Billing"}),
        destination_map={"Old": "New"},
    )
    assert found.destinations == {"New": 2, "Billing": 1}


def test_bytes_and_levels_are_those_of_what_is_handed_over() -> None:
    """Rows that stay do not count; bodies that nobody measured are in no sum, and told."""
    found = scanned(
        row(timedelta(seconds=86_400), body_bytes=998),
        row(SECOND, body_bytes=5000),
        row(destination=None),
        row(timedelta(seconds=86_400), body_bytes=None),
        row(None, body_bytes=None),
    )
    assert (found.bytes, found.unmeasured, found.entry_levels) == (1002, 1, {16: 2})


def test_the_exact_due_time_decides_the_level() -> None:
    """The header refines a rounded column, as at hand-over."""
    exact = NOW + timedelta(seconds=127, milliseconds=700)
    found = scanned(row(timedelta(seconds=127), headers={h.EXPIRE: build_wire_time(exact)}))
    assert found.entry_levels == {7: 1}


def test_local_time_in_the_column_is_noticed() -> None:
    """Whole quarter hours away from the row's own header; the column counts all the same."""
    hours = timedelta(hours=2)
    header = {h.EXPIRE: build_wire_time(NOW + timedelta(days=1))}
    found = scanned(
        row(timedelta(days=1) + hours, headers=header),
        row(timedelta(days=1) + hours + SECOND, headers=header),
        row(timedelta(days=1), headers=header),
        row(timedelta(days=1, minutes=3), headers=header),
    )
    assert found.zone_offsets == {hours: 2}


@pytest.mark.parametrize(
    ("max_rows", "stored", "told"), [(1, 2, [2]), (3, 4, [2, 2]), (None, 5, [2, 2, 1])]
)
def test_a_part_of_the_rows_says_that_it_is_one(
    max_rows: int | None, stored: int, told: list[int]
) -> None:
    """The rest is not even read; progress is told by chunks, so that a person sees it move."""
    seen: list[int] = []
    rows, choice = Rows(*[row()] * 5), Selection(cutoff=timedelta(0), horizon=None)
    found = scan(
        rows,
        SALES,
        selection=choice,
        rules=BrokerLimits(),
        now=NOW,
        progress=seen.append,
        max_rows=max_rows,
    )
    assert (found.stored, found.is_complete) == (stored, max_rows is None)
    assert (seen, rows.chunks) == (told, len(told))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], [BILLING, SALES]),
        (["Sales"], [SALES]),
        (["Sales", "Billing"], [SALES, BILLING]),
        (["Sales", "Sales_"], [SALES]),
    ],
)
def test_endpoints_are_chosen_by_name(names: list[str], expected: list[StoreEndpoint]) -> None:
    """In the order they were named, each once; all when none is named."""
    assert list(chosen_endpoints(Rows(), names)) == expected


def test_what_is_never_claimed_is_told_with_the_reason() -> None:
    """It has no due time, and is counted as that; a few ids show which."""
    rows = [row(None, id=f"id-{n}", why_unclaimable="odd") for n in range(5)]
    found = scanned(*rows, row(None), row())
    assert (found.without_due_time, found.to_migrate) == (6, 1)
    assert found.unclaimable["odd"].count == 5
    assert found.unclaimable["odd"].examples == ["id-0", "id-1", "id-2"]


def test_the_queues_of_replies_are_counted() -> None:
    """A callback queue wins; version 5 without an address replies to the endpoint itself."""
    address, callback = {h.REPLY_TO_ADDRESS: "Web"}, {h.CALLBACK_QUEUE: "Web.OLD1"}
    found = scanned(
        row(headers=address),
        row(headers=address | callback),
        row(headers={h.VERSION: "5.2.26"}),
        row(headers={h.VERSION: "6.5.10"}),
        own_queue=QueueName("Sales.In"),
    )
    assert found.reply_queues == {"Web": 1, "Web.OLD1": 1, "Sales.In": 1}


def test_addresses_that_name_a_machine_are_counted() -> None:
    """As they are stored, unless --map says where they go, or a header has to."""
    places = ("Billing@APP01", "Billing@APP01", "Old@APP02", "Billing")
    rows = [row(destination=each) for each in places]
    rows.append(row(headers={h.ROUTE_EXPIRED_TO: "Billing"}, destination="@APP03"))
    found = scanned(*rows, destination_map={"Old": "New"})
    assert found.machine_addresses == {"Billing@APP01": 2}
    assert found.destinations == {"Billing": 4, "New": 1}


@pytest.mark.parametrize(
    ("until_due", "expected"),
    [
        (-timedelta(days=9), "overdue"),
        (timedelta(0), "overdue"),
        (timedelta(microseconds=1), "1m"),
        (timedelta(minutes=1), "1m"),
        (timedelta(minutes=1, microseconds=1), "1h"),
        (timedelta(days=365), "1y"),
        (timedelta(seconds=MAX_DELAY_S), "8.5y"),
        (timedelta(seconds=MAX_DELAY_S, microseconds=1), "beyond"),
    ],
)
def test_steps_of_the_histogram_end_inclusively(until_due: timedelta, expected: str) -> None:
    """A row due in exactly a minute belongs to the first minute."""
    assert span_of(until_due) == expected


def test_what_an_exchange_costs_counts_for_estimate_and_forecast() -> None:
    """12 000 rows due within one minute, measured: 0.17 ms, and 3 to 4 s late at full pace."""
    found = replace(scanned(), to_migrate=12_000, entry_levels=Counter({5: 600, 6: 11_400}))
    preview = Preview(
        taken_at=NOW,
        cutoff=timedelta(0),
        horizon=None,
        version=DelaysVersion.V2,
        rate_per_s=12_000.0,
        exchange_cost_s=0.00017,
        endpoints=[found],
    )
    assert 3.0 <= preview.late_at_full_pace.total_seconds() <= 4.2
    assert preview.is_paced
    assert preview.estimated.total_seconds() == pytest.approx(7.7, abs=0.1)
    older = replace(preview, version=DelaysVersion.V1)  # an exchange more for what is taken in
    assert older.estimated.total_seconds() == pytest.approx(7.7 * 3 / 2, abs=0.1)
    assert older.late_at_full_pace == preview.late_at_full_pace
    full = replace(preview, keeps_to_levels=False)
    assert (full.is_paced, full.estimated.total_seconds()) == (False, 1.0)


def test_the_names_in_the_document_are_those_that_programs_read() -> None:
    """None more and none less: a field of an endpoint's preview is in the document."""
    found = scanned(
        row(id="a", destination=None),
        row(timedelta(days=2), {h.EXPIRE: build_wire_time(NOW + timedelta(days=2, hours=2))}),
        row(None, why_unclaimable="odd"),
        row(SECOND * 90),
    )
    preview = Preview(
        taken_at=NOW,
        cutoff=timedelta(minutes=1),
        horizon=timedelta(days=30),
        version=DelaysVersion.V2,
        rate_per_s=4.0,
        exchange_cost_s=0.0001,
        bursts=[Burst(due_from=NOW, due_until=NOW + SECOND, rows=9, late_s=1.26)],
        endpoints=[found],
        dispatched=[found],
        modes={EndpointName("Sales"): "migrate"},
    )
    plan = Plan(preview=preview, findings=(), asks_broker=False, purge_after=None)
    document = json.loads(json_text(plan.document.values))
    (moved,), (sent,) = document.pop("endpoints"), document.pop("dispatched")
    assert document == {
        "schema": "migrator/preview/1",
        "verdict": "ok",
        "asks_broker": False,
        "waiting": None,
        "content_kept": ANY,
        "findings": [],
        "taken_at": NOW.isoformat(),
        "delays": "v2",
        "cutoff_s": 60,
        "horizon_s": 2_592_000,
        "rate_per_s": 4,
        "estimated_s": 0.5,
        "late_at_full_pace_s": 0.0,
        "modes": {"Sales": "migrate"},
        "dues_per_s": 1364,
        "bursts": [
            {
                "due_from": NOW.isoformat(),
                "due_until": (NOW + SECOND).isoformat(),
                "rows": 9,
                "late_s": 1.3,
            }
        ],
    }
    names = (
        "endpoint source is_complete stored in_ledger without_due_time left beyond_horizon "
        "to_migrate to_hand_over overdue quarantine destinations due zone_offsets_min bytes "
        "unmeasured unclaimable reply_queues machine_addresses entry_levels sample first_due "
        "last_due"
    )
    assert set(moved) == set(names.split())
    assert moved["quarantine"] == [
        {"reason": "no-destination", "count": 1, "examples": ["a"], "detail": ANY}
    ]
    assert moved["unclaimable"] == [{"reason": "odd", "count": 1, "examples": ["id"]}]
    assert (moved["due"]["1w"], moved["due"]["beyond"]) == (1, 0)
    assert (moved["zone_offsets_min"], moved["entry_levels"]) == ({"-120": 1}, {"6": 1, "17": 1})
    assert sent == {
        "endpoint": "Sales",
        "source": SALES.source,
        "stored": 4,
        "overdue": 0,
        "in_ledger": 0,
        "without_due_time": 1,
        "to_send": 2,
        "quarantined": 1,
        "destinations": {"Sales": 2},
        "sample": None,
        "first_due": ANY,
        "last_due": ANY,
    }
