"""Tests of ``migrator.preview.count``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import pytest

from migrator.errors import UnknownEndpoint
from migrator.ledger.work import StoreEndpoint
from migrator.nservicebus import headers as h
from migrator.nservicebus.conversion import BrokerLimits, Reason
from migrator.nservicebus.timeouts import MAX_DELAY_S, EndpointName, QueueName
from migrator.nservicebus.wiretime import build_wire_time
from migrator.preview.count import survey
from migrator.stores.endpoints import EndpointPreview, Selection, chosen_endpoints
from migrator.stores.ports import SurveyedRow
from tests.unit.preflight.fakes import NOW, SALES, FakeStore

BILLING = StoreEndpoint(name=EndpointName("Billing"), source="public.Billing_TimeoutData")
SECOND = timedelta(seconds=1)


class Rows(FakeStore):
    """A store that is surveyed in chunks of two; ``Sales_`` is another way to say ``Sales``."""

    def __init__(self, *rows: SurveyedRow) -> None:
        super().__init__(found=[BILLING, SALES])
        self.rows = rows
        self.chunks = 0

    def find(self, name: str) -> StoreEndpoint:
        return super().find(name.rstrip("_"))

    def survey(self, endpoint: StoreEndpoint) -> Iterator[Sequence[SurveyedRow]]:
        assert endpoint is SALES
        for start in range(0, len(self.rows), 2):
            self.chunks += 1
            yield self.rows[start : start + 2]

    def trial_claim(self, endpoint: StoreEndpoint) -> None:
        pytest.fail("a preview must not claim")


def row(
    due_in: timedelta | None,
    *,
    id: str = "id",
    destination: str | None = "Sales",
    headers: Mapping[str, str | None] | None = None,
    headers_text: str | None = None,
    body_bytes: int | None = 100,
    is_in_ledger: bool = False,
    why_unclaimable: str | None = None,
) -> SurveyedRow:
    """Return a row that is due in *due_in* from NOW; None: it has no due time."""
    return SurveyedRow(
        id=id,
        destination=destination,
        due_at=None if due_in is None else NOW + due_in,
        headers_text=json.dumps(headers or {}) if headers_text is None else headers_text,
        body_bytes=body_bytes,
        is_in_ledger=is_in_ledger,
        why_unclaimable=why_unclaimable,
    )


def surveyed(
    *rows: SurveyedRow,
    cutoff: timedelta = timedelta(minutes=1),
    horizon: timedelta | None = None,
    rules: BrokerLimits | None = None,
) -> EndpointPreview:
    """Return the preview of *rows*; the counts must add up."""
    found = survey(
        Rows(*rows),
        SALES,
        selection=Selection(cutoff=cutoff, horizon=horizon),
        rules=rules or BrokerLimits(),
        now=NOW,
    )
    parts = (found.in_ledger, found.without_due_time, found.left, found.beyond_horizon)
    assert sum(parts) + found.to_migrate == found.stored == len(rows)
    assert sum(found.destinations.values()) == found.to_hand_over
    return found


def test_an_empty_table_is_all_zeros() -> None:
    """Nothing is divided by anything."""
    found = surveyed()
    assert (found.stored, found.to_hand_over, found.bytes) == (0, 0, 0)
    assert found.is_complete


def test_each_row_has_one_fate() -> None:
    """Claimed already, no due time, left, too late, or to be migrated."""
    found = surveyed(
        row(timedelta(hours=1), is_in_ledger=True),
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
    found = surveyed(row(-SECOND), row(timedelta(0)), row(SECOND), cutoff=timedelta(0))
    assert (found.to_migrate, found.left, found.overdue) == (3, 0, 2)
    assert found.entry_levels == {0: 1}


def test_rows_beyond_the_longest_delay_stay() -> None:
    """28 bits of seconds, less an hour's margin."""
    longest = timedelta(seconds=MAX_DELAY_S)
    found = surveyed(row(longest - timedelta(hours=1)), row(longest), row(2 * longest))
    assert (found.to_migrate, found.beyond_horizon) == (1, 2)
    assert found.due == {"8.5y": 2, "beyond": 1}


def test_rows_to_be_quarantined_are_counted_by_reason_with_examples() -> None:
    """Three ids and the first row's detail are enough to look closer."""
    bad = [row(timedelta(hours=1), id=f"bad-{n}", headers_text="{") for n in range(5)]
    lost = row(timedelta(hours=1), id="lost", destination=None)
    found = surveyed(*bad, lost, row(timedelta(hours=1)))
    assert found.quarantined == 6
    assert found.to_hand_over == 1
    entry = found.quarantine[Reason.UNREADABLE_HEADERS]
    assert (entry.count, entry.examples) == (5, ["bad-0", "bad-1", "bad-2"])
    assert entry.detail == "not JSON: JSONDecodeError"
    assert found.quarantine[Reason.NO_DESTINATION].examples == ["lost"]


@pytest.mark.parametrize(("size", "expected"), [(1000, {}), (1001, {Reason.BODY_TOO_LARGE: 1})])
def test_bodies_are_judged_by_their_size_alone(size: int, expected: dict[Reason, int]) -> None:
    """They are never read."""
    found = surveyed(
        row(timedelta(hours=1), body_bytes=size), rules=BrokerLimits(body_max_bytes=1000)
    )
    assert {reason: entry.count for reason, entry in found.quarantine.items()} == expected


def test_destinations_are_counted_after_renaming() -> None:
    """Machine names are gone, and --map has been applied."""
    found = surveyed(
        row(timedelta(hours=1), destination="Old@APP01"),
        row(timedelta(hours=1), destination="New"),
        row(timedelta(hours=1), destination=None, headers={h.ROUTE_EXPIRED_TO: "Billing"}),
        rules=BrokerLimits(destination_map={"Old": "New"}),
    )
    assert found.destinations == {"New": 2, "Billing": 1}


def test_bytes_and_levels_are_those_of_what_is_handed_over() -> None:
    """Rows that stay do not count."""
    found = surveyed(
        row(timedelta(seconds=86_400), headers_text="{}", body_bytes=998),
        row(SECOND, body_bytes=5000),
        row(timedelta(hours=1), destination=None),
    )
    assert found.bytes == 1000
    assert found.entry_levels == {16: 1}


def test_the_exact_due_time_decides_the_level() -> None:
    """The header refines a rounded column, as at hand-over."""
    exact = NOW + timedelta(seconds=127, milliseconds=700)
    found = surveyed(
        row(timedelta(seconds=127), headers={h.EXPIRE: build_wire_time(exact)}),
    )
    assert found.entry_levels == {7: 1}


def test_local_time_in_the_column_is_noticed() -> None:
    """Whole quarter hours away from the row's own header; the column counts all the same."""
    hours = timedelta(hours=2)
    header = {h.EXPIRE: build_wire_time(NOW + timedelta(days=1))}
    found = surveyed(
        row(timedelta(days=1) + hours, headers=header),
        row(timedelta(days=1) + hours + SECOND, headers=header),
        row(timedelta(days=1), headers=header),
        row(timedelta(days=1, minutes=3), headers=header),
    )
    assert found.zone_offsets == {hours: 2}


def test_progress_is_told_by_chunks() -> None:
    """So that a person sees something move."""
    seen: list[int] = []
    survey(
        Rows(*[row(timedelta(hours=1))] * 5),
        SALES,
        selection=Selection(cutoff=timedelta(0), horizon=None),
        rules=BrokerLimits(),
        now=NOW,
        progress=seen.append,
    )
    assert seen == [2, 2, 1]


@pytest.mark.parametrize(("max_rows", "stored", "chunks"), [(1, 2, 1), (3, 4, 2)])
def test_a_part_of_the_rows_says_that_it_is_one(max_rows: int, stored: int, chunks: int) -> None:
    """The rest is not even read."""
    rows = Rows(*[row(timedelta(hours=1))] * 5)
    found = survey(
        rows,
        SALES,
        selection=Selection(cutoff=timedelta(0), horizon=None),
        rules=BrokerLimits(),
        now=NOW,
        max_rows=max_rows,
    )
    assert (found.stored, found.is_complete, rows.chunks) == (stored, False, chunks)


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


def test_an_unknown_endpoint_is_refused() -> None:
    """With the names there are."""
    with pytest.raises(UnknownEndpoint, match="Billing, Sales"):
        chosen_endpoints(Rows(), ["Sales", "Nobody"])


def test_what_is_never_claimed_is_told_with_the_reason() -> None:
    """It has no due time, and is counted as that; a few ids show which."""
    rows = [row(None, id=f"id-{n}", why_unclaimable="odd") for n in range(5)]
    found = surveyed(*rows, row(None), row(timedelta(hours=1)))
    assert (found.without_due_time, found.to_migrate) == (6, 1)
    assert found.unclaimable["odd"].count == 5
    assert found.unclaimable["odd"].examples == ["id-0", "id-1", "id-2"]


def test_bodies_that_nobody_measured_are_counted() -> None:
    """They are in no sum, and not taken for empty."""
    hour = timedelta(hours=1)
    found = surveyed(row(hour), row(hour, body_bytes=None), row(None, body_bytes=None))
    assert (found.unmeasured, found.bytes) == (1, 100 + 2 * len("{}"))


def test_the_queues_of_replies_are_counted() -> None:
    """A callback queue wins; version 5 without an address replies to the endpoint itself."""
    address, callback = {h.REPLY_TO_ADDRESS: "Web"}, {h.CALLBACK_QUEUE: "Web.OLD1"}
    found = surveyed(
        row(timedelta(hours=1), headers=address),
        row(timedelta(hours=1), headers=address | callback),
        row(timedelta(hours=1), headers={h.VERSION: "5.2.26"}),
        row(timedelta(hours=1), headers={h.VERSION: "6.5.10"}),
        rules=BrokerLimits(own_queue=QueueName("Sales.In")),
    )
    assert found.reply_queues == {"Web": 1, "Web.OLD1": 1, "Sales.In": 1}
